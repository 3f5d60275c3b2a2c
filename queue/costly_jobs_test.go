package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A costly job, and its tenant with it, gets its turn where another tenant's small jobs
// would use up the queue's rule for ever: under a rule of any kind.
func TestACostlyJobIsNotStarved(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]throttle.Rule{
		"window": throttle.Window(10, time.Second), "fixed_window": throttle.FixedWindow(10, time.Second),
		"sliding_counter": throttle.SlidingCounter(10, time.Second, 2),
		"token_bucket":    throttle.TokenBucket(10, time.Second, 10), "leak": throttle.Leak(10, time.Second),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, queue.Policies{
					Queue:    []throttle.Rule{rule},
					Policies: map[string]queue.Policy{"flood": leakOf(20)}, Tenants: map[string]string{"flood": "flood"},
				})
				var mu sync.Mutex
				waited := make(map[string]time.Duration)
				runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					info, _ := queue.FromContext(ctx)
					mu.Lock()
					defer mu.Unlock()
					if info.Tenant == "school" {
						waited[info.User] = info.Waited
					}
					return nil
				}), queue.WorkerConfig{})
				for i := range 20 {
					enqueue(t, client, jobs("flood", fmt.Sprint(i), 100)...)
				}
				time.Sleep(5 * time.Second)
				enqueue(t, client, queue.Job{Tenant: "school", User: "big", Type: "push", Cost: 5})
				time.Sleep(10 * time.Millisecond)
				for i := range 5 {
					enqueue(t, client, jobs("school", fmt.Sprint("small-", i), 1)...)
				}
				time.Sleep(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				for user, wait := range waited {
					if wait > 5*time.Second {
						t.Errorf("%s waited %v", user, wait)
					}
				}
				if len(waited) != 6 {
					t.Errorf("%d of 6 jobs started beside the flood", len(waited))
				}
			})
		})
	}
}
