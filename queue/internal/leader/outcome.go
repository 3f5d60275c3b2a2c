package leader

import (
	"context"
	"errors"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// What follows from a commit depends on what has become of it:
//
//	happened   the reply says that it was done
//	decided    it is known whether it was done, by a reply or by the numbers (flights.go)
//	release    it was not: places, orders and what it was to mend are given back

// errSilent says that no reply has come for as long as a lease lasts while there is something to do. Another worker may
// lead by then, to whom this one has something to tell. Whether the commit has happened is unknown, as where a connection
// breaks. A reply that comes later is not looked at.
var errSilent = errors.New("queue: Redis has not replied to a commit for as long as the leader's lease lasts")

// end notes what came of the commit, once.
func (b *inflight) end(reply store.CommitReply, err error) {
	b.ended.Do(func() {
		b.reply, b.err = reply, err
		close(b.done)
	})
}

// happened does what follows from a commit that has happened. Own jobs start first: what was read can wait. Notices
// whose effects are committed are deleted now and then. If the lease had run out before, everything has to be read
// again.
func (b *inflight) happened(ctx context.Context) error {
	t, reply := b.t, b.reply
	t.w.Metrics.Committed()
	t.renewed = time.Now()
	if b.c.Writes() {
		t.wrote = t.renewed
	}
	if len(b.commit.Plan.Starts)+len(b.ends) > 0 || b.mends {
		t.worked = t.renewed
	}
	t.fleet.noteTrip(time.Since(b.began))
	b.decided(true)
	for i, worker := range b.looked {
		t.roomy = t.fleet.sawMailbox(worker, reply.Untaken[i], t.w.Now()) || t.roomy
	}
	for _, problem := range reply.Errors {
		t.w.Log.Error("a key of the queue has another type; its owner is skipped", "err", problem)
	}
	if err := t.learn(ctx, b.commit, reply.Looks); err != nil {
		return err
	}
	if b.notice != "" {
		t.settled.Store(b.notice)
	}
	b.recycle()
	if reply.Lapsed {
		return errLapsed // what was told meanwhile was told to nobody
	}
	return nil
}

// release gives the places back that the plan has taken in this worker, and lets the term tell what was to be told with
// another commit. What the commit was to mend is read again.
func (b *inflight) release() {
	b.t.orders = append(b.orders, b.t.orders...)
	b.t.roomy = true // the next decision comes at once
	if b.mends {
		b.t.stale, b.t.musterAt, b.t.ripeAt = true, 0, 0
	}
	for i := range b.commit.Plan.Starts {
		s := &b.commit.Plan.Starts[i]
		if s.Worker == b.t.w.Name {
			b.t.w.Places.Give()
		}
	}
}

// decided does what follows when it is known whether the commit happened: of one that has not, places, ends and orders
// are given back. Of one that has, ends are confirmed, requests are settled, and this worker's own jobs start.
func (b *inflight) decided(happened bool) {
	t, own := b.t, b.t.w.Name
	if !happened {
		t.w.Claims.GiveBack(b.ends)
		b.release()
		return
	}
	t.w.Claims.Confirmed(b.ends)
	if len(b.ends) > 0 {
		ended := make(schedule.Ended, len(b.ends))
		for i, e := range b.ends {
			ended[i] = e.Claim
		}
		t.roomy = t.sched.Step(b.at, ended) || t.roomy
	}
	for _, d := range b.commit.Plan.Drops {
		if d.Head.Env != nil {
			for _, part := range d.Head.Env.Parts() {
				t.w.Past.Dropped(part, b.at, t.reasonOf(d, part), d.Rule)
				t.sched.Step(b.at, schedule.IDDropped{ID: part.ID})
			}
		}
	}
	t.countRefused(b.commit.Plan.Drops)
	t.requests = t.requests[b.requests:]
	t.waited(b.commit.Plan.Starts)
	for i := range b.commit.Plan.Starts {
		s := &b.commit.Plan.Starts[i]
		t.w.Claimed(s)
		if s.Worker == own {
			t.w.Accept(worker.Given{Claim: s.Claim, Job: s.Head.Job, Env: s.Head.Env, Placed: true, Awaited: s.Awaited})
		}
		for _, limit := range s.Limits {
			t.w.Metrics.Counted(limit)
		}
	}
	t.w.Metrics.Claimed(len(b.commit.Plan.Starts))
}

// waited counts what the jobs of a commit have waited for. That of a job which missed its slot was counted when it was claimed
// before.
func (t *term) waited(starts []schedule.Start) {
	var sum schedule.Wait
	for i := range starts {
		if s := &starts[i]; s.Head.Env.Late == 0 {
			sum.Add(&s.Wait)
		}
	}
	for cause, us := range map[string]int64{
		worker.WaitRules: sum.Rules, worker.WaitPauses: sum.Pauses, worker.WaitConcurrency: sum.Concurrency, worker.WaitPlaces: sum.Places,
	} {
		if us > 0 {
			t.w.Metrics.Waited(cause, clock.Micros(us))
		}
	}
}
