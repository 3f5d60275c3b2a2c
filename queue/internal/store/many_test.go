package store

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// many is more than one step of a walk through a large key.
const many = 5 * scanStep

// What is large is read in many short steps, and nothing is left out.
func TestLargeKeysAreReadInSteps(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		var users, claims, ids []string
		pauses, pipe := make(map[string]int64), d.client.Pipeline()
		for i := range many {
			user := fmt.Sprint("user ", i)
			users, claims, ids = append(users, user), append(claims, fmt.Sprint("claim", i)), append(ids, fmt.Sprint("id", i))
			pauses[envelope.UserScope("t", user)] = int64(i)
			pipe.ZAdd(t.Context(), d.key.Due("t", i%3), redis.Z{Score: float64(i), Member: Escape(user)})
			pipe.HSet(t.Context(), d.key.Running("w"), claims[i], "job")
			pipe.SAdd(t.Context(), d.key.Cancelled(), ids[i])
			pipe.ZAdd(t.Context(), d.key.Paused(), redis.Z{Score: float64(i), Member: envelope.UserScope("t", user)})
		}
		_, err := pipe.Exec(t.Context())
		d.must(err)
		same := func(what string, got, want []string) {
			t.Helper()
			if got, want := slices.Compact(slices.Sorted(slices.Values(got))), slices.Sorted(slices.Values(want)); !slices.Equal(got, want) {
				t.Errorf("%s: %d, want %d", what, len(got), len(want))
			}
		}
		var read []string
		for at := (LaneScan{Tenant: "t"}); !at.Done; {
			var lanes []Lane
			lanes, at, err = d.ScanLanes(t.Context(), at)
			d.must(err)
			for _, lane := range lanes {
				read = append(read, lane.User)
			}
		}
		same("lanes", read, users)
		read = nil
		for at := (ClaimScan{Worker: "w"}); !at.Done; {
			var some []Claim
			some, at, err = d.ScanClaims(t.Context(), at)
			d.must(err)
			for _, claim := range some {
				read = append(read, claim.String())
			}
		}
		same("claims", read, claims)
		settings, err := d.Settings(t.Context())
		d.must(err)
		same("cancelled jobs", settings.Cancelled, ids)
		if !maps.Equal(settings.Paused, pauses) {
			t.Errorf("%d pauses are settings; want %d", len(settings.Paused), len(pauses))
		}
		if found, err := d.Pauses(t.Context()); err != nil || !maps.Equal(found, pauses) {
			t.Errorf("%d pauses, %v; want %d", len(found), err, len(pauses))
		}
	})
}

// An offer is told of the pauses of its own jobs, however many others there are, and so is
// whoever repeats it.
func TestAnOfferIsToldOfItsOwnPauses(t *testing.T) {
	t.Parallel()
	onDesks(t, func(t *testing.T, d *desk) {
		hour := time.Now().Add(time.Hour)
		for _, scope := range []string{"q", "t:t", "u:t:u", "u:t:other", "t:other"} {
			d.must(d.Pause(t.Context(), scope, hour.UnixMicro(), Note{}))
		}
		o := Offer{Batch: "twice", Keep: time.Minute, Tenants: []OfferTenant{{Name: "t"}}}
		for _, lane := range []Lane{{Tenant: "t", User: "u", Priority: envelope.High}, {Tenant: "t", User: "v", Priority: envelope.Normal}} {
			e := envelope.Envelope{Cost: 1, MaxAttempts: 1, Type: "x"}
			o.Jobs = append(o.Jobs, OfferJob{Lane: lane, Body: e.Body()})
		}
		for range 2 {
			reply, err := d.Offer(t.Context(), o)
			d.must(err)
			if got := slices.Sorted(maps.Keys(reply.Pauses)); !slices.Equal(got, []string{"q", "t:t", "u:t:u"}) {
				t.Errorf("told of the pauses of %q", got)
			}
		}
	})
}
