package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A job is overdue since its limits let it start. However long it has waited for them, nobody
// is to be woken for that.
func TestOverdueIsNotTheWaitForLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(10, time.Second)},
			User:   []throttle.Rule{throttle.Window(2, 10*time.Minute)},
		}))
		var got recorder
		stop := runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Second)
		enqueue(t, client, jobs("school", "teacher", 3)...)
		time.Sleep(time.Second)
		stop()
		inspector := newWatcher(t, client, "push")
		for _, want := range []time.Duration{-time.Minute, 5 * time.Second} {
			time.Sleep(time.Until(got.all()[0].Slot.Add(10*time.Minute + want)))
			h, err := inspector.Health(t.Context())
			must(t, err)
			if off := (h.Oldest - max(0, want)).Abs(); got.count() != 2 || off > 200*time.Millisecond || (h.Overdue > 0) != (want > 0) {
				t.Errorf("%d started, %d tenants overdue, for %v, want %v", got.count(), h.Overdue, h.Oldest, want)
			}
		}
	})
}
