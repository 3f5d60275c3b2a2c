package store

import (
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// ownKeys are keys of the queue itself, and the types that they should have.
var ownKeys = map[string]string{
	"meta": "hash", "tenants": "zset", "later": "zset", "workers": "zset", "notices": "stream", "dead": "stream",
	"paused": "zset", "cancelled": "set", "running:b": "hash", "mailbox:b": "list",
}

// A commit that needs a key of the queue itself, which holds something else, does nothing and
// names the key, wherever among its writes that key stands.
func TestACommitNeedsTheQueuesKeys(t *testing.T) {
	t.Parallel()
	for key, want := range ownKeys {
		if key == "notices" {
			continue // no commit writes it
		}
		t.Run(key, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				stamp := d.offer("u", nil)
				d.must(d.client.ZAdd(t.Context(), d.key.Later(), zOf("later")).Err())
				d.hold("b", claimOf("claim"))
				f := d.lead("a")
				d.must(d.client.Del(t.Context(), "wc:{q}:"+key).Err())
				d.text(key)
				before := d.all()
				c := d.NewCommit()
				d.take(c, "a", "u", stamp, 5)
				c.PutFirst(laneOf("w"), "0000000000001job", envelope.Place{Slot: 1, Stamp: "0000000000001"}, 3)
				c.Mature("later", 1<<52)
				c.EndClaim("b", claimOf("claim"))
				c.Tell("b", "!job")
				c.Lives("b")
				c.Bury(laneOf("u"), "job", "why", 5)
				c.Pause("q", 5)
				c.NotCancelled("id")
				var broken *BrokenKeyError
				if _, err := d.Commit(t.Context(), f, c); !errors.As(err, &broken) || broken.Key != "wc:{q}:"+key || broken.Want != want {
					t.Errorf("%v", err)
				}
				if after := d.all(); !maps.Equal(before, after) {
					t.Errorf("was %v\nis  %v", before, after)
				}
			})
		})
	}
}

// The other scripts do nothing either.
func TestScriptsNeedTheQueuesKeys(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	for name, test := range map[string]struct {
		keys []string
		do   func(d *desk) error
	}{
		"offer": {[]string{"meta", "notices", "tenants", "refused", "paused"}, func(d *desk) error {
			_, err := d.Offer(d.t.Context(), Offer{Batch: "b", Keep: time.Minute, Tenants: []OfferTenant{{Name: "t"}},
				Jobs: []OfferJob{{Lane: laneOf("u"), Body: []byte("job")}, {Lane: laneOf("u"), Body: []byte("job"), Refuse: "expired"}}})
			return err
		}},
		"ack": {[]string{"meta", "notices", "running:b"}, func(d *desk) error {
			_, err := d.Ack(d.t.Context(), Ack{Worker: "b", Claims: []Claim{claimOf("claim")}, Refund: "x"})
			return err
		}},
		"beat": {[]string{"meta", "notices", "workers", "worker:b", "running:b"}, func(d *desk) error {
			_, err := d.Beat(d.t.Context(), Beat{Worker: "b", Lease: time.Minute})
			return err
		}},
		"fail, to be tried again": {[]string{"meta", "notices", "later", "running:b"}, func(d *desk) error {
			_, err := d.Fail(d.t.Context(), Failure{Worker: "b", Claim: claimOf("claim"), Job: "job", Refund: "x"})
			return err
		}},
		"fail, dead": {[]string{"meta", "notices", "dead", "running:b"}, func(d *desk) error {
			_, err := d.Fail(d.t.Context(), Failure{Worker: "b", Claim: claimOf("claim"), Delay: -1, Job: "job"})
			return err
		}},
		"lead": {[]string{"meta"}, func(d *desk) error { _, err := d.Lead(d.t.Context(), "a", time.Minute, ""); return err }},
		"look": {[]string{"meta", "paused"}, func(d *desk) error { _, err := d.Look(d.t.Context(), nil); return err }},
	} {
		for _, key := range test.keys {
			t.Run(name+" "+key, func(t *testing.T) {
				onDesks(t, func(t *testing.T, d *desk) {
					d.hold("b", claimOf("claim"))
					d.must(d.client.HSet(t.Context(), d.key.Meta(), "schema", Schema, "till", 1<<52).Err())
					d.must(d.client.Del(t.Context(), "wc:{q}:"+key).Err())
					d.text(key)
					before := d.all()
					if err := test.do(d); err == nil {
						t.Error("it is done")
					} else if broken := new(BrokenKeyError); !errors.As(err, &broken) {
						t.Errorf("it does not say which key: %v", err)
					}
					if after := d.all(); !maps.Equal(before, after) {
						t.Errorf("was %v\nis  %v", before, after)
					}
				})
			})
		}
	}
}

// A lane that cannot hold a job is named by the checks that fail, and nothing is done.
func TestACommitNamesBrokenLanes(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"lane:t:odd", "due:t", "fold:t:odd"} {
		t.Run(key, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				f := d.lead("a")
				d.text(key)
				d.hold("b", claimOf("claim"))
				before := d.all()
				c := d.NewCommit()
				c.EndClaim("b", claimOf("claim"))
				c.PutFirst(Lane{Tenant: "good", User: "u", Priority: envelope.Normal}, "0000000000001job", envelope.Place{Slot: 1, Stamp: "0000000000001"}, 3)
				if key == "fold:t:odd" {
					c.Fold(Folded{"t", "odd", "k"}, "0000000000002job")
				}
				c.PutFirst(laneOf("odd"), "0000000000002job", envelope.Place{Slot: 1, Stamp: "0000000000001"}, 3)
				var differs *DiffersError
				if _, err := d.Commit(t.Context(), f, c); !errors.As(err, &differs) {
					t.Fatalf("%v", err)
				}
				if lanes := c.Broken(differs.Checks); !slices.Equal(lanes, []Lane{laneOf("odd")}) {
					t.Errorf("%v", lanes)
				}
				if after := d.all(); !maps.Equal(before, after) {
					t.Errorf("was %v\nis  %v", before, after)
				}
				if holds, err := d.Holds(t.Context(), laneOf("odd")); holds || err != nil {
					t.Errorf("%v, %v", holds, err)
				}
			})
		})
	}
}

// A dead job stays dead while its lane cannot hold it.
func TestReviveIntoABrokenLane(t *testing.T) {
	t.Parallel()
	for _, key := range []string{"lane:t:u", "due:t", "tenants"} {
		t.Run(key, func(t *testing.T) {
			onDesks(t, func(t *testing.T, d *desk) {
				f := d.lead("a")
				c := d.NewCommit()
				job := envelope.Envelope{Stamp: "0000000000001", Cost: 1, MaxAttempts: 1, Type: "x", Priority: envelope.Normal}
				c.Bury(laneOf("u"), job.String(), "why", 5)
				_, err := d.Commit(t.Context(), f, c)
				d.must(err)
				dead, err := d.Dead(t.Context(), "", 1)
				d.must(err)
				d.text(key)
				if n, err := d.Revive(t.Context(), []string{dead[0].Entry}); n != 0 || err == nil {
					t.Errorf("%d, %v", n, err)
				}
				if n := d.client.XLen(t.Context(), d.key.Dead()).Val(); n != 1 {
					t.Errorf("%d dead jobs, want 1", n)
				}
			})
		})
	}
}

func zOf(member string) redis.Z { return redis.Z{Score: 1, Member: member} }
