package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// breakCounters lets a tenant's counters be something that nobody can count with.
func (d *desk) breakCounters(tenant, how string) {
	d.t.Helper()
	key := d.key.Tenant(tenant)
	d.must(d.client.Del(d.t.Context(), key).Err())
	if how == "a text" {
		d.must(d.client.Set(d.t.Context(), key, "x", 0).Err())
		return
	}
	for _, field := range []string{"in", "other", "out", "back", "started", "dropped", "failed", "dead"} {
		d.must(d.client.HSet(d.t.Context(), key, field, how).Err())
	}
}

var uncountable = []string{"a text", "many", "", "1.5", "1e3", "0x10", "nan", " 1", "99999999999999999999", "9223372036854775807"}

// One tenant whose counters are broken has its jobs refused. All others of the batch are
// accepted, and offered again the batch gets the same receipts.
func TestOfferWithBrokenCounters(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	for _, how := range uncountable {
		t.Run(how, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				d.breakCounters("b", how)
				o := Offer{Batch: "batch", Keep: time.Minute}
				for i, name := range []string{"a", "b", "c"} {
					o.Tenants = append(o.Tenants, OfferTenant{Name: name})
					o.Jobs = append(o.Jobs, OfferJob{Tenant: i, Lane: Lane{Tenant: name, User: "u", Priority: 1}, Body: []byte("job")})
				}
				for range 2 {
					reply, err := d.Offer(t.Context(), o)
					d.must(err)
					var got []string
					for _, r := range reply.Receipts {
						got = append(got, strings.TrimSpace(r.Status+" "+r.Reason))
					}
					if want := "[a x broken a]"; fmt.Sprint(got) != want {
						t.Errorf("%v, want %v", got, want)
					}
				}
				for name, want := range map[string]int64{"a": 1, "b": 0, "c": 1} {
					if n := d.client.LLen(t.Context(), d.key.Lane(Lane{Tenant: name, User: "u", Priority: 1})).Val(); n != want {
						t.Errorf("%d jobs of %s, want %d", n, name, want)
					}
				}
			})
		})
	}
}

// Where what waits for its time is broken, the other jobs enter.
func TestOfferWithABrokenLater(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.text("later")
		odd := jobOf(1, "u", "odd")
		odd.ID, odd.NotBefore, odd.Spilled, odd.Payload = "i d", 1<<52, "s", []byte("apart")
		receipts := d.offerAll("b", jobOf(1, "u", "x"), odd, jobOf(1, "u", "x"))
		if got, want := said(receipts), []string{"a 1 0", "x 0 1 broken", "a 2 1"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if got, want := d.effect(odd, receipts), (effect{lane: "#0x #2x", refused: "t1:u:1 broken  #1odd"}); got != want {
			t.Errorf("left: %+v, want %+v", got, want)
		}
	})
}

// A job enters a lane in which others wait, even if their index is broken.
func TestABrokenIndexOfALaneThatWaits(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		d.offerAll("before", jobOf(0, "u", "x"))
		d.must(d.client.Del(t.Context(), d.key.Due("t0", envelope.Normal)).Err())
		d.text("due:t0")
		got := said(d.offerAll("b", jobOf(0, "v", "x"), jobOf(0, "u", "x"), jobOf(1, "v", "x")))
		if want := []string{"x 0 1 broken", "a 2 1", "a 1 0"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if d.exists("lane:t0:v") {
			t.Error("a lane that no index names")
		}
	})
}

// A failed attempt is noted, and the job goes on, whatever became of its tenant's counters.
func TestFailWithBrokenCounters(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	for _, how := range uncountable {
		for _, delay := range []time.Duration{-1, time.Second} {
			t.Run(fmt.Sprint(how, delay), func(t *testing.T) {
				onDesks(t, func(t *testing.T, d *desk) {
					d.hold("w", claimOf("claim"))
					d.breakCounters("t", how)
					held, err := d.Fail(t.Context(), Failure{Worker: "w", Claim: claimOf("claim"), Delay: delay, Job: "job", Error: "no"})
					if !held || err != nil {
						t.Errorf("%v, %v", held, err)
					}
					dead, later := d.client.XLen(t.Context(), d.key.Dead()).Val(), d.client.ZCard(t.Context(), d.key.Later()).Val()
					if dead+later != 1 || (delay < 0) != (dead == 1) {
						t.Errorf("%d dead, %d later", dead, later)
					}
				})
			})
		}
	}
}
