package queue_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Of three workers one cannot run anything for a minute and a half, then it can. The jobs that it gets run elsewhere at once, and no
// attempt counts; until it can, it gets some job now and then. It leads, or another one does.
func TestAWorkerThatCannotRunJobs(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for first, name := range []string{"leads", "does not lead"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
					Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}, User: []throttle.Rule{throttle.Window(1, time.Hour)},
				}}})
				well := time.Now().Add(90 * time.Second)
				var mu sync.Mutex
				var sent, own, attempts int
				var waits []time.Duration
				worker := func(ill bool) {
					stop := runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
						info, _ := queue.FromContext(ctx)
						mu.Lock()
						defer mu.Unlock()
						if ill && time.Now().Before(well) {
							sent++
							return queue.SendOn{For: 30 * time.Second, Err: errors.New("no way out")}
						}
						if ill {
							own++
						}
						attempts = max(attempts, info.Attempt)
						waits = append(waits, info.Waited)
						mu.Unlock()
						time.Sleep(time.Second) // so that all workers get jobs
						mu.Lock()
						return nil
					}), queue.WorkerConfig{Concurrency: 10})
					t.Cleanup(stop)
				}
				worker(first == 0)
				time.Sleep(time.Second)
				worker(first != 0)
				worker(false)
				time.Sleep(time.Second) // until all are in the fleet: before, nobody else could run what is sent on
				const n = 600
				for i := range n { // two minutes
					enqueue(t, client, queue.Job{Tenant: "a", User: fmt.Sprint(i), Type: "t", MaxAttempts: 1})
					time.Sleep(200 * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				late := 0
				for _, wait := range waits {
					if wait > 200*time.Millisecond {
						late++
					}
				}
				if len(waits) != n || attempts != 1 || late > 0 {
					t.Errorf("%d of %d jobs done, %d of them late, up to %d attempts", len(waits), n, late, attempts)
				}
				if sent < 3 || sent > 8 {
					t.Errorf("%d jobs sent on, want one for each half minute or two", sent)
				}
				if own < 30 {
					t.Errorf("it ran %d jobs when it was well again", own)
				}
			})
		})
	}
}

// A job that no worker can run is tried by another one once, and then it fails; a single worker goes on.
func TestNoWorkerCanRunAJob(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			var mu sync.Mutex
			starts := make(map[string][]bool) // by job, whether it was sent on
			done := 0
			for range workers {
				stop := runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
					info, _ := queue.FromContext(ctx)
					mu.Lock()
					defer mu.Unlock()
					if task.Type() == "fine" {
						done++
						return nil
					}
					starts[info.ID] = append(starts[info.ID], info.SentOn)
					return queue.SendOn{For: time.Hour, Err: queue.Retry{After: time.Minute, Cause: errors.New("no way out")}}
				}), queue.WorkerConfig{})
				t.Cleanup(stop)
			}
			for i := range 10 {
				enqueue(t, client, queue.Job{ID: fmt.Sprint("ill-", i), Tenant: "a", User: fmt.Sprint(i), Type: "ill", MaxAttempts: 2})
			}
			time.Sleep(10 * time.Second)
			enqueue(t, client, queue.Job{Tenant: "a", User: "x", Type: "fine"}) // nobody else is there for it
			time.Sleep(90 * time.Second)
			mu.Lock()
			defer mu.Unlock()
			if done != 1 || len(starts) != 10 {
				t.Errorf("%d workers: %d done, %d tried", workers, done, len(starts))
			}
			for id, sentOn := range starts {
				if fmt.Sprint(sentOn) != "[false true false true]" { // two attempts that count
					t.Errorf("%d workers: %s was tried %v", workers, id, sentOn)
				}
			}
		})
	}
}

// The leader cannot run anything, and the only place elsewhere is taken for long: what waits, waits without a busy leader, and the
// leader's own places count again when it has sat out.
func TestALeaderSitsOutWhileOthersAreFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var well atomic.Bool
		var done atomic.Int64
		leads := runWorker(t, client, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			if !well.Load() {
				return queue.SendOn{For: 10 * time.Second, Err: errors.New("the disk is full")}
			}
			done.Add(1)
			return nil
		}), queue.WorkerConfig{Concurrency: 10})
		t.Cleanup(leads)
		time.Sleep(time.Second)
		full := runWorker(t, client, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			time.Sleep(time.Minute)
			return nil
		}), queue.WorkerConfig{Concurrency: 1, ShutdownTimeout: 2 * time.Minute})
		t.Cleanup(full)
		time.Sleep(time.Second)
		for i := range 5 {
			enqueue(t, client, queue.Job{Tenant: "a", User: fmt.Sprint(i), Type: "t"})
			time.Sleep(100 * time.Millisecond)
		}
		well.Store(true)
		time.Sleep(9 * time.Second)
		if n := done.Load(); n > 0 {
			t.Errorf("%d jobs done while it sat out", n)
		}
		time.Sleep(3 * time.Second)
		if n := done.Load(); n != 4 { // the other worker has one
			t.Errorf("%d jobs done after that, want 4", n)
		}
	})
}
