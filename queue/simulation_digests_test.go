package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// The simulation agrees with a queue about digests: who starts together, and when.
func TestSimulationOfDigestsAgrees(t *testing.T) {
	t.Parallel()
	for name, digest := range map[string]queue.Digest{
		"due at once":           {},
		"small":                 {Max: 3},
		"that wait":             {Wait: 4300 * time.Millisecond, Max: 20},
		"that wait for silence": {Wait: 7 * time.Second, Idle: 1900 * time.Millisecond, Max: 4},
		"by the clock":          {At: "00:02", Zone: "user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := policies(queue.Policy{
				User:     []throttle.Rule{throttle.Window(3, 10007*time.Millisecond), throttle.Spacing(1013 * time.Millisecond)},
				Capacity: 24, MaxWait: 6100 * time.Millisecond, Digest: digest,
			})
			agrees(t, p, digestBursts(), 5)
		})
	}
}

// digestBursts is a minute and a half of offers, most of which have digest keys. Each comes longer after the one before than a queue
// decides ahead: which of two offers of one instant is decided first is open, and who joins a digest depends on it.
func digestBursts() (all []burst) {
	r, n := rand.New(rand.NewPCG(15, 2)), 0
	at := time.Date(2000, 1, 1, 0, 0, 1, 0, time.UTC) // when the first one comes, in a bubble
	for range 45 {
		after := time.Duration(1+r.IntN(3)) * time.Second
		for range 1 + int(r.ExpFloat64()*12) {
			at = at.Add(after)
			j := queue.Job{ID: fmt.Sprint(n), Tenant: fmt.Sprint("t", r.IntN(2)), User: fmt.Sprint("u", r.IntN(12)), Type: "push", Cost: 1 + r.IntN(2)}
			if r.IntN(5) > 0 {
				j.DigestKey = fmt.Sprint("k", r.IntN(2))
			}
			if r.IntN(10) == 0 {
				j.Priority = queue.High
			}
			if r.IntN(4) == 0 {
				j.StartBy = at.Add(2300 * time.Millisecond)
			}
			all = append(all, burst{after, []queue.Job{j}})
			after = 23 * time.Millisecond
			n++
		}
	}
	return all
}
