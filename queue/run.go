package queue

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// start lets a pulled job run in its own goroutine. It has one of the worker's places.
func (p *puller) start(job claim) {
	p.claims.hold(job.token, nil)
	p.waiting.Add(1)
	p.running.Go(func() {
		defer p.places.give(1)
		started, ok := p.awaitSlot(job)
		p.waiting.Done()
		if ok {
			p.finish(job, p.handle(job, started))
		}
	})
}

// awaitSlot waits for the job's slot and returns the instant of its start. It returns
// false if the job is not to start here: the worker stops, or the job came too late and
// went back into its lane.
func (p *puller) awaitSlot(job claim) (time.Time, bool) {
	slot, roundTrip := job.slot, time.Duration(0)
	for {
		now, ahead := p.clock.now()
		if wait := slot.Sub(now); wait > 0 {
			if !p.sleepUnlessStopped(wait) {
				p.claims.handBack(job.token)
				return now, false
			}
			continue
		}
		if now.Add(min(ahead, Grace/2)).Sub(slot) <= Grace {
			return now, true
		}
		// When the reply to the first question came late as well, the next one asks for
		// an instant that lies ahead.
		asked := time.Now()
		again, ok := p.admit(job, slot, 2*roundTrip)
		if !ok {
			return now, false
		}
		slot, roundTrip = again, min(time.Since(asked), longestTrip)
	}
}

func (p *puller) sleepUnlessStopped(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.stop:
		return false
	}
}

// longestTrip bounds how far ahead a late job's slot can lie.
const longestTrip = time.Second

// admit asks Redis whether a job that missed its slot may start so soon, and returns its
// new slot. Otherwise the job is in its lane again, or somebody else's.
func (p *puller) admit(job claim, missed time.Time, ahead time.Duration) (slot time.Time, ok bool) {
	trouble := newTrouble(p.log, "asking for late starts")
	for {
		ask := &late{token: job.token, missed: missed, ahead: ahead}
		if wait := trouble.after(p.lates.ask(p.handling, ask)); wait > 0 {
			if !p.sleepUnlessStopped(wait) {
				p.claims.handBack(job.token)
				return slot, false
			}
			continue
		}
		p.metrics.late(p.queue)
		if ask.outcome != lateStarts {
			p.claims.drop(job.token)
		}
		if ask.outcome == lateLost {
			p.log.Warn("lost a job before its start", "id", job.job.ID)
		}
		return ask.slot, ask.outcome == lateStarts
	}
}

// handle runs the handler once. What it returns decides; its context only asks.
func (p *puller) handle(job claim, started time.Time) (err error) {
	ctx, cancel := context.WithCancelCause(p.handling)
	defer cancel(nil)
	p.claims.hold(job.token, cancel)
	if limit := p.limit(job, started); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
		stuck := time.AfterFunc(limit+stuckAfter, func() {
			p.log.Warn("a handler ignores the end of its context; it keeps its place",
				"id", job.job.ID, "type", job.job.Type, "timeout", limit)
		})
		defer stuck.Stop()
	}
	ctx = withInfo(ctx, Info{
		ID: job.job.ID, Queue: p.queue, Tenant: job.job.Tenant, User: job.job.User, Type: job.job.Type,
		Slot: job.slot, Started: started, Offered: job.offered,
		Attempt: job.failures + 1, MaxRetry: max(0, job.job.MaxRetry), Waited: started.Sub(job.offered),
	})
	p.metrics.started(p.queue, started.Sub(job.slot))
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			p.log.Error("a handler panicked", "id", job.job.ID, "type", job.job.Type, "panic", cause,
				"stack", string(debug.Stack()))
		}
	}()
	return p.handler.ProcessTask(ctx, task(job.job))
}

// stuckAfter is how long after the end of its context a handler counts as stuck.
const stuckAfter = 5 * time.Second

// limit returns how long an attempt may take, 0 for no limit.
func (p *puller) limit(job claim, started time.Time) time.Duration {
	limit := job.job.Timeout
	if !job.job.Deadline.IsZero() {
		if left := job.job.Deadline.Sub(started); limit == 0 || left < limit {
			limit = max(left, time.Millisecond)
		}
	}
	return limit
}

func task(j Job) *asynq.Task {
	return asynq.NewTaskWithHeaders(j.Type, j.Payload, j.Headers)
}

// finish tells Redis how the attempt ended.
func (p *puller) finish(job claim, err error) {
	defer p.claims.drop(job.token)
	p.refund(job, err)
	switch {
	case err == nil, errors.Is(err, asynq.RevokeTask):
		p.acks.add(job.token)
		p.metrics.ended(p.queue, "done")
	case errors.Is(err, asynq.SkipRetry):
		p.fail(job, err, -1)
	default:
		if pause, ok := asPause(err); ok {
			p.pause(job, pause)
			return
		}
		p.fail(job, err, max(retryFloor(err), p.cfg.RetryDelay(job.failures+1, err, task(job.job))))
	}
}

// pause pauses a scope at the wish of a handler; its job waits again.
func (p *puller) pause(job claim, pause *pauseError) {
	p.log.Warn("a handler asked for a pause", "id", job.job.ID, "tenant", job.job.Tenant, "err", pause)
	p.report(job, "paused", p.scripts.pause, string(pause.scope), "", "", micros(pause.until), job.token)
}

// fail hands a failed attempt to Redis, which decides what becomes of the job.
func (p *puller) fail(job claim, cause error, delay time.Duration) {
	const buried = 2
	micros := int64(-1)
	if delay >= 0 {
		micros = delay.Microseconds()
	}
	if p.report(job, "failed", p.scripts.fail, job.token, micros, cause.Error()) == buried {
		p.metrics.ended(p.queue, "dead")
		p.log.Error("a job is dead", "id", job.job.ID, "type", job.job.Type, "attempt", job.failures+1, "err", cause)
	}
}

// report runs the script that ends an attempt and returns its outcome. Without Redis it
// tries on as long as the worker may run; then the job's lease expires.
func (p *puller) report(job claim, outcome string, script *redis.Script, args ...any) int64 {
	trouble := newTrouble(p.log, "reporting attempts")
	for {
		reply, err := numbers(p.scripts.run(p.outlive, script, args...), 2)
		wait := trouble.after(err)
		if wait == 0 {
			p.metrics.ended(p.queue, outcome)
			return reply[1]
		}
		if p.outlive.Err() != nil {
			return 0
		}
		sleep(p.outlive, wait)
	}
}
