package queue_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// The simulation agrees with a queue, slot for slot. Where two users of a tenant are due
// within the lead, a queue may have decided about one before it heard of the other; a swap of
// two moves those behind them: so a few may differ.
func TestSimulationAgrees(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := policies(queue.Policy{
			Tenant:   []throttle.Rule{throttle.Leak(20, time.Second)},
			User:     []throttle.Rule{throttle.Window(3, 10*time.Second), throttle.Spacing(time.Second)},
			Capacity: 150, MaxWait: 20 * time.Second,
		})
		client := redistest.Mini(t)
		setPolicies(t, client, p)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 1000})
		time.Sleep(time.Second)
		r := rand.New(rand.NewPCG(1, 2))
		var offered []queue.Offered
		fates := make(map[string]queue.Reason)
		for i := range 2000 {
			job := queue.Job{ID: fmt.Sprint(i), Tenant: fmt.Sprint("t", r.IntN(3)), User: fmt.Sprint("u", r.IntN(40)), Type: "push"}
			if i%50 == 0 {
				time.Sleep(time.Duration(r.IntN(3000)) * time.Millisecond)
			}
			time.Sleep(time.Duration(1+r.IntN(5)) * time.Millisecond)
			offered = append(offered, queue.Offered{At: time.Now(), Job: job})
			for _, receipt := range enqueue(t, client, job) {
				fates[receipt.ID] = receipt.Reason
			}
		}
		time.Sleep(5 * time.Minute)
		drops, err := newInspector(t, client, "push").Drops(t.Context(), 10_000)
		must(t, err)
		for _, d := range drops {
			fates[d.ID] = d.Reason
		}
		slots := make(map[string]time.Time)
		for _, s := range got.all() {
			slots[s.ID] = s.Slot
		}
		simulated, err := queue.Simulate(queue.Simulation{Policies: p}, offered)
		must(t, err)
		differ, dropped := 0, 0
		for _, s := range simulated {
			if s.Reason != "" {
				dropped++
			}
			if s.Reason != fates[s.ID] || s.Slot.Sub(slots[s.ID]).Abs() > 2*time.Millisecond {
				if differ++; differ < 10 {
					t.Logf("%s of %s / %s offered at %v: simulated %q at %v, was %q at %v", s.ID, s.Tenant, s.User, s.At, s.Reason, s.Slot, fates[s.ID], slots[s.ID])
				}
			}
		}
		t.Logf("%d jobs, %d dropped, %d differ", len(simulated), dropped, differ)
		if differ > len(simulated)/20 {
			t.Errorf("%d of %d differ", differ, len(simulated))
		}
		if dropped == 0 || dropped == len(simulated) {
			t.Errorf("%d dropped: the test shows nothing", dropped)
		}
	})
}
