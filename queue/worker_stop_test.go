package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
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
	t.Parallel()
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
				stop := runWorker(t, hooked{mine}, &second, queue.WorkerConfig{Concurrency: 10})
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

// A handler whose context ends with its worker has used no attempt, be it the last one: the job
// waits at the front of its lane and runs again elsewhere at once.
func TestAStopUsesNoAttempt(t *testing.T) {
	t.Parallel()
	for _, attempts := range []int{1, 3} {
		for _, other := range []string{"before", "after"} { // when another worker comes, which may lead
			for name, then := range sample.Cases(t, map[string]func(error) error{
				"an error": func(err error) error { return err },
				"refunded": func(err error) error { return queue.RefundUser{Err: err} },
				"retried":  func(err error) error { return queue.Retry{After: time.Hour, Cause: err} },
				"a panic":  func(err error) error { panic(err) },
			}, 0, 2) {
				t.Run(fmt.Sprintf("%d attempts, the other worker %s, %s", attempts, other, name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { interrupt(t, attempts, other, then) })
				})
			}
		}
	}
}

func interrupt(t *testing.T, attempts int, other string, then func(error) error) {
	client := redistest.Mini(t)
	stopped := recorder{then: func(ctx context.Context, _ queue.Info) error {
		<-ctx.Done()
		return then(ctx.Err())
	}}
	// Its next worker fails it, so that its attempts are counted to the end.
	next := recorder{then: func(_ context.Context, info queue.Info) error {
		if info.ID == "first" {
			return errors.New("no")
		}
		return nil
	}}
	setPolicies(t, client, policies(queue.Policy{UserConcurrency: queue.Concurrency{Jobs: 1}}))
	stop := runWorker(t, client, &stopped, queue.WorkerConfig{Concurrency: 1, ShutdownTimeout: time.Second})
	enqueue(t, client, named("first", "u", func(j *queue.Job) { j.MaxAttempts = attempts }), named("second", "u"))
	time.Sleep(time.Second)
	begin := func() {
		runWorker(t, client, &next, queue.WorkerConfig{RetryDelay: after(time.Minute)})
		time.Sleep(100 * time.Millisecond)
	}
	if other == "before" {
		begin()
	}
	stop()
	if other == "after" {
		if s := stats(t, client); s.Waiting != 2 || s.Failed+s.Dead+s.Later+s.Running != 0 {
			t.Errorf("when the worker has stopped: %+v", s)
		}
		begin()
	}
	time.Sleep(100 * time.Millisecond)
	if starts := next.all(); stopped.count() != 1 || len(starts) == 0 || starts[0].ID != "first" || starts[0].Attempt != 1 {
		t.Fatalf("%d starts before the stop, after it %+v, want the interrupted job at once, in attempt 1", stopped.count(), next.all())
	}
	time.Sleep(10 * time.Minute)
	runs := 0
	for _, start := range next.all() {
		if start.ID == "first" {
			runs++
		}
	}
	if s := stats(t, client); runs != attempts || s.Dead != 1 || s.Done != 1 || s.Failed != int64(attempts) {
		t.Errorf("%d attempts after the stop, want %d; %+v", runs, attempts, s)
	}
}

// A handler that gives its job up while the worker stops means it.
func TestAStopKeepsTheLastWord(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := recorder{then: func(ctx context.Context, _ queue.Info) error {
			<-ctx.Done()
			return fmt.Errorf("refused: %w", asynq.SkipRetry)
		}}
		stop := runWorker(t, client, &got, queue.WorkerConfig{ShutdownTimeout: time.Second})
		enqueue(t, client, named("", "u"))
		time.Sleep(time.Second)
		stop()
		if s := stats(t, client); s.Dead != 1 || s.Waiting+s.Running+s.Later != 0 {
			t.Errorf("%+v, want it dead", s)
		}
	})
}
