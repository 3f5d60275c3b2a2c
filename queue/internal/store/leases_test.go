package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
)

// A tenure is what a leader of a partition believes, and what runs there under each of some limits.
type tenure struct {
	store  *Store
	epoch  int
	number int64
	told   bool
	of     [2]struct{ uses, running int } // it runs no more at once than it uses
}

// telling tells of one limit, or at first of all.
func (l *tenure) telling(rng *rand.Rand, limit, most int) LeaseTelling {
	l.number++
	of := LeaseTelling{Token: fmt.Sprint(l.epoch, ":worker"), Number: l.number, All: !l.told, Patience: time.Minute}
	for k := range l.of {
		switch {
		case k == limit:
		case l.told:
			continue
		case l.of[k].running == 0: // what is not told of all, it has no more
			l.of[k].uses = 0
			continue
		}
		keeps := l.of[k].running + rng.IntN(1+max(0, l.of[k].uses-l.of[k].running))
		l.of[k].uses = keeps
		of.Asks = append(of.Asks, LeaseAsk{Scope: fmt.Sprint("c:l:", k), Most: most, Keeps: keeps, Wants: rng.IntN(6), Weight: 1 + l.store.Number%3})
	}
	return of
}

// Partitions never run more together than a limit lets, whichever replies are lost, whichever tellings come late, and whoever leads by then.
// In the end each place is leased or free.
func TestLeasesModel(t *testing.T) {
	t.Parallel()
	seed := sample.SeedOf(t)
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		for round := range 30 {
			client.FlushAll(t.Context())
			rng := rand.New(rand.NewPCG(seed, uint64(round)))
			root, err := New(client, "push")
			if err != nil {
				t.Fatal(err)
			}
			const parts = 5
			most, all := 1+rng.IntN(12), make([]*tenure, parts)
			for k := range all {
				all[k] = &tenure{store: root.Partition(k, parts), epoch: 1}
			}
			var late []func() // tellings that have not arrived yet
			step := func(l *tenure) {
				limit := rng.IntN(len(l.of))
				of := &l.of[limit]
				switch n := rng.IntN(48); {
				case n == 0: // another leader, which reads what runs
					l.epoch++
					l.told = false
					for k := range l.of {
						l.of[k].uses = l.of[k].running
					}
				case n < 20:
					if of.running < of.uses {
						of.running++
					}
				case n < 26:
					of.running = max(0, of.running-1)
				default:
					said := l.telling(rng, limit, most)
					if rng.IntN(4) == 0 {
						late = append(late, func() { _, _ = l.store.Lease(t.Context(), said) }) // its reply reaches nobody
						return
					}
					leases, err := l.store.Lease(t.Context(), said)
					if err != nil {
						t.Fatalf("round %d: %v", round, err)
					}
					if rng.IntN(5) == 0 {
						return // the reply is lost
					}
					l.told = true
					for k, got := range leases {
						ask := said.Asks[k]
						if got.Places < ask.Keeps || got.Uses > got.Places {
							t.Fatalf("round %d: keeps %d, has %+v", round, ask.Keeps, got)
						}
						l.of[ask.Scope[len(ask.Scope)-1]-'0'].uses = min(got.Places, got.Uses)
					}
				}
			}
			for range 600 {
				step(all[rng.IntN(parts)])
				if n := len(late); n > 0 && rng.IntN(20) == 0 {
					k := rng.IntN(n)
					late[k]()
					late = slices.Delete(late, k, k+1)
				}
				for k := range all[0].of {
					runs := 0
					for _, l := range all {
						runs += l.of[k].running
					}
					if runs > most {
						t.Fatalf("round %d: %d run, of %d", round, runs, most)
					}
				}
			}
			for _, l := range all {
				if _, err := l.store.Lease(t.Context(), LeaseTelling{Token: fmt.Sprint(l.epoch+1, ":worker"), Number: 1, All: true}); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := root.LeasedPlaces(t.Context()); err != nil || len(left) > 0 {
				t.Errorf("round %d: nobody has the places %v", round, left)
			}
			if _, err := all[1].store.Lease(t.Context(), LeaseTelling{Token: "1:worker", Number: 1 << 40}); !errors.Is(err, ErrUntold) {
				t.Errorf("a leader of before tells of places: %v", err)
			}
		}
	})
}

