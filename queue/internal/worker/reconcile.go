package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A worker compares what it holds with what Redis says when a beat finds another number of claims, when it leads no
// more, and when it stops. Two differences are possible, and one kind of claim needs care:
//
//   - Redis has a claim that the worker does not know: its message was lost. It is taken in as if it had come now.
//   - The worker has a claim that Redis does not: its lease had run out, and another worker has the job, or will. Its
//     handler is told by its context. Only claims that were held before Redis was asked count: one that came
//     while the reply was on its way is not in it.
//   - A claim that was returned is still there: the leader has not read the notice yet, or the notice is lost. After a
//     second the notice is written again.

// Reconcile compares what is held with what Redis says: it starts what it does not know
// and lets go of what it has lost. Several comparisons may be under way at a time. After an error nothing was compared.
func (c *Claims) Reconcile(ctx context.Context) error {
	c.mu.Lock()
	c.comparisons++
	before := make(map[envelope.Claim]bool, len(c.held))
	for claim := range c.held {
		before[claim] = true
	}
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		if c.comparisons--; c.comparisons == 0 {
			clear(c.endedMeanwhile)
		}
		c.mu.Unlock()
	}()
	all, err := retry.Persist(ctx, c.w.Patience(), func(ctx context.Context) ([]store.Claimed, error) { return c.w.Store.Claimed(ctx, c.w.Name) })
	if err != nil {
		return err
	}
	there := make(map[envelope.Claim]bool, len(all))
	for _, claim := range all {
		there[claim.Claim] = true
		if c.w.Accept(Given{Claim: claim.Claim, Job: claim.Job, Compared: true}) {
			c.remember(claim.Claim)
			retry.Signal(c.w.missed)
		}
	}
	for claim := range before {
		if !there[claim] {
			c.lose(claim)
		}
	}
	if untaken := c.untaken(there); len(untaken) > 0 {
		c.telling.run(func() {
			for _, notice := range untaken {
				c.w.tell(notice)
			}
		})
	}
	return nil
}

// compare compares what is held with what Redis says. If Redis cannot be asked, a later beat does.
func (w *Worker) compare(ctx context.Context) {
	if err := w.Claims.Reconcile(ctx); err != nil {
		w.Log.Debug("comparing claims", "err", err)
	}
}

// returnAgain is after what time a claim is returned again that is still there: the notice may
// be lost.
const returnAgain = time.Second

// untaken returns the notices about returned claims that are to be written again. It lets go of
// the claims that are not there any more.
func (c *Claims) untaken(there map[envelope.Claim]bool) (notices []store.Notice) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for claim, q := range c.returned {
		switch {
		case !there[claim]:
			delete(c.returned, claim)
			c.note(claim)
		case time.Since(q.told) >= returnAgain:
			c.returned[claim] = returned{q.notice, time.Now()}
			notices = append(notices, q.notice)
		}
	}
	return notices
}

// foundFor is how long a message with a claim may be on its way: for so long a claim that a comparison has brought is
// remembered.
const foundFor = 5 * time.Minute

// remember notes a claim that a look has brought: the message that should have brought it
// may still come, when the job has long ended.
func (c *Claims) remember(claim envelope.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for old, at := range c.compared {
		if time.Since(at) > foundFor {
			delete(c.compared, old)
		}
	}
	c.compared[claim] = time.Now()
}

// lose notes that a claim is another worker's now, and cancels its handler's context. A job that still waits does not
// start (opened, run). A claim that is over needs nothing: its end has no effect in Redis.
func (c *Claims) lose(claim envelope.Claim) {
	c.mu.Lock()
	h := c.held[claim]
	var cancel context.CancelCauseFunc
	if h != nil && !h.over && h.lost.CompareAndSwap(false, true) {
		cancel = h.cancel
	}
	c.mu.Unlock()
	if cancel == nil {
		return
	}
	if h.started.Load() {
		c.w.Log.Warn("lost the lease of a running job: it will run again elsewhere", "claim", claim)
	}
	cancel(errLeaseLost)
}
