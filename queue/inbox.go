package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// runInbox puts the tasks of the asynq queue into their lanes until ctx ends.
func (w *Worker) runInbox(ctx context.Context, queue string) error {
	client, err := NewClient(w.client, queue)
	if err != nil {
		return err
	}
	b := &inbox{
		client: client, tasks: asynq.NewInspectorFromRedisClient(w.client), of: w.cfg.InboxJob,
		log: w.cfg.Logger.With("queue", queue, "part", "inbox"),
	}
	server := asynq.NewServerFromRedisClient(w.client, asynq.Config{
		Queues:      map[string]int{queue: 1},
		Concurrency: 50,
		// A task waits for asynq's poll before it enters its lane, so poll often.
		TaskCheckInterval:        100 * time.Millisecond,
		DelayedTaskCheckInterval: time.Second,
		RetryDelayFunc:           b.delay,
		IsFailure:                refiled,
		ErrorHandler:             asynq.ErrorHandlerFunc(b.failed),
		Logger:                   asynqLog{b.log},
		LogLevel:                 asynq.WarnLevel,
	})
	if err := server.Start(b); err != nil {
		return fmt.Errorf("queue %q: starting the inbox: %w", queue, err)
	}
	b.ungroup(ctx)
	server.Shutdown()
	b.archiving.Wait()
	return nil
}

// inbox is the asynq handler that puts each task into its lane. A task that is not a valid job
// goes to asynq's archive with the error, so that it is neither lost nor repeated for ever.
type inbox struct {
	client    *Client
	tasks     *asynq.Inspector
	of        func(*asynq.Task) (Job, error)
	log       *slog.Logger
	archiving sync.WaitGroup
}

