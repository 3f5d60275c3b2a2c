package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A neighbourhood is a queue on a Redis of its own, with two workers, in real time and at full size: there is a tenant that is
// quiet, and one that is not.
type neighbourhood struct {
	t      *testing.T
	client *redis.Client

	mu      sync.Mutex
	offered map[string]time.Time
	waits   []time.Duration // of the quiet tenant's jobs, from offer to handler, by the machine's clock
}

// handle notes when the quiet tenant's jobs start; what becomes of the others is up to the scene.
func (n *neighbourhood) handle(loud func(info queue.Info) error) func(context.Context, queue.Info) error {
	return func(_ context.Context, info queue.Info) error {
		if info.Tenant != "quiet" {
			return loud(info)
		}
		n.mu.Lock()
		defer n.mu.Unlock()
		n.waits = append(n.waits, time.Since(n.offered[info.ID]))
		return nil
	}
}

// loud offers so many jobs of the other tenant, a thousand at a time.
func (n *neighbourhood) loud(jobs int, of func(i int) queue.Job) {
	n.t.Helper()
	var batch []queue.Job
	for i := range jobs {
		job := of(i)
		job.Type = "push"
		batch = append(batch, job)
		if len(batch) == 1000 || i == jobs-1 {
			enqueue(n.t, n.client, batch...)
			batch = batch[:0]
		}
	}
}

// quiet offers a job of the quiet tenant every 10 ms for a time.
func (n *neighbourhood) quiet(during time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		id := fmt.Sprint("quiet-", time.Now().UnixNano())
		n.mu.Lock()
		n.offered[id] = time.Now()
		n.mu.Unlock()
		enqueue(n.t, n.client, queue.Job{ID: id, Tenant: "quiet", User: id, Type: "push"})
	}
	redistest.Eventually(n.t, 10*time.Second, "every job of the quiet tenant has started", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.waits) == len(n.offered)
	})
}

// ofUsers returns jobs of the loud tenant, one for each user.
func ofUsers(i int) queue.Job { return queue.Job{Tenant: "loud", User: fmt.Sprint("u", i)} }

// Whatever a tenant does, others do not wait for it for longer than some milliseconds, and no script keeps Redis busy for more
// than ten. It is measured on a machine with nothing else to do.
func TestNeighboursAtFullSize(t *testing.T) {
	sample.WholeOnly(t)
	never := []throttle.Rule{throttle.Leak(1, time.Hour)}
	again := func(err error) func(queue.Info) error { return func(queue.Info) error { return err } }
	fine := again(nil)
	for name, scene := range map[string]struct {
		policy queue.Policy
		loud   func(info queue.Info) error
		before func(n *neighbourhood) // before anybody looks
		act    func(n *neighbourhood)
	}{
		"calm": {loud: fine, act: func(*neighbourhood) {}},
		"drops the oldest of 10,000 lanes": {
			policy: queue.Policy{Tenant: never, Capacity: 10_000, DropOldest: true}, loud: fine,
			before: func(n *neighbourhood) { n.loud(10_001, ofUsers) },
			act:    func(n *neighbourhood) { n.loud(5000, func(i int) queue.Job { return ofUsers(20_000 + i) }) },
		},
		"50,000 jobs for one instant": {
			loud: fine,
			before: func(n *neighbourhood) {
				at := time.Now().Add(8 * time.Second)
				n.loud(50_000, func(i int) queue.Job { return queue.Job{Tenant: "loud", User: fmt.Sprint("u", i), NotBefore: at} })
				time.Sleep(time.Until(at) - time.Second)
			},
			act: func(*neighbourhood) {},
		},
		"60,000 tenants come to rest": {
			loud: fine,
			act: func(n *neighbourhood) {
				n.loud(60_000, func(i int) queue.Job { return queue.Job{Tenant: fmt.Sprint("t", i), User: "u"} })
			},
		},
		"50,000 users with one job each": {
			policy: queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}}, loud: fine,
			act: func(n *neighbourhood) { n.loud(50_000, ofUsers) },
		},
		"a window of a million": {
			policy: queue.Policy{Tenant: []throttle.Rule{throttle.Window(1_000_000, 24*time.Hour)}}, loud: fine,
			act: func(n *neighbourhood) { n.loud(60_000, ofUsers) },
		},
		"fails in loops":   {loud: again(queue.Retry{After: time.Millisecond, Cause: errors.New("no")}), act: func(n *neighbourhood) { n.loud(200, ofUsers) }},
		"yields in loops":  {loud: again(queue.Retry{After: time.Millisecond, Yield: true}), act: func(n *neighbourhood) { n.loud(200, ofUsers) }},
		"refunds in loops": {loud: again(queue.RefundUser{Err: queue.Retry{After: time.Millisecond}}), act: func(n *neighbourhood) { n.loud(200, ofUsers) }},
		"pauses in loops":  {loud: again(queue.Pause{Scope: queue.ScopeUser, For: time.Millisecond}), act: func(n *neighbourhood) { n.loud(200, ofUsers) }},
	} {
		t.Run(name, func(t *testing.T) {
			n := &neighbourhood{t: t, client: redistest.Start(t).Client(t), offered: make(map[string]time.Time)}
			setPolicies(t, n.client, queue.Policies{Policies: map[string]queue.Policy{"loud": scene.policy}, Tenants: map[string]string{"loud": "loud"}})
			got := recorder{then: n.handle(scene.loud)}
			for range 2 {
				runWorker(t, n.client, &got, queue.WorkerConfig{RetryDelay: after(time.Millisecond)})
			}
			if scene.before != nil {
				scene.before(n)
			}
			time.Sleep(2 * time.Second)
			must(t, n.client.ConfigSet(t.Context(), "slowlog-log-slower-than", "10000").Err())
			must(t, n.client.Do(t.Context(), "slowlog", "reset").Err())
			var acting sync.WaitGroup
			acting.Go(func() { scene.act(n) })
			n.quiet(4 * time.Second)
			acting.Wait()
			slices.Sort(n.waits)
			at := func(percent int) time.Duration {
				return n.waits[min(len(n.waits)*percent/100, len(n.waits)-1)].Round(100 * time.Microsecond)
			}
			slow, err := n.client.SlowLogGet(t.Context(), 100).Result()
			must(t, err)
			t.Logf("%s: %d quiet jobs, p50 %v, p99 %v, the last %v; %d scripts above 10 ms", name, len(n.waits), at(50), at(99), at(100), len(slow))
			for _, entry := range slow {
				t.Logf("%v: %.150q", entry.Duration, entry.Args)
			}
			if at(99) > 100*time.Millisecond || len(slow) > 0 {
				t.Error("others feel it")
			}
		})
	}
}
