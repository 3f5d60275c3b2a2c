package runner

import (
	"context"
	"math"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// batch is how many jobs one commit starts at most.
const batch = 128

// round decides and commits once, and waits for the next time if there is nothing more to
// do.
func (t *term) round(ctx context.Context) error {
	if err := t.fit(); err != nil {
		return err
	}
	for _, letter := range t.r.letters.take() {
		t.open([]store.Letter{letter})
		if n := len(t.requests); n > 0 && t.requests[n-1].own == nil && t.requests[n-1].letter == letter.Subject {
			t.requests[n-1].own = &letter
		}
	}
	if t.stale {
		return errStale
	}
	now, _ := t.r.clock.now()
	if now >= t.musterAt {
		if err := t.muster(ctx, now); err != nil {
			return err
		}
	}
	if t.freed {
		if err := t.count(ctx); err != nil {
			return err
		}
	}
	if err := t.ask(ctx); err != nil {
		return err
	}
	b := &bundle{t: t, c: t.r.store.NewCommit(), given: make(map[string]bool)}
	plan, err := t.plan(ctx, b)
	if err != nil {
		return err
	}
	needs := t.sched.Needs()
	if t.due(b, plan) {
		for _, lane := range needs.Heads {
			b.read(lane)
		}
		needs.Heads = nil
		if err := b.send(ctx, now); err != nil {
			return err
		}
	}
	if !needs.Empty() {
		return t.read(ctx, needs)
	}
	t.hungry.Store(plan.Hungry)
	if plan.Next <= now || len(b.reads) > 0 {
		return nil
	}
	return t.wait(ctx, plan.Next)
}

// fit reports why this worker should not lead on.
func (t *term) fit() error {
	if len(t.deputies) == 0 {
		return nil
	}
	if t.r.stopping() {
		return errStopping
	}
	if t.lateness.tired() {
		t.r.log.Warn("this worker is short of CPU; another one leads the queue", "successor", t.successor())
		return errTired
	}
	return nil
}

// ask reads what the requests need.
func (t *term) ask(ctx context.Context) error {
	if len(t.requests) == 0 {
		return nil
	}
	if err := t.prepare(ctx); err != nil {
		return err
	}
	known := true
	for _, q := range t.requests {
		known = t.sched.Known(q.lane) && known
	}
	if !known {
		return t.read(ctx, t.sched.Needs())
	}
	return nil
}

// plan decides, and writes everything into the commit.
func (t *term) plan(ctx context.Context, b *bundle) (schedule.Plan, error) {
	now, _ := t.r.clock.now()
	var err error
	if b.answers, err = t.settle(b.c, now); err != nil {
		return schedule.Plan{}, err
	}
	if err := t.reap(ctx, b.c, now); err != nil {
		return schedule.Plan{}, err
	}
	if err := t.mature(ctx, b.c, now); err != nil {
		return schedule.Plan{}, err
	}
	if err := t.trim(ctx, b.c, now); err != nil {
		return schedule.Plan{}, err
	}
	plan := t.sched.Decide(now, &t.fleet, batch)
	b.starts = plan.Starts
	b.write(plan, now)
	return plan, nil
}

// due reports whether the commit is to be sent now.
func (t *term) due(b *bundle, plan schedule.Plan) bool {
	if plan.Hungry && !t.hungry.Load() && len(t.fleet.members) > 1 {
		b.c.Hungry()
	}
	n, age := t.r.claims.due()
	return !b.c.Empty() || len(t.requests) > 0 || n > 0 && (age >= ackDelay || n >= 20) ||
		time.Since(t.renewed) >= renewEvery
}

// mature puts jobs whose time has come into their lanes: one that was attempted already
// to the front, since it is the oldest.
func (t *term) mature(ctx context.Context, c *store.Commit, now int64) error {
	if now < t.ripeAt {
		return nil
	}
	ripe, next, err := t.r.store.Ripe(ctx, now, 100)
	if err != nil {
		return err
	}
	if t.ripeAt = next; next == 0 {
		t.ripeAt = math.MaxInt64
	}
	var fronts []store.Bounded
	for _, member := range ripe {
		lane, job, err := store.ParseLater(member.Name)
		env, bad := envelope.Open(job)
		if err == nil && bad == nil && env.Failures > 0 {
			fronts = append(fronts, member)
			continue
		}
		if err := t.matureOne(c, member.Name, lane, env, now); err != nil {
			return err
		}
	}
	for i := len(fronts) - 1; i >= 0; i-- { // the earliest one ends up first
		lane, job, _ := store.ParseLater(fronts[i].Name)
		env, _ := envelope.Open(job)
		if err := t.matureOne(c, fronts[i].Name, lane, env, now); err != nil {
			return err
		}
	}
	return nil
}

func (t *term) matureOne(c *store.Commit, member string, lane envelope.Lane, env *envelope.Envelope, now int64) error {
	c.Mature(member)
	if env == nil || lane.Tenant == "" {
		t.r.log.Error("a job that waits for its time cannot be read; it is dead")
		c.Bury(lane, member, "the job cannot be read", now)
		return nil
	}
	c.Count(lane.Tenant, "back", 1)
	return t.put(c, lane, env, env.Failures > 0, now)
}

// A bundle is a commit with all that follows from it.
type bundle struct {
	t       *term
	c       *store.Commit
	starts  []schedule.Start
	given   map[string]bool // other workers that are given something
	parks   []schedule.Park
	ends    []end
	reads   []envelope.Lane
	answers map[string]answer
	sent    int // requests that are settled by it
}

// read reads the first jobs of a lane with the commit.
func (b *bundle) read(lane envelope.Lane) {
	b.reads = append(b.reads, lane)
	b.c.Read(lane, headsEach)
}

// write puts a plan into the commit.
func (b *bundle) write(plan schedule.Plan, now int64) {
	t, c := b.t, b.c
	b.leave(plan.Left)
	for _, start := range plan.Starts {
		b.start(start)
	}
	for _, drop := range plan.Drops {
		b.drop(drop, now)
	}
	for _, blame := range plan.Blamed {
		c.Blame(blame.Rule, blame.For)
	}
	for _, rule := range plan.Object {
		c.Object(rule)
	}
	for _, state := range t.sched.States(now) {
		ms := (state.Until-now)/1000 + 1
		if ms <= 0 {
			state.Text = ""
		}
		c.State(state.Scope, state.Text, ms)
	}
	b.parks = t.sched.Parks()
	for _, p := range b.parks {
		c.Bound(p.Lane, p.At)
	}
	for _, o := range t.orders {
		c.Tell(o.worker, o.words...)
	}
	for _, lane := range t.empties {
		b.read(lane)
	}
}

// leave takes the jobs out of their lanes.
func (b *bundle) leave(left []schedule.Left) {
	var lanes []envelope.Lane
	entries := make(map[envelope.Lane][]string)
	for _, l := range left {
		if entries[l.Lane] == nil {
			lanes = append(lanes, l.Lane)
		}
		entries[l.Lane] = append(entries[l.Lane], l.Begin)
	}
	for _, lane := range lanes {
		b.c.Take(lane, entries[lane])
	}
}

// start gives a job to its worker.
func (b *bundle) start(s schedule.Start) {
	claim := store.ClaimName(s.Head.Env.Stamp, s.Spent, s.Lane)
	job := s.Head.Job
	if key, folded := s.Head.Collapse(); folded {
		job = "" // the worker reads which one it is by then
		b.c.ClaimFolded(s.Worker, claim, store.Folded{Tenant: s.Lane.Tenant, User: s.Lane.User, Key: key})
	} else {
		b.c.Claim(s.Worker, claim, job)
	}
	if s.Worker != b.t.r.cfg.Worker {
		if !b.given[s.Worker] {
			b.given[s.Worker] = true
			b.c.Lives(s.Worker)
		}
		b.c.Tell(s.Worker, wordJob, claim, job, text(s.Slot), text(s.Spent-s.Slot))
	}
	b.c.Count(s.Lane.Tenant, "started", 1)
	if id := s.Head.Env.ID; id != "" {
		b.c.Track(id, "started")
	}
}

// idMemory is how long the caller's own ID is known after its job was cancelled.
const idMemory = 24 * time.Hour

// drop records that a job never runs.
func (b *bundle) drop(d schedule.Drop, now int64) {
	b.c.Count(d.Lane.Tenant, "dropped", 1)
	key, folded := d.Head.Collapse()
	if d.Head.Env == nil {
		b.t.r.log.Error("a job cannot be read; it is dead", "tenant", d.Lane.Tenant, "user", d.Lane.User, "err", d.Head.Err)
		b.c.Bury(d.Lane, d.Head.Entry, d.Head.Err.Error(), now)
		return
	}
	if folded {
		b.c.Unfold(store.Folded{Tenant: d.Lane.Tenant, User: d.Lane.User, Key: key}, d.Head.Env.Stamp)
	}
	b.c.Drop(d.Lane, d.Head.Job, d.Reason, d.Rule, now)
	if d.Head.Env.Spilled != "" {
		b.c.Discard(d.Head.Env.Spilled)
	}
	if id := d.Head.Env.ID; id != "" {
		b.c.Track(id, "dropped")
		if d.Reason == schedule.Cancelled {
			b.c.Uncancel(id, idMemory)
		}
	}
}

// send sends the commit and does what follows from it.
func (b *bundle) send(ctx context.Context, now int64) error {
	t := b.t
	b.ends = t.r.claims.take()
	if len(b.ends) > 0 {
		claims := make([]string, len(b.ends))
		for i, e := range b.ends {
			claims[i] = e.claim
			if e.spilled != "" {
				b.c.Discard(e.spilled)
			}
		}
		b.c.Ack(t.r.cfg.Worker, claims)
	}
	b.sent = len(t.requests)
	t.fence.Mail = t.mailed
	reply, err := t.r.store.Commit(ctx, t.fence, b.c)
	t.r.clock.observe(reply.Reading)
	if err != nil {
		if !undone(err) {
			t.inDoubt = b.decided
			return err
		}
		b.decided(false)
		return err
	}
	t.r.cfg.Metrics.Committed()
	t.renewed = time.Now()
	b.decided(true)
	t.fence.Seq++
	if b.parks != nil {
		t.sched.Parked(b.parks)
	}
	for _, problem := range reply.Errors {
		t.r.log.Error("a key of the queue holds something else; its owner is passed over", "err", problem)
	}
	if err := t.learnHeads(ctx, b.reads, reply.Reads); err != nil {
		return err
	}
	if now >= t.trimAt && t.mailed != t.trimmed {
		t.trimAt, t.trimmed = now+musterEvery, t.mailed
		if err := t.r.store.TrimMail(ctx, t.mailed); err != nil {
			t.r.log.Debug("trimming the mail", "err", err)
		}
	}
	if reply.Lapsed {
		return errStale // what was told meanwhile was told to nobody
	}
	return nil
}

// decided does what follows when it is known whether the commit happened.
func (b *bundle) decided(happened bool) {
	t, own := b.t, b.t.r.cfg.Worker
	if !happened {
		t.r.claims.giveBack(b.ends)
		for _, s := range b.starts {
			if s.Worker == own {
				t.r.cfg.Places.give()
			}
		}
		return
	}
	t.r.claims.confirmed(b.ends)
	t.requests = t.requests[b.sent:]
	t.orders, t.empties = nil, nil
	for claim, a := range b.answers {
		t.r.letters.answer(claim, a)
	}
	mine := 0
	for _, s := range b.starts {
		if s.Worker == own {
			mine++
			job := s.Head.Job
			if _, folded := s.Head.Collapse(); folded {
				job = ""
			}
			t.r.accept(given{claim: store.ClaimName(s.Head.Env.Stamp, s.Spent, s.Lane), job: job, slot: s.Slot, spread: s.Spent - s.Slot, placed: true})
		}
	}
	t.r.cfg.Metrics.Claimed(len(b.starts))
}
