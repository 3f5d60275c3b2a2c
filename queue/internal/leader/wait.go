package leader

import (
	"context"
	"math"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A term has one goroutine, that of its rounds. All else reaches it here: notices, reports of the work beside the
// rounds, and kicks from this worker's own jobs. So nothing of a term needs a lock.
//
// A term waits for as long as nothing is due: until the next bound, the next job that becomes ripe, the next muster,
// the end of an override, or until its lease has to be renewed. What wakes it early is not acted on at once if the last commit was less than
// [gatherFor] ago: notices, and lanes that fall due, come in swarms, and one commit for ten costs little more than
// one for one. Kicks are the exception, since a place is free and jobs wait for it.

// wait waits until there is something to decide, at the latest until the lease has to be
// renewed. Next is when the scheduler has something, in µs of Redis's clock. A timer that rings late says that this
// worker is short of CPU ([lateness]).
func (t *term) wait(ctx context.Context, next int64) error {
	now, _ := t.w.Clock.Now()
	for _, at := range []int64{t.ripeAt, t.musterAt, t.policies.End()} {
		next = min(next, at)
	}
	left := t.renewEvery() - time.Since(t.renewed)
	if next != math.MaxInt64 {
		left = min(left, clock.Micros(next-now))
	}
	due := time.Now().Add(left)
	if left > 0 {
		timer := time.NewTimer(left)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return ctx.Err()
		case p := <-t.batches:
			t.receive(p)
			return nil // the reading has gathered already
		case take := <-t.reports:
			take(t.w.Now())
		case <-t.kicks:
			return nil // a place is free, or a job waits for an answer: at once
		case <-timer.C:
			t.lateness.note(time.Since(due))
		}
	}
	t.gather(ctx)
	return nil
}

// gather lets more lanes fall due while commits follow each other closely.
func (t *term) gather(ctx context.Context) {
	if left := gatherFor - time.Since(t.wrote); left > 0 {
		retry.Pause(ctx, left)
	}
}

// collect takes in what has been told by now, without waiting. Notices of this worker's own jobs come from its tray; a
// return among them is kept with its request (own), since it is in no stream: if the term ends before it is settled, it
// is posted. Notices of others are left unread while there are many requests.
func (t *term) collect() {
	for _, notice := range t.w.Notices.Take() {
		t.open([]store.Notice{notice})
		if n := len(t.requests); n > 0 && t.requests[n-1].own == nil && notice.Subject == store.NoticeReturn {
			t.requests[n-1].own = &notice
		}
	}
	for len(t.requests) < mostRequests {
		select {
		case p := <-t.batches:
			t.receive(p)
		case take := <-t.reports:
			take(t.w.Now())
		default:
			return
		}
	}
}

// report lets the rounds take in what the work beside them has found, unless ctx ends before.
func (t *term) report(ctx context.Context, take func(now int64)) {
	select {
	case t.reports <- take:
	case <-ctx.Done():
	}
}
