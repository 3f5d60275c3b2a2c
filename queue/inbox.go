package queue

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"
)

// runInbox files the tasks of the asynq queue into their lanes until ctx ends.
func (w *Worker) runInbox(ctx context.Context, queue string) error {
	log := w.cfg.Logger.With("queue", queue, "part", "inbox")
	server := asynq.NewServerFromRedisClient(w.client, asynq.Config{
		Queues:      map[string]int{queue: 1},
		Concurrency: 50,
		// A task at the door has waited for its poll, and its start for nothing else.
		TaskCheckInterval:        100 * time.Millisecond,
		DelayedTaskCheckInterval: time.Second,
		// Filing fails only while Redis does: it will do later, and is no attempt of the job.
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		IsFailure:      func(error) bool { return false },
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
// task's ID is the job's: a task that asynq runs twice is filed once. One that is no job
// goes to asynq's archive with what is wrong: it is neither lost nor tried for ever.
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
	if err != nil {
		return err
	}
	if receipts[0].Status == Rejected {
		b.log.Debug("dropped at the door", "id", job.ID, "reason", receipts[0].Reason)
	}
	return nil
}

// asynqLog lets an asynq server write to a slog.Logger.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Info(fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error(fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
