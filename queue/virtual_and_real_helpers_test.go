package queue_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A stage is where a test plays: in a bubble, where time is virtual and every instant
// exact, or on a Redis of its own, where instants have lower bounds only. It measures
// time in units, which are long in the one and short in the other.
type stage struct {
	client  redis.UniversalClient
	unit    time.Duration
	virtual bool
}

// onStages plays a test on both.
func onStages(t *testing.T, play func(t *testing.T, s stage)) {
	t.Run("virtual time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { play(t, stage{redistest.Mini(t), time.Second, true}) })
	})
	t.Run("redis", func(t *testing.T) {
		play(t, stage{redistest.Start(t).Client(t), 40 * time.Millisecond, false})
	})
}

func (s stage) units(n int) time.Duration { return time.Duration(n) * s.unit }

// eventually waits until the condition holds.
func (s stage) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	if !s.virtual {
		redistest.Eventually(t, 20*time.Second, what, holds)
		return
	}
	for range 2000 {
		if holds() {
			return
		}
		time.Sleep(s.unit / 20)
	}
	t.Fatalf("waited %v in vain until %s", s.units(100), what)
}

// wrong tells whether an instant is not as it should be: exactly, where time is virtual,
// and otherwise not before.
func (s stage) wrong(at, want time.Time) bool {
	if s.virtual {
		return at.Sub(want).Abs() > time.Millisecond
	}
	return at.Before(want)
}

// onTime returns the order of starts that act brings about in an empty queue. A busy machine makes jobs late, which get slots
// after those of others then. Where the metrics of act's worker count such a start, Redis is emptied, and act is called again.
func (s stage) onTime(t *testing.T, act func(metrics prometheus.Registerer) []string) []string {
	t.Helper()
	for range 20 {
		metrics := prometheus.NewRegistry()
		order := act(metrics)
		if s.virtual || gathered(t, metrics, "waterclock_late_starts_total") == 0 {
			return order
		}
		must(t, s.client.FlushAll(t.Context()).Err())
	}
	t.Fatal("starts were late each of 20 times")
	return nil
}

// A door takes a job into the queue and returns when it is there.
type door func(t *testing.T, s stage, job queue.Job) queue.Status

func doors() map[string]door { return map[string]door{"lanes": straight, "asynq": throughInbox} }

func straight(t *testing.T, s stage, job queue.Job) queue.Status {
	t.Helper()
	if s.virtual {
		time.Sleep(time.Microsecond) // or all would have been offered at one instant
	}
	return enqueue(t, s.client, job)[0].Status
}

// throughInbox needs a worker with an inbox. What the lanes say of the job it does not
// know, only whether asynq has taken it.
func throughInbox(t *testing.T, s stage, job queue.Job) queue.Status {
	t.Helper()
	task, err := queue.NewTask(job)
	must(t, err)
	_, err = asynq.NewClientFromRedisClient(s.client).EnqueueContext(t.Context(), task, asynq.Queue("push"))
	if errors.Is(err, asynq.ErrTaskIDConflict) {
		return queue.Duplicate
	}
	must(t, err)
	inspector := asynq.NewInspectorFromRedisClient(s.client)
	s.eventually(t, "the task is filed", func() bool {
		info, err := inspector.GetQueueInfo("push")
		must(t, err)
		return info.Pending+info.Active == 0
	})
	return queue.Accepted
}
