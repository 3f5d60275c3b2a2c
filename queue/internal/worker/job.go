package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A claim goes this way in a worker, in a goroutine of its own:
//
//	Accept        it is new to this worker, and the worker does not stop
//	awaitPlace    it has a place: the leader's own jobs come with one
//	open          its job is read, with what is kept apart (open.go)
//	claims.opened it was not lost; if it is from now on, its context is cancelled
//	awaitSlot     Redis's clock has reached the slot, and the job is not late
//	handle        the handler runs, unless the claim was lost while it waited
//	finish        the outcome is told (outcome.go)
//
// Wherever it goes no further, it is returned to the leader (giveBack), or dropped if another worker has it.
//
// A job is late if its start would come later than its slot + grace, with the worker's doubt about Redis's
// clock added, and beyond what the leader has allowed for (the claim's Spent − Slot). The rules count the
// start at Spent: a later one could come too close to the next. So a late job does not start under
// this claim. It goes back, and the leader decides about it again.
//
// Nothing is waited for between that look at the clock and the handler: it would make the start late, and nobody would
// notice. What is asked of Redis is asked before. So is everything that takes a lock which other goroutines of this
// worker take: one that gets no CPU while it has the lock would hold up all others.

// Given is a claim as it comes to a worker: in a message, by a comparison, or from the term in which this worker leads.
type Given struct {
	Claim   envelope.Claim
	Job     string             // the envelope that the leader has decided about; "" for a digest, which may have got members
	Env     *envelope.Envelope // the same, if the leader has opened it; otherwise nil
	Placed  bool               // it has a place already, which Accept has to give back if it does not run
	Awaited bool               // other jobs may wait for its end

	Compared bool // a comparison with Redis has brought it, and no message
}

// job is a claim that this worker holds, opened.
type job struct {
	Given
	env     *envelope.Envelope
	started int64 // when its handler began; 0 before
}

// Accept takes a claim in and lets it run in a goroutine of its own. It reports false for a claim that is held already,
// or has been: such a claim starts nothing. A worker that stops returns the claim, which takes as long as Redis does.
// The gate sees to it that a claim is either taken in before Shutdown waits for those that run, or is returned.
func (w *Worker) Accept(g Given) bool {
	if !w.Claims.hold(g.Claim, g.Compared) {
		if g.Placed {
			w.Places.Give()
		}
		return false
	}
	w.gate.Lock()
	if !w.Stopping() {
		w.running.Go(func() { w.run(g) })
		w.gate.Unlock()
		return true
	}
	w.gate.Unlock()
	if g.Placed {
		w.Places.Give()
	}
	w.giveBack(g.Claim)
	return true
}

// run brings one claim to its end. The outcome is told, or noted to be told, before the place is given back. If the
// handler ends its goroutine, as runtime.Goexit does, that is a failed attempt.
func (w *Worker) run(g Given) {
	if !g.Placed {
		if g.Placed = w.awaitPlace(); !g.Placed {
			w.giveBack(g.Claim)
			return
		}
	}
	defer w.freed()
	j, ok := w.open(g)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancelCause(w.handling)
	defer cancel(nil)
	h := w.Claims.opened(j.Claim, cancel)
	if h == nil {
		return
	}
	at, ok := w.awaitSlot(j)
	if !ok {
		return
	}
	if h.lost.Load() {
		w.Claims.drop(j.Claim)
		return
	}
	h.started.Store(true)
	j.started = at
	outcome := Outcome{Failed: true, Error: "the handler ended its goroutine"}
	defer func() { w.finish(j, outcome) }() // even then
	outcome = w.handle(ctx, j, at)
}

// freed gives a place back, and tells a leader that waits for one.
func (w *Worker) freed() {
	w.Places.Give()
	w.tellHungry()
}

// awaitPlace waits for a place for a claim that came without one: another queue of this
// worker took it meanwhile. After a second the claim goes back.
func (w *Worker) awaitPlace() bool {
	if w.Places.Take() {
		return true
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-w.Places.free:
		w.Places.took()
		return true
	case <-timer.C:
	case <-w.stop:
	}
	return false
}

// awaitSlot waits for the job's slot and returns the instant of its start. It returns false if the
// job is not to start here, and goes back into its lane: the worker stops, or does not know the time,
// or the job has missed its slot.
//
// The clock's estimate is never early: the slot has come when the estimate says so. It may be late by the doubt: so
// lateness counts with the doubt added. Where only the doubt makes a job late, Redis is asked for the time, once: a job that goes back
// as late goes further ahead the next time, whoever gets it.
func (w *Worker) awaitSlot(j *job) (int64, bool) {
	asked := false // whether Redis was asked for the time
	for {
		now, doubt := w.Clock.Now()
		if doubt >= clock.Usable && !asked { // the machine has slept, or its clock was set
			asked = true
			w.LearnTime(w.outlive)
			continue
		}
		if wait := j.Claim.Slot - now; wait > 0 {
			if !w.sleepUnlessStopped(min(clock.Micros(wait), looksAtClock)) {
				w.giveBack(j.Claim)
				return now, false
			}
			continue
		}
		if doubt >= clock.Usable {
			w.giveBack(j.Claim)
			return now, false
		}
		most := schedule.Grace + j.Claim.Spent - j.Claim.Slot
		late := now + doubt.Microseconds() - j.Claim.Slot
		switch {
		case late <= most:
			return now, true
		case late-doubt.Microseconds() <= most && !asked: // it may have come in time
			asked = true
			w.askTime(w.outlive)
			continue
		}
		w.Metrics.Late(clock.Micros(late))
		w.delays.add(clock.Micros(late))
		w.giveBackLate(j.Claim, late)
		return now, false
	}
}

// looksAtClock is how often a job that waits for its slot looks at the clock: Redis's may be set
// meanwhile.
const looksAtClock = 200 * time.Millisecond

// sleepUnlessStopped reports whether the time has passed before the worker stops.
func (w *Worker) sleepUnlessStopped(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-w.stop:
		return false
	}
}

// handle runs the handler once. What it returns decides; its context only asks. A handler that ignores the end
// of its context keeps its place: nobody can stop a goroutine.
func (w *Worker) handle(ctx context.Context, j *job, at int64) Outcome {
	if limit := limitOf(j.env, at); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
		stuck := time.AfterFunc(limit+stuckAfter, func() {
			w.Log.Warn("a handler ignores the end of its context; it keeps its place",
				"id", j.env.Name(), "type", j.env.Type, "timeout", limit)
		})
		defer stuck.Stop()
	}
	w.Metrics.Started(clock.Micros(at - j.Claim.Slot))
	if j.env.Failures == 0 {
		w.Metrics.First(j.Claim.Lane.Tenant, clock.Micros(at-j.env.Begin()))
	}
	w.delays.add(clock.Micros(at - j.Claim.Slot))
	return w.cfg.Handle(ctx, Attempt{Lane: j.Claim.Lane, Job: j.env, Limits: func() []schedule.Use { return w.named(j) }, Slot: j.Claim.Slot, Started: at, Clock: w.Now})
}

// stuckAfter is how long after the end of its context a handler counts as stuck.
const stuckAfter = 5 * time.Second

// limitOf returns how long an attempt that starts at an instant may take: as its job's timeout says, and no longer than
// until the job's end; 0 for no limit.
func limitOf(e *envelope.Envelope, at int64) time.Duration {
	limit := e.Timeout
	if e.Until > 0 {
		if left := max(clock.Micros(e.Until-at), time.Millisecond); limit == 0 || left < limit {
			limit = left
		}
	}
	return limit
}