func (b *inbox) ProcessTask(ctx context.Context, t *asynq.Task) error {
	job, err := jobOf(ctx, t, b.of)
	if err != nil {
		b.log.Error("archived a task that is not a valid job", "id", job.ID, "type", t.Type(), "err", err)
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	if err := b.bound(ctx, &job); err != nil {
		return err
	}
	at, err := b.client.door(ctx, job.Tenant)
	if err != nil {
		return err
	}
	lock, err := at.store.KeepLock(ctx, job.ID)
	if err != nil {
		return fmt.Errorf("keeping the lock of asynq.Unique: %w", err)
	}
	receipt, err := b.file(ctx, job, lock)
	if err != nil {
		return err
	}
	switch receipt.Status {
	case Dropped:
		b.log.Debug("dropped at the door", "id", job.ID, "reason", receipt.Reason)
		return at.lift(ctx, lock, job.ID)
	case Duplicate:
		b.log.Warn("refused a task: a job that waits or runs has its ID", "id", job.ID, "type", job.Type, "tenant", job.Tenant)
		return errors.Join(b.record(ctx, job, ReasonDuplicate), at.lift(ctx, lock, job.ID))
	}
	return nil
}

func (d *door) lift(ctx context.Context, lock, id string) error {
	if lock == "" {
		return nil
	}
	return d.store.LiftLock(ctx, lock, id)
}

// file offers the job, until Redis answers. Another job with its ID is refused while the job waits or runs;
// when it has ended the ID is free, as in asynq.
//
// An ID that is taken may be that of this very job: an offer may have arrived whose reply was lost, or a
// worker that had the task may have died. The job has been filed then. It may even have ended since.
func (b *inbox) file(ctx context.Context, job Job, lock string) (Receipt, error) {
	n, _ := asynq.GetRetryCount(ctx)
	maybe := n > 0 // it may have been filed before
	for {
		batch := newBatch([]Job{job}, taskIDMemory)
		batch.seals[0].Lock = lock
		receipts, err := b.client.offer(ctx, batch)
		if err != nil && unreachable(err) && ctx.Err() == nil {
			b.log.Warn("Redis does not answer; the task is offered again", "id", job.ID, "err", err)
			maybe = true
			continue
		}
		if err != nil || receipts[0].Status != Duplicate {
			return first(receipts), err
		}
		if maybe {
			b.log.Debug("filed before", "id", job.ID)
			return Receipt{ID: job.ID, Status: Accepted}, nil
		}
		at, err := b.client.door(ctx, job.Tenant)
		if err != nil {
			return receipts[0], err
		}
		where, alive, err := at.alive(ctx, job.ID)
		if err != nil || alive {
			return receipts[0], err
		}
		if err := at.store.ForgetID(ctx, job.ID, where); err != nil {
			return receipts[0], err
		}
	}
}

func first(receipts []Receipt) Receipt {
	if len(receipts) == 0 {
		return Receipt{}
	}
	return receipts[0]
}

// alive reports whether a job with the ID waits or runs.
func (d *door) alive(ctx context.Context, id string) (where string, alive bool, err error) {
	where, err = d.store.Where(ctx, id)
	switch where {
	case "", store.WasDropped, store.WasDead:
		return where, false, err
	case store.WasStarted:
		alive, err = d.runs(ctx, id)
		return where, alive, err
	}
	return where, true, err
}

// runs reports whether a worker has the job with the ID.
func (d *door) runs(ctx context.Context, id string) (bool, error) {
	leases, err := d.store.Leases(ctx)
	for worker := range leases {
		jobs, failed := d.store.Claimed(ctx, worker)
		for _, job := range jobs {
			if head, ok := envelope.Head(job.Job); ok && head.ID == id {
				return true, nil
			}
		}
		err = errors.Join(err, failed)
	}
	return false, err
}

// record notes that a task was refused.
func (b *inbox) record(ctx context.Context, job Job, why Reason) error {
	at, err := b.client.door(ctx, job.Tenant)
	if err != nil {
		return err
	}
	lane := store.Lane{Tenant: job.Tenant, User: job.User, Priority: rank(job.Priority)}
	return at.store.RecordRefused(ctx, lane, string(why), seal(job))
}

// taskIDMemory is how long the ID of a job that came as a task is known: ten minutes if asynq has
// generated it, since no producer knows it.
func taskIDMemory(j Job) time.Duration {
	if uuid.MatchString(j.ID) {
		return 10 * time.Minute
	}
	return store.IDMemory
}

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// refiled is the inbox's IsFailure: it counts only a task that asynq takes back from a dead
// worker. Otherwise offering fails only while Redis does, which is not an attempt of the job.
func refiled(err error) bool { return errors.Is(err, asynq.ErrLeaseExpired) }

// delay is the time until a task is tried again. One that has expired is archived before.
func (b *inbox) delay(_ int, err error, _ *asynq.Task) time.Duration {
	if errors.Is(err, context.DeadlineExceeded) {
		return time.Minute
	}
	return time.Second
}

// bound gives the job the bounds of its task: [asynq.Timeout], by default half an hour, becomes
// its Timeout, and [asynq.Deadline] its FinishBy. Headers take precedence.
func (b *inbox) bound(ctx context.Context, job *Job) error {
	timeout, deadline, err := b.bounds(ctx)
	if job.Timeout == 0 && timeout < maxTimeout {
		job.Timeout = timeout
	}
	if job.FinishBy.IsZero() {
		job.FinishBy = deadline
	}
	return err
}

// bounds returns the bounds of a task, zero for none. The end of its context comes from a
// timeout alone, in whole seconds, if it was reckoned from now.
func (b *inbox) bounds(ctx context.Context) (timeout time.Duration, deadline time.Time, err error) {
	end, ok := ctx.Deadline()
	if !ok {
		return 0, deadline, nil
	}
	if reckoned := end != end.Round(0); reckoned {
		return (time.Until(end) + time.Second - 1).Truncate(time.Second), deadline, nil
	}
	id, _ := asynq.GetTaskID(ctx)
	task, err := b.tasks.GetTaskInfo(b.client.queue(), id)
	if err != nil {
		return 0, deadline, fmt.Errorf("reading the task's deadline: %w", err)
	}
	return task.Timeout, task.Deadline, nil
}

// failed archives a task whose [asynq.Deadline] has passed. asynq would try it again for
// ever, without calling a handler.
func (b *inbox) failed(ctx context.Context, t *asynq.Task, err error) {
	if !errors.Is(err, context.DeadlineExceeded) {
		return
	}
	_, deadline, err := b.bounds(ctx)
	if err != nil || deadline.IsZero() || deadline.After(time.Now()) {
		return
	}
	ctx = context.WithoutCancel(ctx)
	job, invalid := jobOf(ctx, t, b.of)
	b.archiving.Go(func() {
		if err := b.archive(job.ID); err != nil {
			b.log.Error("archiving a task whose asynq.Deadline has passed", "id", job.ID, "err", err)
			return
		}
		b.log.Error("archived a task whose asynq.Deadline has passed", "id", job.ID, "type", t.Type(), "deadline", deadline)
		if invalid == nil {
			if err := b.record(ctx, job, ReasonExpired); err != nil {
				b.log.Error("recording a task whose asynq.Deadline has passed", "id", job.ID, "err", err)
			}
		}
	})
}

// archive archives a task that is about to be retried, as soon as asynq has let go of it.
func (b *inbox) archive(id string) (err error) {
	for range 40 {
		if err = b.tasks.ArchiveTask(b.client.queue(), id); err == nil || errors.Is(err, asynq.ErrTaskNotFound) {
			return nil
		}
		task, look := b.tasks.GetTaskInfo(b.client.queue(), id)
		if look == nil && task.State == asynq.TaskStateArchived {
			return nil // asynq itself did, since it had no retries left
		}
		<-time.After(50 * time.Millisecond)
	}
	return err
}

// ungroup lets the tasks of groups ([asynq.Group]) come through the inbox one by one, until ctx
// ends: jobs are not aggregated, and without this call they would stay in their groups for ever.
func (b *inbox) ungroup(ctx context.Context) {
	tick := time.NewTicker(ungroupEvery)
	defer tick.Stop()
	for {
		groups, err := b.tasks.Groups(b.client.queue())
		for _, group := range groups {
			n, failed := b.tasks.RunAllAggregatingTasks(b.client.queue(), group.Group)
			err = errors.Join(err, failed)
			b.log.Debug("filing the tasks of a group one by one", "group", group.Group, "tasks", n)
		}
		if err != nil {
			b.log.Debug("looking for groups", "err", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

const ungroupEvery = 5 * time.Second

// asynqLog lets an asynq server write to a slog.Logger.
type asynqLog struct{ log *slog.Logger }

func (l asynqLog) Debug(args ...any) { l.log.Debug(fmt.Sprint(args...)) }
func (l asynqLog) Info(args ...any)  { l.log.Info(fmt.Sprint(args...)) }
func (l asynqLog) Warn(args ...any)  { l.log.Warn(fmt.Sprint(args...)) }
func (l asynqLog) Error(args ...any) { l.log.Error(fmt.Sprint(args...)) }
func (l asynqLog) Fatal(args ...any) { l.log.Error(fmt.Sprint(args...)) }
