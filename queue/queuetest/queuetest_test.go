package queuetest_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
	"github.com/waterclock/waterclock/throttle"
)

var standard = queue.Policies{Default: "standard", Policies: map[string]queue.Policy{
	"standard": {Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}, User: []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)}},
}}

// Sixty messages to one teacher take more than five minutes.
func TestAFloodIsSpread(t *testing.T) {
	queuetest.Run(t, queuetest.Config{Policies: standard}, func(t *testing.T, q *queuetest.Queue) {
		for range 60 {
			q.Enqueue(queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push"})
		}
		q.Drain()
		q.Verify()
		starts := q.Starts()
		if took := starts[59].Started.Sub(starts[0].Started); took < 5*time.Minute || took > 6*time.Minute {
			t.Errorf("60 messages took %v", took)
		}
	})
}

// A handler that fails twice is tried three times, later each time.
func TestRetries(t *testing.T) {
	attempts := 0
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if attempts++; attempts < 3 {
			return queue.Retry{After: time.Duration(attempts) * 10 * time.Minute, Cause: errors.New("busy")}
		}
		return nil
	})
	queuetest.Run(t, queuetest.Config{Handler: handler}, func(t *testing.T, q *queuetest.Queue) {
		q.Enqueue(queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push"})
		q.Drain()
		starts := q.Starts()
		if len(starts) != 3 || starts[2].Started.Sub(starts[1].Started) < 20*time.Minute {
			t.Errorf("%d starts: %v", len(starts), starts)
		}
	})
}

// The handler alone, without a queue.
func TestTheHandlerAlone(t *testing.T) {
	handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if info, _ := queue.FromContext(ctx); info.User != "teacher-42" {
			return errors.New("nobody")
		}
		return nil
	})
	ctx := queuetest.NewContext(t.Context(), queue.Info{Tenant: "school-7", User: "teacher-42"})
	if err := handler.ProcessTask(ctx, asynq.NewTask("push", nil)); err != nil {
		t.Error(err)
	}
}

// The queue is a real one: several workers, concurrency, an inspector.
func TestSeveralWorkers(t *testing.T) {
	var running, most atomic.Int64
	handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if now := running.Add(1); now > most.Load() {
			most.Store(now)
		}
		time.Sleep(time.Second)
		running.Add(-1)
		return nil
	})
	p := queue.Policies{Concurrency: queue.Concurrency{Jobs: 3}}
	queuetest.Run(t, queuetest.Config{Policies: p, Handler: handler, Workers: 3}, func(t *testing.T, q *queuetest.Queue) {
		for range 12 {
			q.Enqueue(queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push"})
		}
		q.Advance(2500 * time.Millisecond)
		if stats, err := q.Inspector.Stats(t.Context()); err != nil || stats.Done != 6 || stats.Running != 3 {
			t.Errorf("%+v, %v", stats, err)
		}
		q.Drain()
		if most.Load() != 3 {
			t.Errorf("%d at once, want 3", most.Load())
		}
	})
}
