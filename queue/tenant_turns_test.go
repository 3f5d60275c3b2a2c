package queue_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func TestTenantsTakeTurnsUnderOverload(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	tests := map[string]struct {
		rules  []throttle.Rule // of the queue
		places int
		handle time.Duration
	}{
		"the queue's rule binds": {[]throttle.Rule{throttle.Leak(10, time.Second)}, 100, 0},
		"all places are taken":   {nil, 4, 100 * time.Millisecond},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, queue.Policies{
					Queue: test.rules, Default: "big",
					Policies: map[string]queue.Policy{"big": leakOf(300), "small": leakOf(100)},
					Tenants:  map[string]string{"small": "small"},
				})
				for user := range 10 {
					enqueue(t, client, jobs("big", fmt.Sprint(user), 50)...)
					enqueue(t, client, jobs("small", fmt.Sprint(user), 50)...)
				}
				got := recorder{then: func(context.Context, queue.Info) error {
					time.Sleep(test.handle)
					return nil
				}}
				runWorker(t, client, &got, queue.WorkerConfig{Concurrency: test.places})
				time.Sleep(10 * time.Second)
				per := map[string]int{}
				for _, s := range got.all() {
					per[s.Tenant]++
				}
				const turn = 8 // jobs
				if diff := per["big"] - per["small"]; diff > turn || diff < -turn || per["big"] < 49-turn/2 {
					t.Errorf("started %v, want as many of each", per)
				}
			})
		})
	}
}

// Where places are short a tenant gets as many starts as its weight says, for one of a
// tenant without one, and what it leaves goes to the others. A new weight governs at once.
func TestWeights(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		weighted := func(weight int) queue.Policies {
			return queue.Policies{
				Default: "standard", Tenants: map[string]string{"premium": "premium"},
				Policies: map[string]queue.Policy{"standard": {}, "premium": {Weight: weight}},
			}
		}
		setPolicies(t, s.client, weighted(4))
		for user := range 10 {
			enqueue(t, s.client, jobs("premium", fmt.Sprint(user), 80)...)
			enqueue(t, s.client, jobs("school", fmt.Sprint(user), 80)...)
		}
		got := recorder{then: func(context.Context, queue.Info) error {
			<-time.After(10 * time.Millisecond)
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{Concurrency: 2})
		share := func(from, to int) (premium int) {
			s.eventually(t, fmt.Sprint(to, " starts"), func() bool { return len(got.all()) >= to })
			for _, start := range got.all()[from:to] {
				if start.Tenant == "premium" {
					premium++
				}
			}
			return premium
		}
		if n := share(0, 200); n < 155 || n > 165 {
			t.Errorf("%d of 200 starts are those of the tenant of weight 4, want 160", n)
		}
		setPolicies(t, s.client, weighted(1))
		from := len(got.all()) + 20
		if n := share(from, from+200); n < 90 || n > 110 {
			t.Errorf("%d of 200 starts are those of a tenant of weight 1, want 100", n)
		}
	})
}

// A tenant with a flood delays nobody: neither another tenant nor, for a user with many
// jobs, another user of the tenant.
func TestAFloodDelaysNobodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(50, time.Second)},
			User:   []throttle.Rule{throttle.Spacing(200 * time.Millisecond)},
		}))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		enqueue(t, client, jobs("noisy", "flood", 1500)...)
		for i := range 20 {
			time.Sleep(time.Second)
			enqueue(t, client, jobs("noisy", fmt.Sprint("other-", i), 1)...)
			enqueue(t, client, jobs("quiet", fmt.Sprint("user-", i), 1)...)
		}
		time.Sleep(time.Second)
		for _, s := range got.all() {
			bound := map[string]time.Duration{"quiet": time.Millisecond, "noisy": 45 * time.Millisecond}[s.Tenant]
			if s.User != "flood" && s.Waited > bound {
				t.Errorf("%s of %s waited %v behind the flood", s.User, s.Tenant, s.Waited)
			}
		}
	})
}

// Users of one batch start in the order of the batch.
func TestABatchKeepsItsOrder(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(500, time.Second)}}))
		var batch []queue.Job
		var want []string
		for i := range 60 {
			want = append(want, fmt.Sprint("u", i*37%60))
			batch = append(batch, queue.Job{Tenant: "school", User: want[i], Type: "push"})
		}
		var got recorder
		metrics := prometheus.NewRegistry()
		runWorker(t, s.client, &got, queue.WorkerConfig{Registerer: metrics})
		enqueue(t, s.client, jobs("school", "first", 1)...)
		s.eventually(t, "the first has started", func() bool { return got.count() == 1 })
		place := make(map[string]int) // of each user in the batch
		for i, user := range want {
			place[user] = i
		}
		var order []int
		var late float64
		for range 200 {
			// A busy machine makes jobs late, which get slots after those of others then. Where many are late, the batch is offered once more.
			before, lates := got.count(), gathered(t, metrics, "waterclock_late_starts_total")
			enqueue(t, s.client, batch...)
			s.eventually(t, "all have started", func() bool { return got.count() == before+60 })
			starts := got.all()[before:]
			slices.SortStableFunc(starts, func(a, b queue.Info) int { return a.Slot.Compare(b.Slot) })
			order = nil
			for _, info := range starts {
				order = append(order, place[info.User])
			}
			if late = gathered(t, metrics, "waterclock_late_starts_total") - lates; late < 20 {
				break
			}
		}
		if late >= 20 || s.virtual && late > 0 {
			t.Fatalf("%v of 60 starts were late", late)
		}
		if n := longestRun(order); n < 60-int(late) {
			t.Fatalf("%d of 60 have their slots in the order of the batch, and %v were late: %v", n, late, order)
		}
	})
}

// longestRun returns how many numbers stay if as few as possible are taken out so that they ascend.
func longestRun(numbers []int) int {
	var least []int // least[i] is the smallest number that ends an ascending run of i+1
	for _, n := range numbers {
		if i, _ := slices.BinarySearch(least, n); i < len(least) {
			least[i] = n
		} else {
			least = append(least, n)
		}
	}
	return len(least)
}
