package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// lateHand is a hook under which what the leader tells comes late.
type lateHand struct{ by time.Duration }

func (h lateHand) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h lateHand) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h lateHand) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && cmd.Name() == "blpop" {
			time.Sleep(h.by)
		}
		return err
	}
}

// A worker that stops while a job of it that came late waits for another slot leaves the job to
// others, and at once.
func TestAStoppingWorkerReturnsItsLateJobs(t *testing.T) {
	for _, after := range []time.Duration{50, 105, 150, 199, 210, 250} {
		t.Run(fmt.Sprint(after*time.Millisecond), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				client, mine := redistest.MiniClient(t, server), redistest.MiniClient(t, server)
				mine.AddHook(lateHand{100 * time.Millisecond})
				var first recorder
				first.then = func(_ context.Context, info queue.Info) error {
					if info.ID == "busy" {
						time.Sleep(5 * time.Second)
					}
					return nil
				}
				runWorker(t, client, &first, queue.WorkerConfig{Concurrency: 1})
				time.Sleep(3 * time.Second)
				var second recorder
				stop := runWorker(t, mine, &second, queue.WorkerConfig{Concurrency: 10})
				time.Sleep(3 * time.Second)
				enqueue(t, client, named("busy", "u"))
				time.Sleep(time.Second)
				enqueue(t, client, named("late", "v"))
				time.Sleep(after * time.Millisecond)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > time.Second {
					t.Errorf("the worker stopped in %v", took)
				}
				time.Sleep(5 * time.Second)
				if n := first.count() + second.count(); n != 2 {
					t.Errorf("%d starts of 2 jobs when the worker has stopped", n)
				}
			})
		})
	}
}
