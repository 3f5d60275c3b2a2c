package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

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
// asynq has no batches, and a user's jobs keep their order.
func viaAsynq(rdb redis.UniversalClient, name string) door {
	client := asynq.NewClientFromRedisClient(rdb)
	return func(ctx context.Context, jobs []queue.Job) ([]queue.Receipt, error) {
		receipts := make([]queue.Receipt, 0, len(jobs))
		for _, job := range jobs {
			task := asynq.NewTaskWithHeaders(job.Type, job.Payload, queue.Headers(job.Tenant, job.User))
			info, err := client.EnqueueContext(ctx, task, taskOptions(job, name)...)
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

func taskOptions(job queue.Job, name string) []asynq.Option {
	options := []asynq.Option{asynq.Queue(name)}
	if job.ID != "" {
		options = append(options, asynq.TaskID(job.ID))
	}
	if job.MaxRetry != 0 {
		options = append(options, asynq.MaxRetry(max(0, job.MaxRetry)))
	}
	if !job.NotBefore.IsZero() {
		options = append(options, asynq.ProcessAt(job.NotBefore))
	}
	return options
}

// fitsAsynq refuses what a task cannot carry into the lanes: it would be lost.
func fitsAsynq(job queue.Job) error {
	lost := ""
	switch {
	case job.Cost != 0:
		lost = "cost"
	case !job.Deadline.IsZero():
		lost = "deadline"
	case job.Priority != queue.Normal:
		lost = "priority"
	case job.CollapseKey != "":
		lost = "collapse_key"
	case job.Timeout != 0:
		lost = "timeout"
	default:
		return nil
	}
	return fmt.Errorf("%s: an asynq task does not carry it; want --via lanes", lost)
}