// Who waits for places gets as many as its weight says, and of those that have as much who has waited longest. Whoever gives places back
// learns who may have them.
func TestLeasesAreFair(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		root, err := New(client, "push")
		if err != nil {
			t.Fatal(err)
		}
		var number int64
		ask := func(partition, most, keeps, wants, weight int) Lease {
			t.Helper()
			number++
			got, err := root.Partition(partition, 8).Lease(t.Context(), LeaseTelling{
				Token: "1:w", Number: number, Patience: time.Minute, Asks: []LeaseAsk{{Scope: "c:l:x", Most: most, Keeps: keeps, Wants: wants, Weight: weight}},
			})
			if err != nil {
				t.Fatal(err)
			}
			return got[0]
		}
		is := func(what string, got Lease, places, uses int, ring ...int) {
			t.Helper()
			if got.Places != places || got.Uses != uses || !slices.Equal(got.Ring, ring) {
				t.Errorf("%s: %+v, want %d, %d, %v", what, got, places, uses, ring)
			}
		}
		is("the first gets all that it wants", ask(0, 10, 0, 12, 1), 10, 10)
		is("the second waits, and the first learns of it", ask(1, 10, 0, 12, 4), 0, 0, 0)
		is("the first has too many", ask(0, 10, 10, 2, 1), 10, 3)
		is("what it gives back is the second's", ask(0, 10, 3, 9, 1), 3, 3, 1)
		is("who gets it", ask(1, 10, 0, 12, 4), 7, 7)
		is("a third one, of whom the second learns", ask(2, 10, 0, 1, 5), 0, 0, 0, 1)
		is("the limit is lowered", ask(1, 4, 7, 0, 4), 7, 1)
		is("nobody waits any more", ask(2, 10, 0, 0, 5), 0, 0)

		client.FlushAll(t.Context())
		for k := range 4 {
			ask(k, 1, 0, 1, 1)
		}
		is("the one place goes to who has waited longest", ask(0, 1, 1, 1, 1), 1, 0)
		is("then", ask(0, 1, 0, 1, 1), 0, 0, 1)
		is("not to another one", ask(2, 1, 0, 1, 1), 0, 0, 1)
		is("but to that", ask(1, 1, 0, 2, 1), 1, 1)
		is("which is the last in line for another one", ask(1, 1, 1, 1, 1), 1, 0)
	})
}

// What is lost of the sums, or cannot be read, is right again when all have told anew: no more is leased from then on than the limit lets, and
// nothing stays leased.
func TestLostLeases(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		for name, spoil := range map[string]func(){
			"the sums are gone":    func() { client.Del(t.Context(), "wc:{push}:places") },
			"a sum cannot be read": func() { client.HSet(t.Context(), "wc:{push}:places", "c:l:x", "what") },
			"a part cannot be read": func() {
				client.HSet(t.Context(), "wc:{push}:leased:0", "c:l:x", "what", "%number", "what")
			},
			"who waits cannot be read": func() { client.HSet(t.Context(), "wc:{push}:waiting:c:l:x", "7", "9 9 9", "x", "1 2 3 4 5") },
			"all is gone":              func() { client.FlushAll(t.Context()) },
		} {
			client.FlushAll(t.Context())
			root, err := New(client, "push")
			if err != nil {
				t.Fatal(err)
			}
			var number int64
			tell := func(partition, keeps, wants int) int {
				t.Helper()
				number++
				got, err := root.Partition(partition, 4).Lease(t.Context(), LeaseTelling{
					Token: "1:w", Number: number, Patience: time.Minute, Asks: []LeaseAsk{{Scope: "c:l:x", Most: 10, Keeps: keeps, Wants: wants}},
				})
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				return got[0].Places
			}
			if a, b := tell(0, 0, 6), tell(1, 0, 4); a != 6 || b != 4 {
				t.Fatalf("%s: %d and %d places of 10", name, a, b)
			}
			spoil()
			tell(0, 6, 0)
			tell(1, 4, 0)
			if n := tell(2, 0, 5); n > 0 {
				t.Errorf("%s: %d more places than 10", name, n)
			}
			tell(0, 0, 0)
			tell(1, 0, 0)
			if left, err := root.LeasedPlaces(t.Context()); err != nil || len(left) > 0 {
				t.Errorf("%s: nobody has the places %v, %v", name, left, err)
			}
		}
	})
}
