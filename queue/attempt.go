package queue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/ctxkey"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// attempts runs a worker's handler, and reads what it answers.
type attempts struct {
	queue   string
	store   *store.Store
	handler asynq.Handler
	cfg     WorkerConfig
	log     *slog.Logger
	failed  failureLog
	events  *eventLog
}

// handle runs the handler once. Whatever it does is contained here.
func (a *attempts) handle(ctx context.Context, at worker.Attempt) (o worker.Outcome) {
	info := a.info(at)
	task := asynq.NewTaskWithHeaders(at.Job.Type, []byte(at.Job.Payload), at.Job.Headers)
	ctx = context.WithValue(context.WithValue(ctx, ctxkey.Info{}, info), ctxkey.Inboxes{}, a.cfg.inboxes())
	a.events.started(info)
	err := a.run(ctx, info, task)
	defer func() { a.events.ended(info, &o, at.Clock) }()
	defer func() { // the error's own methods and RetryDelay are the user's code as well
		if cause := recover(); cause != nil {
			a.log.Error("reading a handler's error panicked", "id", info.ID, "type", info.Type, "panic", cause)
			o = worker.Outcome{Failed: true, Error: fmt.Sprintf("panic while reading the error: %v", cause), Delay: backoff(info.Attempt, nil, nil)}
		}
	}()
	if err == nil {
		return o // most jobs are done, and their goroutines need no larger stacks for what follows
	}
	o = a.outcome(err, info, task, at.Clock)
	if a.cfg.ErrorHandler != nil && o.Pause == nil && o.SentOn == 0 {
		a.report(ctx, task, info, err)
	}
	return o
}

// report tells the ErrorHandler of an error. What becomes of the job is decided by then.
func (a *attempts) report(ctx context.Context, task *asynq.Task, info *Info, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			a.log.Error("an ErrorHandler panicked", "id", info.ID, "type", info.Type, "panic", cause)
		}
	}()
	a.cfg.ErrorHandler.HandleError(ctx, task, err)
}

// info is what the handler may know of its job.
func (a *attempts) info(at worker.Attempt) *Info {
	job, lane := at.Job, at.Lane
	started := time.UnixMicro(at.Started)
	offered := time.UnixMicro(max(job.Offered(), job.Revived)) // what is revived begins anew
	var members []Member
	for _, m := range job.Members {
		members = append(members, Member{m.Name(), m.Type, []byte(m.Payload), m.Headers, time.UnixMicro(m.Offered()), m.Cost})
	}
	return &Info{
		Digest: members,
		ID:     job.Name(), Queue: a.queue, Tenant: lane.Tenant, User: lane.User, Type: job.Type,
		Slot: time.UnixMicro(at.Slot), Started: started, Offered: offered,
		Attempt: job.Failures + 1, MaxAttempts: job.MaxAttempts, Waited: started.Sub(offered),
		Cost: job.Cost, Keys: job.Keys, Costs: job.Costs, limits: at.Limits,
		Timeout: job.Timeout, FinishBy: envelope.Instant(job.Until), SentOn: job.SentOn,
		store: a.store,
	}
}

// run runs the handler; a panic is a [PanicError].
func (a *attempts) run(ctx context.Context, info *Info, task *asynq.Task) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			panicked := &PanicError{Value: cause, Stack: string(debug.Stack())}
			a.log.Error("a handler panicked", "id", info.ID, "type", info.Type, "panic", cause, "stack", panicked.Stack)
			err = panicked
		}
	}()
	return a.handler.ProcessTask(ctx, task)
}

// outcome reads the error that a handler has answered.
func (a *attempts) outcome(err error, info *Info, task *asynq.Task, clock func() int64) worker.Outcome {
	_, refund := answer[RefundUser](err)
	o := worker.Outcome{Refund: refund}
	if errors.Is(err, asynq.RevokeTask) {
		return o
	}
	o.Dead = errors.Is(err, asynq.SkipRetry)
	if on, ok := answer[SendOn](err); ok && !o.Dead && !info.SentOn {
		a.failed.warn(a.log, "this worker cannot run a job; another one gets it", err.Error(), "id", info.ID, "tenant", info.Tenant)
		o.SentOn, o.Error = on.end(time.UnixMicro(clock())).UnixMicro(), err.Error()
		return o
	}
	if pause, ok := answer[Pause](err); ok && !o.Dead {
		a.failed.warn(a.log, "a handler asked for a pause", err.Error(), "id", info.ID, "tenant", info.Tenant)
		o.Pause = &worker.Pause{Scope: pause.scope(info.Tenant, info.User), Until: pause.end(time.UnixMicro(clock())).UnixMicro()}
		o.Error = textOf(pause.Cause, "")
		return o
	}
	retry, _ := answer[Retry](err)
	o.Failed, o.Error, o.Yield = true, err.Error(), retry.Yield
	o.Uncounted = retry.Uncounted || a.cfg.IsFailure != nil && !a.cfg.IsFailure(err)
	if !o.Dead {
		if o.Delay = retry.After; o.Delay <= 0 {
			o.Delay = a.cfg.RetryDelay(info.Attempt, err, task)
		}
		a.failed.warn(a.log, "an attempt failed", o.Error, "id", info.ID, "tenant", info.Tenant, "type", info.Type, "attempt", info.Attempt)
	}
	return o
}

// clip shortens an error for a log.
func clip(text string) string {
	const most = 500
	if len(text) > most {
		return text[:most] + " …"
	}
	return text
}
