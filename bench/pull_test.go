package main

import (
	"context"
	"testing"

	"github.com/waterclock/waterclock/queue"
)

// What does a job cost from its lane to the end of its handler, limits included, in a
// worker that always finds a full pull waiting?
func BenchmarkPull(b *testing.B) {
	redis := newCounted(b)
	if err := inspectorOf(redis, queueName).SetPolicies(b.Context(), unreached()); err != nil {
		b.Fatal(err)
	}
	if _, err := clientOf(redis, queueName).Enqueue(b.Context(), queueJobs(b.N)...); err != nil {
		b.Fatal(err)
	}
	worker, err := queue.NewWorker(redis, queue.WorkerConfig{Queues: []string{queueName}, Concurrency: places})
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	handled, ended := newTally(b.N), make(chan error, 1)
	redis.begin(b)
	go func() { ended <- worker.Run(ctx, handled) }()
	if err := handled.wait(ctx); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	redis.report(b, 1, "job")
	stop()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
}
