package leader

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A commit is written in the order in which the parts need each other:
//
//	Decide or Amend   what was decided, what rules remember by it, and what is to be read
//	leave             jobs leave their lanes; those that start become claims
//	start, drop       what else belongs to a start: the message to its worker, counters, the caller's ID
//	write             states of rules, bounds of lanes, orders to workers, reads
//	post              it is sent, with the ends of this worker's own jobs
//
// Then [term.launch] has put it among those under way, and one of three things happens:
//
//	happened          it has happened: own jobs start, what it read is learned (outcome.go)
//	undo              it was refused, with all behind it: everything is taken back (flights.go)
//	resolve           its reply is lost: the numbers tell which happened (flights.go)
//
// A commit was decided some time ago, by a copy. Each thing that may have changed since is looked at by the script before
// it writes anything:
//
//	somebody else leads                              the token
//	a commit before this one did not happen          the number
//	policies or pauses have changed, or a repair     the number of changes
//	Redis's clock is behind that of the decision     the latest slot (post)
//	a job was purged, cancelled or replaced          the first entries of its lane (leave)
//	a job with an ID was cancelled                   the set of cancelled IDs (start)
//	a worker has left                                its place among the workers (start)
//	a key has another type                           the types of the keys that are written
//
// The first four refuse the commit as a whole. The others are checks with numbers: the reply has those that failed, and
// heed learns from them what the leader did not know. In each case the commit has done nothing.

// An inflight is a commit with all that follows from it. It is filled in three steps: by the decision (commit, mends,
// at), by writing (c, and what checks and reads are about), and by the launch (seq, notice, follows, ends). Reply and
// err are written by whoever waits (end), before done is closed; the rounds read them after that.
type inflight struct {
	t         *term
	c         *store.Commit
	commit    schedule.Commit // what the scheduler has handed out for it
	cancelled map[int]string  // whose cancelling a check looks for
	lives     map[int]string  // the worker that a check is about
	given     map[string]bool // other workers that are given something
	looked    []string        // those whose mailboxes it looks into
	ends      []worker.End
	requests  int     // that are settled by it
	mends     bool    // it mends something, and starts nothing
	orders    []order // that it tells
	at        int64   // when it was decided
	began     time.Time
	seq       int64  // its number
	follows   bool   // another one was under way when it was sent
	notice    string // the newest notice whose effects are in it; "" if it is that of the commit before
	ended     sync.Once
	done      chan struct{} // closed when there is a reply, or none is waited for any more
	reply     store.CommitReply
	err       error
}

// newCommit returns a commit in which nothing was decided yet, for a decision at an instant. It ends in launch or
// recycle.
func (t *term) newCommit(at int64) *inflight {
	b := &inflight{t: t, at: at, began: time.Now()}
	if n := len(t.spare); n > 0 {
		b.c, t.spare = t.spare[n-1], t.spare[:n-1]
	} else {
		b.c = t.w.Store.NewCommit()
	}
	return b
}

// recycle lets the memory of the commit be used for another one. Its reply is known, or it was not sent.
func (b *inflight) recycle() {
	b.c.Reset()
	b.t.spare = append(b.t.spare, b.c)
	b.c = nil
}

// write puts the plan, and what has changed with it, into the commit. The commit reads what has to be known before more
// can be decided. It takes the orders of the term along; if the commit does not happen they are put back (release).
func (b *inflight) write(now int64) {
	t, c := b.t, b.c
	b.cancelled = make(map[int]string)
	b.lives, b.given = make(map[int]string), make(map[string]bool)
	b.leave()
	for i := range b.commit.Plan.Starts {
		b.start(&b.commit.Plan.Starts[i])
	}
	for _, drop := range b.commit.Plan.Drops {
		b.drop(drop, now)
	}
	for _, state := range b.commit.States {
		ms := (state.Until-now)/1000 + 1
		if ms <= 0 {
			state.Text = ""
		}
		c.State(state.Scope, state.Text, ms+stateKept)
	}
	for _, p := range b.commit.Parks {
		c.Bound(p.Lane, p.At)
	}
	b.orders, t.orders = t.orders, nil
	for _, o := range b.orders {
		c.Tell(o.worker, o.words...)
	}
	b.want(b.commit.Needs)
	// A look alone is no reason for a commit while others are under way: each would be the reason for the next, as fast as
	// Redis answers.
	if len(t.flights) == 0 || !c.Empty() {
		for _, worker := range t.fleet.stalled() {
			b.lookAt(worker)
		}
	}
}

