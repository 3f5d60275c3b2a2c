// Package doors holds the code that the README shows: the two doors into a queue, and a
// worker behind them. A test at the root keeps the two alike.
package doors

import (
	"context"
	"fmt"
	"log"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// Batch offers jobs straight into the lanes and reads the receipts.
func Batch(ctx context.Context, rdb redis.UniversalClient, text []byte) error {
	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		return err
	}
	receipts, err := client.Enqueue(ctx,
		queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", Payload: text},
		queue.Job{Tenant: "school-7", User: "teacher-43", Type: "push", Payload: text},
	)
	if err != nil {
		return err
	}
	for _, r := range receipts {
		if r.Status == queue.Dropped {
			log.Printf("job %s was dropped: %s", r.ID, r.Reason)
			continue
		}
		log.Printf("job %s is %s: place %d in its lane, to start about %v", r.ID, r.Status, r.Place, r.Start)
	}
	return nil
}

// Asynq offers a job as any asynq producer offers a task.
func Asynq(ctx context.Context, redisAddr string, text []byte) error {
	client := asynq.NewClient(asynq.RedisClientOpt{Addr: redisAddr})
	defer client.Close()

	task := asynq.NewTaskWithHeaders("push", text, queue.Headers("school-7", "teacher-42"))
	_, err := client.EnqueueContext(ctx, task, asynq.Queue("push"))
	return err
}

// Work runs the jobs of a queue, each at its slot, until ctx ends.
func Work(ctx context.Context, rdb redis.UniversalClient) error {
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{
		Queues:      []string{"push"},
		Concurrency: 100,
		Inbox:       true, // take what asynq producers send to the asynq queue "push"
	})
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("push", func(ctx context.Context, t *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		fmt.Printf("%s gets %s, having waited %v\n", info.User, t.Payload(), info.Waited)
		return nil // an error means: again later, under the same limits
	})
	return worker.Run(ctx, mux)
}
