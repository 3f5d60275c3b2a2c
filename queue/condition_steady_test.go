package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// The condition of a queue in a steady state is one word, at whatever instant one looks: also where the leader needs some
// time to start what a limit has just let go.
func TestTheConditionIsSteady(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	leak, spacing := []throttle.Rule{throttle.Leak(50, time.Second)}, []throttle.Rule{throttle.Spacing(130 * ms)}
	one := queue.Concurrency{Jobs: 1}
	for name, c := range sample.Cases(t, map[string]struct {
		users  int // of each tenant
		policy queue.Policy
		takes  time.Duration // a job
		places int
		way    time.Duration // to Redis, and back
		want   watch.Condition
	}{
		"a leak":                       {5, queue.Policy{Tenant: leak}, 0, 1000, 15 * ms, watch.Throttled},
		"a spacing of users":           {5, queue.Policy{User: spacing}, 0, 1000, 15 * ms, watch.Throttled},
		"one at a time":                {5, queue.Policy{UserConcurrency: one}, 30 * ms, 1000, 15 * ms, watch.Throttled},
		"one at a time, and short":     {5, queue.Policy{UserConcurrency: one}, 0, 1000, 15 * ms, watch.Throttled},
		"a share of the places":        {100, queue.Policy{TenantConcurrency: queue.Concurrency{Percent: 1}, UserConcurrency: one}, 100 * ms, 1000, 15 * ms, watch.Throttled},
		"no limit":                     {5, queue.Policy{}, 0, 10000, 50 * ms, watch.Flowing},
		"no limit, few places":         {5, queue.Policy{}, 20 * ms, 3, 0, watch.Starved},
		"one at a time and few places": {5, queue.Policy{UserConcurrency: one}, 100 * ms, 3, 0, watch.Starved},
	}, 0, 3) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				client := redistest.MiniClient(t, server)
				away := &road{there: c.way, back: c.way}
				setPolicies(t, client, policies(c.policy))
				for tenant := range 5 {
					for user := range c.users {
						enqueue(t, client, jobs(fmt.Sprint("t", tenant), fmt.Sprint("u", user), 2000/c.users)...)
					}
				}
				slow := recorder{then: func(ctx context.Context, info queue.Info) error {
					select {
					case <-ctx.Done():
					case <-time.After(c.takes + c.takes*time.Duration(info.Started.UnixMicro()%7)/7): // out of step
					}
					return nil
				}}
				runWorker(t, away.client(t, server), &slow, queue.WorkerConfig{Concurrency: c.places})
				time.Sleep(3 * time.Second) // until the worker leads that is far from Redis
				w := newWatcher(t, client, "push")
				seen := make(map[watch.Condition]int)
				for range 100 {
					time.Sleep(37*time.Millisecond + 113*time.Microsecond)
					h, err := w.Health(t.Context())
					must(t, err)
					seen[h.Condition]++
				}
				if n := stats(t, client).Waiting; n < 1000 || seen[c.want] != 100 {
					t.Errorf("of 100 looks: %v, and %d jobs wait; want %s", seen, n, c.want)
				}
			})
		})
	}
}
