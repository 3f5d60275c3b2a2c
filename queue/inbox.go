package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
)

const (
	headerTenant = "waterclock-tenant"
	headerUser   = "waterclock-user"
)

// Headers returns the headers that make an ordinary asynq task a job of a user of a
// tenant, for [asynq.NewTaskWithHeaders]. Enqueued to an asynq queue of the same name
// as a waterclock queue, with whatever asynq offers (a schedule, uniqueness, cron), it
// is filed into its lane by the first worker with an inbox that sees it.
func Headers(tenant, user string) map[string]string {
	return map[string]string{headerTenant: tenant, headerUser: user}
}

// runInbox files the tasks of the asynq queue into their lanes until ctx ends.
func (w *Worker) runInbox(ctx context.Context, queue string) error {
	log := w.cfg.Logger.With("queue", queue, "part", "inbox")
	server := asynq.NewServerFromRedisClient(w.client, asynq.Config{
		Queues:      map[string]int{queue: 1},
		Concurrency: 50,
		// A task at the door has waited for its poll, and its start for nothing else.
		TaskCheckInterval:        100 * time.Millisecond,
		DelayedTaskCheckInterval: time.Second,
		// Filing fails only while Redis does: it will do later.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		Logger:         asynqLog{log},
		LogLevel:       asynq.WarnLevel,
	})
	if err := server.Start(&inbox{client: NewClient(w.client, queue), log: log}); err != nil {
		return fmt.Errorf("queue %q: starting the inbox: %w", queue, err)
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}

// inbox is the handler at the door: it files a task into its lane and is done. The
// task's ID is the job's: a task that asynq runs twice is filed once.
type inbox struct {
	client *Client
	log    *slog.Logger
}

func (b *inbox) ProcessTask(ctx context.Context, t *asynq.Task) error {
	job, err := jobOf(ctx, t)
	if err != nil {
		b.log.Error("archived a task that cannot be filed", "id", job.ID, "type", t.Type(), "err", err)
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	receipts, err := b.client.Enqueue(ctx, job)
	switch {
	case errors.Is(err, ErrInvalidJob):
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	case err != nil:
		return err
	case receipts[0].Status == Rejected:
		b.log.Debug("dropped at the door", "id", job.ID, "reason", receipts[0].Reason)
	}
	return nil
}

// jobOf returns the job that a task is.
func jobOf(ctx context.Context, t *asynq.Task) (Job, error) {
	job := Job{Type: t.Type(), Payload: t.Payload(), Headers: make(map[string]string)}
	job.ID, _ = asynq.GetTaskID(ctx)
	if retries, ok := asynq.GetMaxRetry(ctx); ok {
		job.MaxRetry = retries
		if retries == 0 {
			job.MaxRetry = -1
		}
	}
	for name, value := range t.Headers() {
		switch name {
		case headerTenant:
			job.Tenant = value
		case headerUser:
			job.User = value
		default:
			job.Headers[name] = value
		}
	}
	for name, value := range map[string]string{headerTenant: job.Tenant, headerUser: job.User} {
		if value == "" {
			return job, fmt.Errorf("queue: the task has no header %q; make it with asynq.NewTaskWithHeaders and queue.Headers", name)
		}
	}
	return job, job.Validate()
}

// asynqLog lets an asynq server write to a slog.Logger.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Info(fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error(fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
