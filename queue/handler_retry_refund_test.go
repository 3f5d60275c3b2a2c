package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A handler may know better than RetryDelay how long to wait, be it longer or shorter.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			switch info.Attempt {
			case 1:
				return queue.Retry{After: 30 * time.Second, Cause: errors.New("busy")}
			case 2:
				return queue.Retry{After: time.Millisecond}
			}
			return nil
		}}
		runWorker(t, client, &got, queue.WorkerConfig{RetryDelay: after(time.Second)})
		enqueue(t, client, jobs("school", "teacher", 1)...)
		time.Sleep(time.Minute)
		starts := got.all()
		if len(starts) != 3 {
			t.Fatalf("%d attempts, want 3", len(starts))
		}
		for i, want := range []time.Duration{30 * time.Second, time.Millisecond} {
			if gap := starts[i+1].Started.Sub(starts[i].Started); gap < want || gap > want+5*time.Millisecond {
				t.Errorf("attempt %d came %v after the one before, want %v", i+2, gap, want)
			}
		}
	})
}

// A failed attempt that does not count leaves the job its attempts, the last one too.
func TestUncountedRetry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		calls := 0
		got := recorder{then: func(context.Context, queue.Info) error {
			calls++
			return queue.Retry{After: time.Second, Uncounted: calls != 3, Cause: errors.New("not yet")}
		}}
		runWorker(t, client, &got, queue.WorkerConfig{})
		job := jobs("school", "teacher", 1)
		job[0].MaxAttempts = 2
		enqueue(t, client, job...)
		time.Sleep(5500 * time.Millisecond)
		var attempts []int
		for _, start := range got.all() {
			attempts = append(attempts, start.Attempt)
		}
		if want := []int{1, 1, 1, 2, 2, 2}; !slices.Equal(attempts, want) {
			t.Errorf("the numbers of the attempts are %v, want %v", attempts, want)
		}
	})
}

// What the user has not seen takes no place in the user's window, but its place in the
// tenant's leak.
func TestRefundUser(t *testing.T) {
	t.Parallel()
	ends := map[string]func(error) error{
		"nil":    func(error) error { return nil },
		"done":   func(err error) error { return fmt.Errorf("%w: %w", err, asynq.RevokeTask) },
		"dead":   func(err error) error { return fmt.Errorf("%w: %w", err, asynq.SkipRetry) },
		"failed": func(err error) error { return err },
		"paused": func(err error) error {
			return queue.Pause{Scope: queue.ScopeUser, Until: time.Now().Add(time.Second), Cause: err}
		},
	}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, policies(queue.Policy{
					Tenant: []throttle.Rule{throttle.Leak(2, time.Second)},
					User:   []throttle.Rule{throttle.Window(1, time.Hour)},
				}))
				calls := 0
				got := recorder{then: func(context.Context, queue.Info) error {
					if calls++; calls <= 3 {
						return queue.RefundUser{Err: end(errors.New("never sent"))}
					}
					return nil
				}}
				runWorker(t, client, &got, queue.WorkerConfig{RetryDelay: after(time.Second)})
				enqueue(t, client, jobs("school", "teacher", 5)...)
				time.Sleep(time.Minute)
				starts := got.all()
				if len(starts) != 4 {
					t.Fatalf("%d starts, want three without effect and the only one of this hour", len(starts))
				}
				var tenant []throttle.Event
				for _, s := range starts {
					tenant = append(tenant, throttle.Event{At: s.Slot})
				}
				for _, v := range throttle.Verify(tenant, []throttle.Rule{throttle.Leak(2, time.Second)}) {
					t.Error(v)
				}
			})
		})
	}
}
