package runner

import (
	"context"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// finish tells how the attempt ended.
func (r *Runner) finish(j *job, o Outcome) {
	refund := ""
	if o.Refund {
		refund = store.Pack(j.claim.String(), strconv.Itoa(j.env.Cost))
	}
	switch {
	case o.Pause != nil:
		r.cfg.Metrics.Ended("paused")
		r.giveBackAfter(j, o)
	case o.Failed && !o.Dead && r.handling.Err() != nil:
		// Its context ended because the worker stops: the attempt does not count.
		r.cfg.Metrics.Ended("interrupted")
		o.Pause = &Pause{}
		r.giveBackAfter(j, o)
	case o.Failed:
		r.fail(j, o, refund)
	default:
		r.cfg.Metrics.Ended("done")
		r.lift(j)
		if refund != "" || j.env.Spilled != "" {
			r.endAlone(j, refund)
			return
		}
		r.claims.done(end{j.claim, j.awaited})
	}
}

// endAlone ends a job that is done, refunds its user, who has seen nothing of it, and deletes its
// payload. One script does all, if the claim was still held. So the refund is given once, even
// if the script is run again because its reply was lost, and a job that another worker has got
// meanwhile keeps its payload.
func (r *Runner) endAlone(j *job, refund string) {
	ack := store.Ack{Worker: r.cfg.Worker, Claims: []envelope.Claim{j.claim}, Payload: j.env.Spilled, Refund: refund}
	if r.retry("acknowledging", func(ctx context.Context) error {
		_, err := persist(ctx, r.patience(), func(ctx context.Context) (store.Reading, error) { return r.store.Ack(ctx, ack) })
		return err
	}) {
		r.claims.drop(j.claim)
	}
}

// lift lifts the lock of a job that is done. One that cannot be lifted ends with its time.
func (r *Runner) lift(j *job) {
	if j.env.Lock == "" {
		return
	}
	if err := r.store.LiftLock(r.outlive, j.env.Lock, j.env.Name()); err != nil {
		r.log.Warn("a lock of asynq.Unique holds until its time is over", "id", j.env.Name(), "type", j.env.Type, "err", err)
	}
}

// fail ends an attempt that did not succeed: the job waits for its next one, or is dead.
func (r *Runner) fail(j *job, o Outcome, refund string) {
	next := *j.env
	if !o.Uncounted {
		next.Failures++
	}
	next.Ready, next.Late = 0, 0
	if next.Spilled != "" {
		next.Payload = ""
	}
	delay := max(0, o.Delay)
	if o.Dead || !o.Uncounted && next.Failures >= next.MaxAttempts {
		delay = -1
	} else {
		now, _ := r.clock.now()
		next.Ready = now + delay.Microseconds()
	}
	// What is dead has the whole error beside it.
	if next.Error = ""; delay >= 0 {
		next.Error = clip(o.Error, shownError)
	}
	// A newer job under its collapse key would get the low priority with the place.
	next.Yields = o.Yield && delay >= 0 && next.CollapseKey == ""
	f := store.Failure{
		Worker: r.cfg.Worker, Claim: j.claim, Delay: delay, Job: next.String(), ID: j.env.ID,
		Error: clip(o.Error, keptError), Refund: refund,
	}
	held := false
	if r.retry("reporting failures", func(ctx context.Context) (err error) {
		held, err = r.store.Fail(ctx, f)
		return err
	}) {
		r.claims.drop(j.claim)
	}
	r.cfg.Metrics.Ended("failed")
	if held && delay < 0 {
		r.cfg.Metrics.Ended("dead")
		r.log.Error("a job is dead", "id", j.env.Name(), "type", j.env.Type, "attempt", next.Failures, "err", f.Error)
	}
}

// bury keeps a job that cannot be run among the dead.
func (r *Runner) bury(j *job, text string, why error) {
	f := store.Failure{Worker: r.cfg.Worker, Claim: j.claim, Delay: -1, Job: text, Error: why.Error()}
	if j.env != nil {
		f.ID = j.env.ID
	}
	r.log.Error("a job is dead", "claim", j.claim, "err", why)
	if r.retry("reporting failures", func(ctx context.Context) error {
		_, err := r.store.Fail(ctx, f)
		return err
	}) {
		r.claims.drop(j.claim)
	}
	r.cfg.Metrics.Ended("dead")
}

// How much of an error is kept, in bytes: with a dead job, and with one that is to be
// attempted again.
const (
	keptError  = 4096
	shownError = 300
)

// clip bounds the text of an error that is kept.
func clip(text string, most int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + " …"
	}
	return text
}

// giveBack returns a claim that will not start here: the rules get its slot back.
func (r *Runner) giveBack(claim envelope.Claim) {
	r.returnClaim(request{claim: claim, kind: returnUnstarted})
}

// giveBackLate returns a claim that has missed its slot by so many µs: the rules get that back, and
// the job gets another one.
func (r *Runner) giveBackLate(claim envelope.Claim, by int64) {
	r.returnClaim(request{claim: claim, kind: returnLate, late: by})
}

// giveBackAfter returns a claim whose attempt does not count, and pauses its scope, if it has one.
func (r *Runner) giveBackAfter(j *job, o Outcome) {
	kind := returnPaused
	if o.Refund {
		kind = returnRefunded
	}
	r.returnClaim(request{claim: j.claim, kind: kind, scope: o.Pause.Scope, until: o.Pause.Until, reason: clip(o.Error, shownError)})
}

// returnClaim asks the leader to take a claim back.
func (r *Runner) returnClaim(q request) {
	letter := store.Letter{Subject: store.MailReturn, Text: store.Pack(r.cfg.Worker, q.claim.String(), q.kind, text(q.late), q.scope, text(q.until), q.reason)}
	r.claims.giveUp(q.claim, letter)
	r.tell(letter)
}
