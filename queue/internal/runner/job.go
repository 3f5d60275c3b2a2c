package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// given is a claim as it comes to a worker.
type given struct {
	claim   envelope.Claim
	job     string // "" if it has to be read
	placed  bool   // it has a place already
	awaited bool   // others wait for its end
}

// job is a claim that this worker holds.
type job struct {
	given
	env *envelope.Envelope
}

// accept takes a claim in and lets it run in a goroutine of its own. It reports false for a
// claim that is held already, or has been.
func (r *Runner) accept(g given) bool {
	if !r.claims.hold(g.claim) {
		if g.placed {
			r.places.give()
		}
		return false
	}
	r.gate.Lock()
	if !r.stopping() {
		r.running.Go(func() { r.run(g) })
		r.gate.Unlock()
		return true
	}
	r.gate.Unlock()
	if g.placed {
		r.places.give()
	}
	r.giveBack(g.claim)
	return true
}

// run brings one claim to its end.
func (r *Runner) run(g given) {
	if !g.placed {
		if g.placed = r.awaitPlace(); !g.placed {
			r.giveBack(g.claim)
			return
		}
	}
	defer r.freed()
	j, ok := r.open(g)
	if !ok {
		return
	}
	at, ok := r.awaitSlot(j)
	if !ok {
		return
	}
	if !r.claims.starts(j.claim) {
		return
	}
	outcome := Outcome{Failed: true, Error: "the handler ended its goroutine"}
	defer func() { r.finish(j, outcome) }() // even then
	outcome = r.handle(j, at)
}

// freed gives a place back, and tells a leader that waits for one.
func (r *Runner) freed() {
	r.places.give()
	if t := r.leading.Load(); t != nil && t.hungry.Load() {
		t.kick()
	}
}

// awaitPlace waits for a place for a claim that came without one: another queue of this
// worker took it meanwhile.
func (r *Runner) awaitPlace() bool {
	if r.places.take() {
		return true
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	select {
	case <-r.places.free:
		r.places.took()
		return true
	case <-timer.C:
	case <-r.stop:
	}
	return false
}

// open reads what was claimed. What cannot be read is dead; it costs nobody else anything.
func (r *Runner) open(g given) (*job, bool) {
	j := &job{given: g}
	if !g.claim.Valid() {
		r.log.Error("dropped a malformed claim", "claim", g.claim)
		r.claims.done(end{claim: g.claim})
		return nil, false
	}
	ok := r.retry("reading jobs", func(ctx context.Context) error {
		if j.job == "" {
			jobs, err := r.store.ClaimedJobs(ctx, []store.ClaimRef{{Worker: r.cfg.Worker, Claim: g.claim}})
			if err != nil {
				return err
			}
			j.job = jobs[0]
		}
		return nil
	})
	if !ok || j.job == "" { // somebody else's by now
		r.claims.drop(g.claim)
		return nil, false
	}
	var err error
	if j.env, err = envelope.Open(j.job); err != nil {
		r.bury(j, j.job, fmt.Errorf("the job cannot be read: %w", err))
		return nil, false
	}
	if j.env.CollapseKey != "" && j.env.ID != "" && r.wasCancelled(j.env.ID) {
		r.giveBack(g.claim) // the leader drops it
		return nil, false
	}
	if j.env.Spilled == "" {
		return j, true
	}
	missing := false
	ok = r.retry("reading payloads", func(ctx context.Context) error {
		payloads, err := r.store.Payloads(ctx, []string{j.env.Spilled})
		if err != nil {
			return err
		}
		j.env.Payload, missing = payloads[0], payloads[0] == ""
		return nil
	})
	if missing {
		r.bury(j, j.job, errors.New("its payload is gone from Redis"))
	}
	return j, ok && !missing
}

// wasCancelled reports whether a job with a collapse key, which may be another one than the leader
// knew, was cancelled after it was claimed. Otherwise it counts as started.
func (r *Runner) wasCancelled(id string) (cancelled bool) {
	r.retry("noting a start", func(ctx context.Context) (err error) {
		cancelled, err = r.store.Started(ctx, id)
		return err
	})
	return cancelled
}

// awaitSlot waits for the job's slot and returns the instant of its start. It returns false if the
// job is not to start here, and goes back into its lane: the worker stops, or does not know the time,
// or the job has missed its slot.
func (r *Runner) awaitSlot(j *job) (int64, bool) {
	asked := false // whether Redis was asked for the time
	for {
		now, doubt := r.clock.now()
		if doubt >= maxDoubt && !asked { // the machine has slept, or its clock was set
			asked = true
			r.learnTime(r.outlive)
			continue
		}
		if wait := j.claim.Slot - now; wait > 0 {
			if !r.sleepUnlessStopped(min(micros(wait), looksAtClock)) {
				r.giveBack(j.claim)
				return now, false
			}
			continue
		}
		if doubt >= maxDoubt {
			r.giveBack(j.claim)
			return now, false
		}
		if late, spread := now+doubt.Microseconds()-j.claim.Slot, j.claim.Spent-j.claim.Slot; late > schedule.Grace+spread {
			r.cfg.Metrics.Late(micros(late))
			r.delays.add(micros(late))
			r.giveBackLate(j.claim, late)
			return now, false
		}
		return now, true
	}
}

// looksAtClock is how often a job that waits for its slot looks at the clock: Redis's may be set
// meanwhile.
const looksAtClock = 200 * time.Millisecond

func (r *Runner) sleepUnlessStopped(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.stop:
		return false
	}
}

// handle runs the handler once. What it returns decides; its context only asks.
func (r *Runner) handle(j *job, at int64) Outcome {
	ctx, cancel := context.WithCancelCause(r.handling)
	defer cancel(nil)
	r.claims.begins(j.claim, cancel)
	if limit := limitOf(j.env, at); limit > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
		stuck := time.AfterFunc(limit+stuckAfter, func() {
			r.log.Warn("a handler ignores the end of its context; it keeps its place",
				"id", j.env.Name(), "type", j.env.Type, "timeout", limit)
		})
		defer stuck.Stop()
	}
	r.cfg.Metrics.Started(micros(at - j.claim.Slot))
	r.delays.add(micros(at - j.claim.Slot))
	return r.cfg.Handle(ctx, Attempt{Lane: j.claim.Lane, Job: j.env, Slot: j.claim.Slot, Started: at, Clock: r.now})
}

// stuckAfter is how long after the end of its context a handler counts as stuck.
const stuckAfter = 5 * time.Second

// limitOf returns how long an attempt may take, 0 for no limit.
func limitOf(e *envelope.Envelope, at int64) time.Duration {
	limit := e.Timeout
	if e.Until > 0 {
		if left := max(micros(e.Until-at), time.Millisecond); limit == 0 || left < limit {
			limit = left
		}
	}
	return limit
}

// tell writes a letter to the leader; to this worker's own term directly. It returns
// false if the worker's time ran out.
func (r *Runner) tell(letter store.Letter) bool {
	if t := r.leading.Load(); t != nil && r.letters.put(letter) {
		t.kick()
		return true
	}
	return r.retry("writing to the leader", func(ctx context.Context) error { return r.store.Write(ctx, letter) })
}

// retry does something that needs Redis until it works, or the worker's time runs out.
func (r *Runner) retry(act string, do func(ctx context.Context) error) bool {
	trouble := newTrouble(r.log, act)
	for {
		wait := trouble.after(do(r.outlive))
		if wait == 0 {
			return true
		}
		if r.outlive.Err() != nil {
			return false
		}
		pause(r.outlive, wait)
	}
}
