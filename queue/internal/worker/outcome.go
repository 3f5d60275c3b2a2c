package worker

import (
	"cmp"
	"context"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An attempt ends in one of five ways:
//
//   - done: the claim ends. Ends are told together ([Claims.AckAll]); one that refunds or deletes a payload is told
//     alone, by a script that does all of it or nothing.
//   - failed: one change ends the claim and puts the job where it waits for its next attempt, or among the
//     dead ones. The job is always in exactly one place.
//   - paused: the handler asks for a pause of its user, tenant or queue. The job is returned to the front of its
//     lane, and the pause begins with the same commit of the leader: no other job starts in between.
//   - sent on: the handler says that this worker cannot run the job. The leader gives it to another one. A job is sent on
//     once between two attempts that count: if no worker can run it, that is a failure.
//   - interrupted: the worker stops and has cancelled the handler. The job is returned; the attempt does not
//     count.
//
// A claim that has ended stays held until Redis has confirmed it. Whatever is told may be told twice: an end of a claim
// that is not there does nothing, and a change asks first whether the claim is.
//
// All of it is tried again until Redis answers, or the worker's time to stop is over. Then the lease ends, and
// the job runs again: at least once.

// finish tells how the attempt ended. It returns when Redis knows it, or the worker's time is over. Two outcomes are
// only noted, and told later: the end of a job that is done, and a return to the term in which this worker leads.
func (w *Worker) finish(j *job, o Outcome) {
	refund := ""
	if o.Refund {
		refund = store.Refund{Claim: j.Claim, Job: j.env}.String()
	}
	switch {
	case o.Pause != nil:
		w.ended(j, "paused", o.Error)
		w.giveBackAfter(j, o)
	case o.SentOn > 0:
		w.ended(j, "sent_on", o.Error)
		w.sendOn(j, o.SentOn)
	case o.Failed && !o.Dead && w.handling.Err() != nil:
		// Its context ended because the worker stops: the attempt does not count.
		w.ended(j, "interrupted", o.Error)
		o.Pause = &Pause{}
		w.giveBackAfter(j, o)
	case o.Failed:
		w.fail(j, o, refund)
	default:
		w.ended(j, "done", "")
		w.lift(j)
		if len(j.env.Members) > 0 {
			w.endDigest(j, refund)
			return
		}
		if refund != "" || j.env.Spilled != "" || j.env.Callback != "" {
			w.endAlone(j, refund)
			return
		}
		w.Claims.done(End{Claim: j.Claim, Awaited: j.Awaited})
	}
}

// ended counts how an attempt has ended, and notes it.
func (w *Worker) ended(j *job, outcome, text string) {
	w.Metrics.Ended(outcome)
	w.Past.ended(j, outcome, text)
}

// endAlone ends a job that is done, refunds its user, who has seen nothing of it, deletes its payload, and records that
// it is done, for those who are told. One script does all, if the claim was still held. So the refund is given once, even
// if the script is run again because its reply was lost, and a job that another worker has got
// meanwhile keeps its payload.
func (w *Worker) endAlone(j *job, refund string) {
	ack := store.Ack{Worker: w.Name, Claims: []envelope.Claim{j.Claim}, Payload: j.env.Spilled, Refund: refund}
	if j.env.Callback != "" {
		ended := *j.env
		ended.Payload = ""
		ack.Done = ended.String()
	}
	if w.Retry("acknowledging", func(ctx context.Context) error {
		_, err := retry.Persist(ctx, w.Patience(), func(ctx context.Context) (store.Reading, error) { return w.Store.Ack(ctx, ack) })
		return err
	}) {
		w.Claims.drop(j.Claim)
	}
}

// lift lifts the lock of a job that is done. One that cannot be lifted ends with its time.
func (w *Worker) lift(j *job) {
	for _, part := range j.env.Parts() {
		if part.Lock == "" {
			continue
		}
		if err := w.Store.LiftLock(w.outlive, part.Lock, part.Name()); err != nil {
			w.Log.Warn("a lock of asynq.Unique holds until its time is over", "id", part.Name(), "type", part.Type, "err", err)
		}
	}
}

// fail ends an attempt that did not succeed: the job waits for its next one, or is dead. What the queue remembers of
// the job is written with it: how many attempts have failed, since when it may start again, its last error, and whether
// it yields. A payload that is kept apart stays where it is.
//
// The slot of its first claim goes with it, too: when its time has come it stands before the jobs of its lane that were
// claimed later, whichever of them came back first.
func (w *Worker) fail(j *job, o Outcome, refund string) {
	next := *j.env
	if !o.Uncounted {
		next.Failures++
	}
	next.Ready, next.Late, next.SentOn, next.Slot = 0, 0, false, cmp.Or(next.Slot, j.Claim.Spent)
	if next.Spilled != "" {
		next.Payload = ""
	}
	delay := max(0, o.Delay)
	if o.Dead || !o.Uncounted && next.Failures >= next.MaxAttempts {
		delay = -1
	} else {
		now, _ := w.Clock.Now()
		next.Ready = now + delay.Microseconds()
	}
	// What is dead has the whole error beside it.
	if next.Error = ""; delay >= 0 {
		next.Error = clip(o.Error, shownError)
	}
	// A newer job under its collapse key would get the low priority with the place.
	next.Yields = o.Yield && delay >= 0 && next.CollapseKey == ""
	f := store.Failure{
		Worker: w.Name, Claim: j.Claim, Delay: delay, Job: next.String(), IDs: j.env.IDs(), Parts: len(j.env.Members),
		Error: clip(o.Error, keptError), Refund: refund,
	}
	held := false
	if w.Retry("reporting failures", func(ctx context.Context) (err error) {
		held, err = w.Store.Fail(ctx, f)
		return err
	}) {
		w.Claims.drop(j.Claim)
	}
	w.ended(j, "failed", o.Error)
	if held && delay > 0 {
		w.Metrics.Waited(WaitBackoff, delay)
	}
	if held && delay < 0 {
		w.ended(j, "dead", o.Error)
		w.Log.Error("a job is dead", "id", j.env.Name(), "type", j.env.Type, "attempt", next.Failures, "err", f.Error)
	}
}

// bury keeps a job that cannot be run among the dead, as it was read.
func (w *Worker) bury(j *job, text string, why error) {
	f := store.Failure{Worker: w.Name, Claim: j.Claim, Delay: -1, Job: text, Error: why.Error()}
	if j.env != nil {
		f.IDs, f.Parts = j.env.IDs(), len(j.env.Members)
	}
	w.Log.Error("a job is dead", "claim", j.Claim, "err", why)
	if w.Retry("reporting failures", func(ctx context.Context) error {
		_, err := w.Store.Fail(ctx, f)
		return err
	}) {
		w.Claims.drop(j.Claim)
	}
	w.Metrics.Ended("dead")
}

// endDigest ends a digest that is done, and each of its members with it.
func (w *Worker) endDigest(j *job, refund string) {
	now, _ := w.Clock.Now()
	end := store.DigestEnd{ClaimRef: store.ClaimRef{Worker: w.Name, Claim: j.Claim}, Job: j.env, Refund: refund, Now: now}
	if w.Retry("acknowledging", func(ctx context.Context) error { return w.Store.EndDigest(ctx, end) }) {
		w.Claims.drop(j.Claim)
	}
}

// giveBack returns a claim that will not start here: the rules get its slot back.
func (w *Worker) giveBack(claim envelope.Claim) {
	w.returnClaim(store.Return{Claim: claim, Kind: store.ReturnUnstarted})
}

// giveBackChanged returns a claim of a job that was cancelled, or has taken the place of the one that the rules have counted: that
// one, or nil.
func (w *Worker) giveBackChanged(claim envelope.Claim, counted *envelope.Envelope) {
	w.returnClaim(store.Return{Claim: claim, Kind: store.ReturnChanged, Counted: counted})
}

// giveBackLate returns a claim that has missed its slot by so many µs: the rules get that back, and
// the job gets another one.
func (w *Worker) giveBackLate(claim envelope.Claim, by int64) {
	w.returnClaim(store.Return{Claim: claim, Kind: store.ReturnLate, Late: by})
}

// sendOn returns a claim that another worker is to have; this one can run none until then.
func (w *Worker) sendOn(j *job, until int64) {
	w.returnClaim(store.Return{Claim: j.Claim, Kind: store.ReturnSentOn, Until: until})
}

// giveBackAfter returns a claim whose attempt does not count, and pauses its scope, if it has one.
func (w *Worker) giveBackAfter(j *job, o Outcome) {
	kind := store.ReturnPaused
	if o.Refund {
		kind = store.ReturnRefunded
	}
	w.returnClaim(store.Return{Claim: j.Claim, Kind: kind, Scope: o.Pause.Scope, Until: o.Pause.Until, Reason: clip(o.Error, shownError)})
}

// returnClaim asks the leader to take a claim back. Until the leader has done so the claim is among the returned ones,
// and not among those that are held. A notice that is lost is written again by a comparison.
func (w *Worker) returnClaim(r store.Return) {
	r.Worker = w.Name
	w.Claims.giveUp(r.Claim, r.Notice())
	w.tell(r.Notice())
}
