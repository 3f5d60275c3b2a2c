package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// The leak of a tenant, or of a queue with partitions, grows when hours open, and once more after a pause that is longer than the ramp: a
// tenth of the rate at first, half of it and a bit in the middle.
func TestALeakGrowsWhereItReturns(t *testing.T) {
	t.Parallel()
	rules := []throttle.Rule{throttle.Leak(50, time.Second).Ramping(20 * time.Second), throttle.Hours("00:05-23:00", "", "UTC")}
	for name, of := range map[string]struct {
		policies queue.Policies
		tenants  int
		pause    queue.Pause
	}{
		"of a tenant":              {policies(queue.Policy{Tenant: rules}), 1, queue.Pause{Scope: queue.ScopeTenant, Tenant: "t0"}},
		"of a queue in partitions": {queue.Policies{Partitions: 4, Queue: rules}, 20, queue.Pause{Scope: queue.ScopeQueue}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testGrows(t, of.policies, of.tenants, of.pause)
		})
	}
}

func testGrows(t *testing.T, policies queue.Policies, tenants int, pause queue.Pause) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		must(t, inspector.SetPolicies(t.Context(), policies))
		const jobs = 4000
		for n := range jobs / 100 {
			batch := make([]queue.Job, 100)
			for i := range batch {
				batch[i] = queue.Job{Tenant: fmt.Sprint("t", i%tenants), User: fmt.Sprint("u", (100*n+i)%700), Type: "x"}
			}
			enqueue(t, client, batch...)
		}
		var got recorder
		opens := time.Now().Truncate(24 * time.Hour).Add(5 * time.Minute)
		time.Sleep(time.Until(opens.Add(-time.Minute)))
		runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 100})
		time.Sleep(time.Until(opens.Add(30 * time.Second)))
		pause.For = 30 * time.Second
		must(t, inspector.Pause(t.Context(), pause))
		paused := time.Now().Add(30 * time.Second)
		time.Sleep(time.Minute)
		for name, from := range map[string]time.Time{"hours open": opens, "a pause ends": paused} {
			for second, share := range map[int]float64{0: 0.1 + 0.9*1/20, 9: 0.1 + 0.9*10/20, 18: 0.1 + 0.9*19/20, 24: 1} {
				n := 0
				for _, s := range got.all() {
					if at := s.Started.Sub(from) - time.Duration(second)*time.Second; at >= 0 && at < 2*time.Second {
						n++
					}
				}
				if want := 100 * share; float64(n) < 0.95*want-1 || float64(n) > 1.05*want+1 {
					t.Errorf("%s: %d start in the 2 s from second %d on, want %.0f", name, n, second, want)
				}
			}
		}
	})
}

// Receipts and explanations expect a job behind others when a ramp lets it start, whether the ramp begins with them or is under way; a
// simulation of the same jobs starts them at the same instants.
func TestEstimatesKnowRamps(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		p := policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(50, time.Second).Ramping(time.Minute)}})
		setPolicies(t, client, p)
		offered := jobs("t", "u", 600)
		for k := range offered {
			offered[k].ID = fmt.Sprint("j", k)
		}
		began := time.Now()
		receipts := enqueue(t, client, offered...)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 100})
		time.Sleep(20 * time.Second)
		state, _, err := inspector.ExplainJob(t.Context(), "j500")
		must(t, err)
		time.Sleep(30 * time.Second)
		starts := got.all()
		if len(starts) != 600 {
			t.Fatalf("%d have started", len(starts))
		}
		var offers []simulate.Offer
		for _, job := range offered {
			offers = append(offers, simulate.Offer{At: began, Job: job})
		}
		simulated, err := simulate.Run(simulate.Config{Policies: p}, offers)
		must(t, err)
		for _, k := range []int{0, 1, 10, 100, 300, 599} {
			expected, took := receipts[k].Start.Sub(began), starts[k].Slot.Sub(began)
			if d := expected - took; d < -took/20-100*time.Millisecond || d > took/20+100*time.Millisecond {
				t.Errorf("job %d is expected %v after its offer, and starts after %v", k, expected, took)
			}
			if d := simulated[k].Slot.Sub(began) - took; d < -100*time.Millisecond || d > 100*time.Millisecond {
				t.Errorf("job %d starts after %v, and %v later in a simulation", k, took, d)
			}
		}
		if d := state.Estimate.Start.Sub(starts[500].Slot); d < -time.Second || d > time.Second {
			t.Errorf("on its way, job 500 is expected %v after it starts", d)
		}
	})
}
