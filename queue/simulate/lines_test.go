package simulate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// Lanes that wait in the line of a limit, and whose users' rules let them start a moment after the limit does, do not take turns in
// being looked at for ever.
func TestLanesThatAreNotReady(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 1))
		begin := time.Date(2026, time.November, 28, 0, 0, 0, 0, time.UTC)
		at, offers := begin, []simulate.Offer(nil)
		for n, k := range r.Perm(400) {
			if n%8 == 0 {
				at = begin.Add(time.Duration(r.IntN(3000)) * time.Microsecond)
			}
			tenant := fmt.Sprint("school-", k%20)
			offers = append(offers, simulate.Offer{At: at, Job: queue.Job{
				Tenant: tenant, User: fmt.Sprint("u", k%40), Type: "push", Keys: map[string]string{"domain": fmt.Sprintf("d%d.com", k%3)},
			}})
		}
		results, err := simulate.Run(simulate.Config{Policies: queue.Policies{
			Default: "p", Policies: map[string]queue.Policy{"p": {
				Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}, User: []throttle.Rule{throttle.Window(5, 2*time.Second)},
			}},
			Limits: map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Leak(100, time.Second)}}},
		}}, offers)
		if err != nil {
			t.Fatal(err)
		}
		last := begin
		for _, r := range results {
			if r.Slot.After(last) {
				last = r.Slot
			}
		}
		if took := last.Sub(begin); took > 4*time.Second {
			t.Errorf("seed %d: the last start after %v", seed, took)
		}
	}
}