// stateKept is for how long what rules remember is kept after it binds nobody any more, in ms:
// it tells whoever looks since when a job could have started.
const stateKept = 10_000

// leave takes the jobs out of their lanes. Those that start become claims. The plan has all jobs that leave in their
// order, and those that start in the same order, so one walk finds which of them start. A commit takes from a lane
// once: jobs of one lane are put together, though other lanes came in between.
func (b *inflight) leave() {
	left, starts := b.commit.Plan.Left, b.commit.Plan.Starts
	type taken struct {
		lane    envelope.Lane
		entries []store.Leaving
	}
	lanes := make([]taken, 0, len(left))
	of := make(map[envelope.Lane]int, len(left)) // its place among lanes
	for i := range left {
		l := &left[i]
		e := store.Leaving{Begin: l.Begin}
		if len(starts) > 0 && starts[0].Lane.SameUser(l.Lane) && starts[0].Head.Begin() == l.Begin {
			if _, folded := starts[0].Head.Collapse(); !folded {
				e.Worker, e.Claim = starts[0].Worker, starts[0].Claim
			}
			starts = starts[1:]
		}
		if k, known := of[l.Lane]; known {
			lanes[k].entries = append(lanes[k].entries, e)
			continue
		}
		of[l.Lane] = len(lanes)
		lanes = append(lanes, taken{l.Lane, []store.Leaving{e}})
	}
	for _, l := range lanes {
		b.c.Take(l.lane, l.entries)
	}
}

// heed learns from the checks that have failed, so that the next commit does not fail by the same: a lane that cannot
// hold jobs, a worker that has left, a job that was cancelled. That a lane is not as it was need not be learned: it was
// undone, and is read again.
func (b *inflight) heed(checks []int) {
	t := b.t
	t.setAside(b.c.Broken(checks))
	for _, check := range checks {
		if worker := b.lives[check]; worker != "" { // it has left: nobody is given anything there
			t.fleet.remove(worker)
		}
		if id := b.cancelled[check]; id != "" {
			t.sched.Step(b.at, schedule.IDCancelled{ID: id})
		}
	}
	t.w.Log.Debug("a commit was refused: something is not as it was", "checks", len(checks))
}

// start gives a job to its worker. The leader's own jobs need no message: they start when the reply is
// there. Of each worker that is given something the commit checks that it has not left, and reads since when a message
// waits for it. A job with an ID is checked for having been cancelled.
func (b *inflight) start(s *schedule.Start) {
	job := s.Head.Job
	key, folded := s.Head.Collapse()
	fold := store.Folded{Tenant: s.Lane.Tenant, User: s.Lane.User, Key: key}
	switch {
	case folded && len(s.Head.Env.Members) > 0:
		job = "" // the worker reads which members it has by then
		b.c.ClaimDigest(s.Worker, s.Claim, fold, s.Head.Env.Record())
	case folded:
		b.c.ClaimFolded(s.Worker, s.Claim, fold)
	}
	if s.Worker != b.t.w.Name {
		if !b.given[s.Worker] {
			b.given[s.Worker] = true
			b.lookAt(s.Worker)
			b.lives[b.c.Lives(s.Worker)] = s.Worker
		}
		word := store.MessageJob
		if s.Awaited {
			word = store.MessageNext
		}
		b.c.Tell(s.Worker, word, s.Claim.String(), job)
	}
	b.c.Count(s.Lane.Tenant, "started", 1)
	if s.Head.Env.Late == 0 { // what held it back was counted when it was claimed before
		if s.Wait.Blame.Rule != "" {
			b.c.Blame(s.Wait.Blame.Rule, s.Wait.Blame.For)
		}
		if s.Objection != "" {
			b.c.Object(s.Objection)
		}
	}
	if id := s.Head.Env.ID; id != "" {
		b.cancelled[b.c.NotCancelled(id)] = id
		if !folded { // otherwise the worker sees whose ID it is
			b.c.Track(id, "started")
		}
	}
}

