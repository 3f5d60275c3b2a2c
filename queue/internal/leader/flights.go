package leader

import (
	"context"
	"errors"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Several commits are under way at a time, and any of them may be refused, or lose its reply. What
// has happened is known all the same:
//
//  1. The commits of a leader are numbered. Redis does number n only after number n-1 (commit.lua).
//     So if one does not happen, none behind it does.
//  2. A refusal is a reply: that commit is no longer on its way, and has done nothing. The ones behind
//     it are refused for their numbers. The scheduler takes back what was decided in all of them
//     ([schedule.Scheduler.Undo]), and the next commit gets the number of the first ([term.mend]).
//  3. Where a reply is lost, or has not come for as long as a lease lasts, the commit may have happened, or may happen
//     later. Its number cannot be given again: the old commit could then happen in the place of the new one. So the leader
//     takes a new token ([term.renew]). From then on Redis refuses all that was sent under the old one.
//  4. With the new token Redis returns the number of the last commit that happened. Commits up to that
//     number have happened, those after it never will ([term.resolve]).
//  5. If the leader does not get a new token, because it stops or somebody else leads, it gives back
//     what it had decided for itself, and compares its claims with those in Redis ([term.abandon]).

// window is how many commits are under way at most. Redis is busy with one while the next
// is on its way, and the leader decides another one.
const window = 8

// How many commits are under way costs nothing where Redis is near: the first reply comes while the second commit is
// decided. Far away it is what keeps Redis busy. Their jobs take places from the decision on: a worker's places bound
// how much can be under way.

// launch sends a commit behind those under way, and returns without waiting. Redis refuses it if the one before it has
// not happened. The commit notes the newest notice that was opened only if it settles all requests: of the others, which
// are returns then, the next leader has to learn by opening the notices again.
func (t *term) launch(ctx context.Context, b *inflight) {
	b.seq, b.follows = t.fence.Seq, len(t.flights) > 0
	if b.requests == len(t.requests) { // otherwise the next leader has to open the notices again
		b.notice = t.noticed
	}
	t.fence.Seq++
	t.flights = append(t.flights, b)
	b.post(ctx)
}

// land waits for the oldest commit under way and does what follows from it. Commits land in their order, since the
// scheduler learns in that order.
func (t *term) land(ctx context.Context) error {
	b := t.flights[0]
	<-b.done
	t.w.Clock.Observe(b.reply.Reading)
	if b.err != nil {
		return t.mend(ctx)
	}
	t.flights = t.flights[1:]
	return b.happened(ctx)
}

// landAll waits for all commits under way, up to the first that has failed: after that none are.
func (t *term) landAll(ctx context.Context) error {
	for len(t.flights) > 0 {
		if err := t.land(ctx); err != nil {
			return err
		}
	}
	return nil
}

// mend goes on after the oldest commit under way has failed. Those behind it cannot have happened without it. If one of
// the replies is no refusal all of them are in doubt, and the error leads to a new token. Otherwise they have done
// nothing: what was decided in them is undone, and decided again by what Redis says. A refused commit is not sent
// again. What the first refusal says is heeded; those behind it were refused for their numbers.
//
// A commit that came before the one that it follows is no trouble of Redis: some clients let one overtake another
// ([store.Store.Send]). One that follows none and has the wrong number means that this term's count is wrong: then a
// new token tells the right one.
func (t *term) mend(ctx context.Context) error {
	failed := t.flights
	t.flights = nil
	for _, b := range failed {
		<-b.done
	}
	for _, b := range failed {
		if !refused(b.err) {
			t.inDoubt = failed
			return b.err
		}
	}
	first := failed[0]
	t.fence.Seq = first.seq
	t.undo(failed)
	var differs *store.DiffersError
	var order *store.OrderError
	switch {
	case errors.As(first.err, &differs):
		first.heed(differs.Checks)
		return nil
	case errors.Is(first.err, store.ErrChanged):
		t.stale = true
		return nil
	case errors.Is(first.err, store.ErrAhead):
		t.w.LearnTime(ctx)
		return nil
	case errors.As(first.err, &order) && first.follows: // it came before the one that it follows
		return nil
	}
	return first.err
}

// undo takes back what was decided in commits that have not happened. The last one comes first, so that what was to be
// told is told in the same order later.
func (t *term) undo(failed []*inflight) {
	undone := make([]schedule.Commit, len(failed))
	for i, b := range failed {
		undone[i] = b.commit
	}
	t.sched.Undo(undone, t.w.Now())
	for _, b := range slices.Backward(failed) {
		b.decided(false)
	}
}

// refused reports whether a commit that failed so has certainly done nothing.
func refused(err error) bool {
	return errors.Is(err, store.ErrDeposed) || errors.Is(err, store.ErrChanged) || errors.Is(err, store.ErrAhead) ||
		errors.As(err, new(*store.DiffersError)) || errors.As(err, new(*store.OrderError))
}

// resolve does what follows when it is known that the last commit that happened has that
// number. What the commits in doubt have read is lost with their replies: the caller reads everything again.
func (t *term) resolve(last int64) {
	happened := slices.IndexFunc(t.inDoubt, func(b *inflight) bool { return b.seq > last })
	if happened < 0 {
		happened = len(t.inDoubt)
	}
	for _, b := range t.inDoubt[:happened] {
		b.decided(true)
	}
	t.undo(t.inDoubt[happened:])
	t.inDoubt = nil
}

// abandon ends the term with commits of which nobody will know whether they happened. Redis
// tells which jobs it gave to this worker. A notice of this worker's own jobs that one of
// them may have settled is settled again without harm.
func (t *term) abandon() {
	if t.inDoubt == nil {
		return
	}
	t.undo(t.inDoubt)
	t.inDoubt = nil
	if err := t.w.Claims.Reconcile(t.w.Outlive()); err != nil {
		t.w.Log.Debug("comparing claims", "err", err) // a beat will
	}
}
