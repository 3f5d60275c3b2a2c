package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue"
)

// A door is a way into the queue. It takes the jobs in their order and returns a receipt
// for each; with an error, for those that are known to have arrived.
type door func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error)

// lanes is the straight way.
func lanes(client *queue.Client) door {
	return func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
		return client.Enqueue(ctx, jobs...)
	}
}

// viaAsynq enqueues ordinary tasks, as services do that use asynq already. One by one:
// asynq has no batches; the inbox may still swap two that arrive together.
func viaAsynq(rdb redis.UniversalClient, name string) door {
	client := asynq.NewClientFromRedisClient(rdb)
	return func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
		receipts := make([]queue.Receipt, 0, len(jobs))
		for _, job := range jobs {
			task, err := queue.NewTask(job)
			if err != nil {
				return receipts, err
			}
			info, err := client.EnqueueContext(ctx, task, asynq.Queue(name))
			switch {
			case errors.Is(err, asynq.ErrTaskIDConflict):
				receipts = append(receipts, queue.Receipt{ID: job.ID, Status: queue.Duplicate})
			case err != nil:
				return receipts, fmt.Errorf("enqueueing to asynq queue %q: %w", name, err)
			default:
				receipts = append(receipts, queue.Receipt{ID: info.ID, Status: queue.Accepted})
			}
		}
		return receipts, nil
	}
}

// fitsAsynq refuses what an asynq task cannot carry.
func fitsAsynq(job queue.Job) error {
	_, err := queue.NewTask(job)
	return jobline.Complaint(err)
}
