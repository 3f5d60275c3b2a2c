package queue

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
)

// When Redis becomes slow, or far away, a worker that knows its clock well gets every job
// late, and every answer to the question whether it may start it: it has to ask for an
// instant that lies ahead.
func TestJobsStartWhenAllRepliesAreLate(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	rdb := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	defer rdb.Close()
	const jobs = 20
	h := newHand(t, server.Client(t), Policy{})
	h.offer("u")
	worker, err := NewWorker(rdb, WorkerConfig{Queues: []string{"q"}})
	if err != nil {
		t.Fatal(err)
	}
	var started atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			started.Add(1)
			return nil
		}))
	}()
	redistest.Eventually(t, 10*time.Second, "a job starts", func() bool { return started.Load() == 1 })
	proxy.Delay(40 * time.Millisecond)
	for range jobs {
		h.offer("u")
	}
	redistest.Eventually(t, 10*time.Second, "all jobs start", func() bool { return started.Load() == 1+jobs })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// An idle fleet asks seldom. That must not look as if nobody could reach Redis, or the
// leases of the dead would hold for ever.
func TestAnIdleWorkerTakesTheJobsOfADeadOne(t *testing.T) {
	client := redistest.Start(t).Client(t)
	h := newHand(t, client, Policy{})
	h.offer("u")
	h.pull(0, time.Second) // and is never heard of again
	worker, err := NewWorker(client, WorkerConfig{Queues: []string{"q"}, Lease: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	var started atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			started.Add(1)
			return nil
		}))
	}()
	redistest.Eventually(t, 10*time.Second, "the job starts again", func() bool { return started.Load() == 1 })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