// lookAt lets the commit read since when a message waits in a worker's mailbox.
func (b *inflight) lookAt(worker string) {
	b.looked = append(b.looked, worker)
	b.c.ReadMailbox(worker)
}

// sooner lowers the bounds that Redis has of a user's lanes: a slot was given back, or the first job is another one.
// The scheduler lowers those that it has; a lane that it has forgotten would wait for the old bound. It forgets none that
// has a label.
func (t *term) sooner(c *store.Commit, lane envelope.Lane, now int64) {
	lane.Label = ""
	for p := range 3 {
		lane.Priority = p
		c.Sooner(lane, now)
	}
}

// drop records that a job never runs. One that cannot be read is dead: its text is kept for people.
func (b *inflight) drop(d schedule.Drop, now int64) {
	if d.Head.Env == nil {
		b.t.w.Log.Error("a job cannot be read; it is dead", "tenant", d.Lane.Tenant, "user", d.Lane.User, "err", d.Head.Err)
		b.c.Unread(d.Lane, d.Head.Entry, d.Head.Err.Error(), now)
		return
	}
	b.c.Count(d.Lane.Tenant, "dropped", 1)
	if key, folded := d.Head.Collapse(); folded {
		fold := store.Folded{Tenant: d.Lane.Tenant, User: d.Lane.User, Key: key}
		if n := len(d.Head.Env.Members); n > 0 {
			b.c.CloseDigest(fold, d.Head.Env.Record(), n)
		} else {
			b.c.Unfold(fold, d.Head.Env.Stamp)
		}
	}
	if n := len(d.Head.Env.Members); n > 1 {
		b.c.Count(d.Lane.Tenant, "out", int64(n-1))
	}
	for _, part := range d.Head.Env.Parts() {
		job := d.Head.Job
		if part != d.Head.Env {
			job = part.String()
		}
		b.c.Drop(d.Lane, job, b.t.reasonOf(d, part), d.Rule, now)
		if part.Spilled != "" {
			b.c.Discard(part.Spilled)
		}
		if id := part.ID; id != "" {
			if check := b.t.forgetID(b.c, id); check != 0 && b.cancelled != nil {
				b.cancelled[check] = id
			}
		}
	}
}

// reasonOf returns why a job is dropped. Of the members of a digest some may have been cancelled, and the others not.
func (t *term) reasonOf(d schedule.Drop, part *envelope.Envelope) string {
	if part != d.Head.Env && t.sched.Cancelled(part.ID) {
		return schedule.Cancelled
	}
	return d.Reason
}

// post sends the commit, with the ends of this worker's own jobs. Its slots bound how early it may happen:
// Redis refuses a commit with slots too far ahead of its clock, which were decided by a clock that runs
// ahead ([store.ErrAhead]).
func (b *inflight) post(ctx context.Context) {
	t := b.t
	b.ends = t.w.Claims.TakeEnds()
	if len(b.ends) > 0 {
		claims := make([]envelope.Claim, len(b.ends))
		for i, e := range b.ends {
			claims[i] = e.Claim
		}
		b.c.Ack(t.w.Name, claims)
	}
	t.fence.Lease = t.lease(b.c)
	fence := t.fence
	fence.Seq, fence.Notice = b.seq, b.notice
	for i := range b.commit.Plan.Starts {
		fence.Slot = max(fence.Slot, b.commit.Plan.Starts[i].Spent)
	}
	b.done = make(chan struct{})
	wait := t.w.Store.Send(ctx, fence, b.c)
	silence := time.AfterFunc(t.patience(), func() { b.end(store.CommitReply{}, errSilent) })
	go func() {
		b.end(wait())
		silence.Stop()
	}()
}
