package leader

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/members"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A term begins when Redis has given this worker the token, and goes on until another worker leads, this one gives up,
// or it stops. Its end has an order:
//
//  1. Commits whose outcome is unknown are given up, and the worker's claims compared with Redis (abandon).
//  2. The worker's own jobs write to Redis from then on, and not to this term. Notices that the term has not
//     answered are posted (passOn).
//  3. The lease is given back, and a deputy told to lead (resign). What was sent under the token can happen no more.
//  4. The work beside the rounds ends.
//
// After an error the term goes on: it takes a new token, by which it learns what has happened, and reads everything
// again.

// Serve leads until somebody else does, this worker gives up, or ctx ends. The term has begun: Redis has given the
// token with first. When Serve returns nothing of the term is at work any more.
func Serve(ctx context.Context, w *worker.Worker, first store.Term) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t := &term{
		w: w, ctx: ctx, kicks: make(chan struct{}, 1), reports: make(chan func(int64), 16), sweeps: func() {}, batches: make(chan noticeBatch, 16), noticed: first.Notice,
		full: make(map[string]bool), trimmers: make(map[string]*trimmer), broken: make(map[envelope.Lane]bool),
		shared: newSharing(w), worked: time.Now(),
		fence: store.Fence{Token: first.Token, Lease: elect.Lease(w.Clock), Seq: first.Seq + 1, Changes: first.Changes},
	}
	t.fleet.w = w
	var reader sync.WaitGroup
	reader.Go(func() { t.readNotices(ctx, first.Notice) })
	w.Leads(t)
	w.Log.Debug("leading", "term", first.Token)

	err := t.lead(ctx)
	t.abandon()
	w.Leads(nil)
	w.Log.Debug("leading no more", "term", t.fence.Token, "why", err)
	t.passOn()
	if !errors.Is(err, store.ErrDeposed) {
		t.resign()
	}
	cancel()
	t.sweeps()
	t.workers.Wait()
	t.wakeReader()
	reader.Wait()
}

// lead goes round until the term ends, and says why it did. Errors are of three kinds: after errLapsed everything is
// read again; some end the term; after any other the outcome of commits is unknown, so it takes a new token first.
func (t *term) lead(ctx context.Context) error {
	trouble := retry.NewTrouble(t.w.Log, "leading")
	for {
		err := t.resync(ctx)
		for err == nil {
			trouble.After(nil)
			err = t.round(ctx)
		}
		for len(t.flights) > 0 { // nothing may be under way when everything is read again
			if failed := t.land(ctx); failed != nil {
				err = failed
			}
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, store.ErrDeposed), errors.Is(err, errTired), errors.Is(err, errFar), errors.Is(err, errExcess), errors.Is(err, errStopping):
			return err
		case errors.Is(err, errLapsed), errors.Is(err, errUnsure):
			t.w.Log.Debug("reading everything again", "why", err)
			continue
		}
		// Redis has lost the policies, or nobody knows what became of the last commit. Under a
		// new token nothing that was sent under the old one can happen any more.
		for err != nil {
			retry.Pause(ctx, trouble.After(err))
			if ctx.Err() != nil {
				err = ctx.Err()
			} else {
				err = t.renew(ctx)
			}
			if errors.Is(err, store.ErrDeposed) || ctx.Err() != nil {
				return err
			}
		}
	}
}

// passOn posts the notices of this worker's own jobs that this term has not settled: the next leader finds them in
// Redis. Notices of others are there already, since only a commit that settles them notes their IDs.
func (t *term) passOn() {
	var left []store.Notice
	for _, q := range t.requests {
		if q.own != nil {
			left = append(left, *q.own)
		}
	}
	left = append(left, t.w.Notices.Take()...)
	if len(left) > 0 {
		t.w.Retry("writing to the leader", func(ctx context.Context) error { return t.w.Store.Write(ctx, left...) })
	}
}

// resign lets somebody else lead at once. It tries for a second: after that the lease ends by itself.
func (t *term) resign() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.w.Outlive()), time.Second)
	defer cancel()
	if err := t.w.Store.Resign(ctx, t.fence.Token, t.successor()); err != nil {
		t.w.Log.Debug("resigning", "err", err)
	}
}

// successor returns the deputy that leads next: the one that knows Redis's clock best; "" for none.
func (t *term) successor() string {
	if t.nearest != nil {
		return t.nearest.Worker
	}
	return ""
}

// anyDeputy returns one of the deputies, whichever it is.
func (t *term) anyDeputy() *member {
	name := t.deputies[rand.IntN(len(t.deputies))]
	for _, m := range t.fleet.members[1:] {
		if m.Worker == name {
			return m
		}
	}
	return t.nearest
}

// Kick lets the term look at once: a round that waits goes on. Any goroutine may call it.
func (t *term) Kick() { retry.Signal(t.kicks) }

// Need says how the jobs do for places. While it is [members.Short] whoever frees a place kicks. Any goroutine may call it.
func (t *term) Need() members.Need {
	switch {
	case t.hungry.Load():
		return members.Short
	case t.busy.Load():
		return members.Busy
	}
	return members.Enough
}
