package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// All jobs of a large worker, which leads, come back at one instant, since their provider is away. All of them run again,
// and nobody else waits for that.
func TestAllJobsOfALargeLeaderComeBack(t *testing.T) {
	t.Parallel()
	for _, n := range sample.Draw(t, []int64{4500, 9000}, 0, 1) {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			client := redistest.Start(t).Client(t)
			var first, again, beside atomic.Int64
			all := make(chan struct{})
			handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				info, _ := queue.FromContext(ctx)
				switch {
				case info.User == "bystander":
					beside.Add(1)
					return nil
				case first.Load() == n: // the others come back
					again.Add(1)
					return nil
				}
				if first.Add(1) == n {
					close(all)
				}
				<-all
				return queue.Pause{Scope: queue.ScopeUser, For: time.Second}
			})
			runWorker(t, client, handler, queue.WorkerConfig{Concurrency: int(n) + 100})
			for i := int64(0); i < n; i += 100 {
				batch := make([]queue.Job, 100)
				for k := range batch {
					batch[k] = queue.Job{Tenant: "t", User: fmt.Sprint("u", i+int64(k)), Type: "push"}
				}
				enqueue(t, client, batch...)
			}
			select {
			case <-all:
			case <-time.After(time.Minute):
				t.Fatalf("%d of %d jobs run", first.Load(), n)
			}
			enqueue(t, client, queue.Job{Tenant: "other", User: "bystander", Type: "push"})
			redistest.Eventually(t, 5*time.Second, "a job of another tenant runs", func() bool { return beside.Load() == 1 })
			redistest.Eventually(t, 30*time.Second, "all have run again", func() bool { return again.Load() == n })
		})
	}
}
