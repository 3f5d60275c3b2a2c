package schedule

// A decision goes round: it takes the tenant whose turn it is, looks at the lane of it that is due, and either takes
// that lane's first job, moves a bound, or asks for something that it has to know. Each look ends in one of the three,
// so nothing is looked at twice for the same reason, and the number of looks is bounded.
//
// Tenants take turns by their shares: what they have been served, divided by their weight. Lanes of a tenant take turns
// by their bounds: a lane that was served stands behind all others that are due.

// Places hands out the places of the fleet.
type Places interface {
	// Next takes a free place, and returns where; nil if there is none.
	Next() *Place
	// Free gives a place back that Next has taken: nothing starts there.
	Free(*Place)
	// Reach returns the largest sum of Ahead and Spread that a place may have, in µs.
	Reach() int64
}

// A Place is where a job could run.
type Place struct {
	Worker string
	// Ahead is how far ahead of now a slot has to lie, in µs, so that the job is there in
	// time.
	Ahead int64
	// Spread is how much later than its slot the job may start, in µs, beyond the grace: the
	// worker does not know Redis's clock any better. The rules take it for so much later.
	Spread int64
}

// Decide takes the jobs that may start at now, or within the lead, n at most, and returns the commit that lets them
// start, with all else that is to be written and read. The scheduler counts it as done: whoever calls it writes it, and
// calls Learn or Undo. Jobs that are dropped count among the n.
//
// A start at or after the end of an override that governs the job is decided by the policies that hold then, and nothing at
// all is decided once the policies hold no more.
func (s *Scheduler) Decide(now int64, places Places, n int) Commit {
	end := s.policies.End()
	d := decision{s: s, now: now, horizon: min(now+s.lead, end-1), places: places, left: n}
	if now >= end {
		d.plan.Next, d.plan.share = now, s.share
		return s.commit(d.plan, now)
	}
	d.visits = 8*n + 200
	d.early = d.horizon
	if s.queue.rules.Len() > 0 { // whoever took a slot ahead would delay others
		d.early = now
	}
	s.reach, d.plan.share = places.Reach(), s.share
	d.plan.Starts, d.plan.Left = make([]Start, 0, s.decided), make([]Left, 0, s.decided)
	d.expire()
	d.decide()
	d.plan.Next = min(d.plan.Next, s.expiring.first())
	s.decided = len(d.plan.Left)
	return s.commit(d.plan, now)
}

// decide goes on until nothing more may start, or the plan is as long as it may be.
func (d *decision) decide() {
	s := d.s
	for ; d.left > 0 && d.visits > 0 && len(s.needs.Heads) < mostHeads && len(s.needs.Lanes) < mostIndexes; d.visits-- {
		if !s.frontKnown(d.horizon) {
			d.plan.Next = Never // what is needed comes first
			return
		}
		if d.call() {
			continue
		}
		t := d.nextTenant()
		if t == nil {
			if s.recall(d.horizon, d.now) {
				continue
			}
			d.plan.Next = s.nextInstant()
			return
		}
		if d.step(t) == stop {
			return
		}
	}
	d.plan.Next = d.now
}

// expire drops the first jobs of lanes that are too late by now, whatever keeps them from starting.
func (d *decision) expire() {
	for d.left > 0 && d.s.expiring.first() <= d.now {
		l := d.s.expiring.entries[0].item
		if d.s.lacksClock(l.user) { // it is told with the next commit
			d.s.askClock(l.user)
			d.s.expiring.set(l, d.now+Lead)
			continue
		}
		if d.s.policies.Closes() {
			d.of = d.s.shares(d.of[:0], l)
			if at := l.expiry(d.hours(d.of)); at > d.now {
				d.s.expiring.set(l, at)
				continue
			}
		}
		reason := Expired
		if d.s.CancelledAll(l.heads[0].Env) {
			reason = Cancelled
		}
		d.drop(l, reason, "")
	}
}

// mostHeads and mostIndexes bound how many lanes, and how many indexes of lanes, are read with one commit: Redis does nothing
// else meanwhile. Those of the last tenant may exceed it.
const (
	mostHeads   = 1000
	mostIndexes = 300
)

// nextInstant returns when there is something to decide, if nothing happens before; Never if there
// is nothing. It lies before the first bound by the lead, less half of the usual lead: lanes that fall due soon after
// each other share a commit, and half of the lead is left for the way.
func (s *Scheduler) nextInstant() int64 {
	if first := min(s.due.first(), s.opening.first()); first < blocked {
		return s.before(first)
	}
	return Never
}

// before returns when there is something to decide about what may start at an instant that lies beyond the horizon.
func (s *Scheduler) before(at int64) int64 {
	next := at - s.lead + Lead/2
	if end := s.policies.End(); at >= end {
		next = max(next, end)
	}
	return next
}

// frontKnown reports whether the front of the tenants is known as far as it matters: up to the horizon, or up to the
// first tenant in line. If not, it asks for more. A tenant before the frontier may be served meanwhile.
func (s *Scheduler) frontKnown(horizon int64) bool {
	if !s.queue.known {
		s.ask(s)
		return false
	}
	first := s.due.first()
	if s.ready.len() > 0 {
		first = min(first, s.ready.entries[0].item.bound)
	}
	if s.front.frontier > min(first, horizon) || s.front.frontier == Never {
		return true
	}
	if !s.front.asked {
		s.front.ask()
		s.needs.Tenants = s.front.next()
	}
	return first < s.front.frontier
}

// nextTenant returns the tenant whose turn it is, or nil: among those that are ready the one
// that has been served least, for its weight; then those whose bounds come soon. (It is
// start-time fair queueing: an idle tenant saves nothing up. One that was out of line for a reading was not idle.)
func (d *decision) nextTenant() *tenant {
	s := d.s
	if s.held != nil && s.held.inLine() && s.held.bound <= d.horizon {
		return s.held
	}
	s.held = nil
	for s.due.first() <= d.early {
		t := s.due.entries[0].item
		s.due.remove(t)
		if !t.awaits {
			t.share = max(t.share, s.share)
		}
		t.awaits = false
		s.ready.set(t, t.share)
	}
	if s.ready.len() > 0 {
		return s.ready.entries[0].item
	}
	if s.due.first() <= d.horizon {
		return s.due.entries[0].item
	}
	return nil
}

// A decision is under way: one call of Decide.
type decision struct {
	s            *Scheduler
	now, horizon int64 // the horizon is the end of the lead: jobs that may start until then may be taken
	early        int64 // who has a bound until then is ready
	places       Places
	left, visits int // how many jobs more may leave their lanes, and how often more something is looked at
	plan         Plan

	of         []share // whoever counts the job that is being looked at
	remembered []Remembered
	closing    []Remembered
}

// A verdict is what came of looking at a tenant.
type verdict int

const (
	on   verdict = iota // something was decided, corrected or asked for
	stop                // nobody can start anything now; the plan says until when
)

// step looks at the next lane of a tenant, and takes its first job if that may start. In this order:
//
//  1. What the tenant's rules remember has to be known.
//  2. A tenant at its concurrency limit leaves the line until one of its jobs has ended.
//  3. The tenant's rules and pauses have to allow a job of cost 1; otherwise its bound moves.
//  4. The lane whose turn it is has to be due; otherwise the tenant's bound moves to that of the lane.
//  5. The lane's first jobs, and what its user's rules remember, have to be known.
//  6. The first job is judged by all rules, at its own cost (slot.go).
func (d *decision) step(t *tenant) verdict {
	s := d.s
	if !t.known {
		return d.ask(t)
	}
	if s.full(&t.subject) {
		s.move(t, blocked)
		return on
	}
	open := max(d.now, t.paused, s.queue.paused)
	at, _ := t.rules.Earliest(&t.state, open, 1)
	if at > max(d.now, t.bound) {
		s.move(t, at)
		return on
	}
	if len(t.apart) > 0 {
		s.rejoin(t, d.now)
		return on
	}
	l, bound := d.lane(t, max(at, t.bound)) // by then, if the tenant waits for something big
	switch {
	case l == nil && bound == needed:
		return on
	case l == nil && t.reads():
		s.await(t)
		return on
	case l == nil:
		s.pass(t)
		return on
	case max(at, bound) > max(d.now, t.bound):
		s.move(t, max(at, bound))
		return on
	}
	if len(l.heads) == 0 || !l.user.known || s.lacksClock(l.user) {
		d.fetch(t)
		return on
	}
	return d.judge(t, l, at)
}

// ask asks for what is remembered of a tenant, and for its lanes that are due: one reading serves both.
func (d *decision) ask(t *tenant) verdict {
	t.waits = true
	d.s.ask(t)
	d.fetch(t)
	return on
}

// fetchMost is how many lanes of a tenant and priority are read at a time.
const fetchMost = 128

// fetch asks for what is lacking of a tenant's lanes that are due soon. The tenant waits
// for it, so that its lanes keep their order.
func (d *decision) fetch(t *tenant) {
	d.s.await(t)
	for p := range t.lanes {
		var empty []*lane
		due := &t.lanes[p].due
		for _, entry := range due.entries[:min(fetchMost, due.len())] {
			l := entry.item
			if entry.bound > d.horizon {
				continue
			}
			d.s.askClock(l.user)
			d.s.ask(l.user)
			d.s.askNamed(l)
			if len(l.heads) == 0 {
				empty = append(empty, l)
			}
		}
		for _, l := range empty {
			d.s.read(l, l.bound())
		}
	}
}

// needed is the bound of a lane that has to be read first.
const needed = -1

// lane returns the lane to look at and its bound: of the highest priority that has one
// due at t, or else the one that is due first. It returns needed without a lane if an
// index has to be read first, or the jobs of a lane of a higher priority, and Never if nothing
// waits.
func (d *decision) lane(t *tenant, at int64) (*lane, int64) {
	var first *lane
	soonest := int64(Never)
	read := int64(Never) // the bound of a lane of a higher priority whose jobs are being read
	for p := range t.lanes {
		index := &t.lanes[p]
		bound := index.due.first()
		if index.frontier <= max(at, d.horizon) && !index.leads() {
			d.askLanes(t, p)
			return nil, needed
		}
		if bound < soonest && read <= max(at, bound) {
			d.s.await(t)
			return nil, needed
		}
		if bound <= at {
			return index.due.entries[0].item, bound
		}
		read = min(read, index.reading.first())
		if bound < soonest {
			first, soonest = index.due.entries[0].item, bound
		}
		if index.frontier < soonest { // what is not known may be due before
			first, soonest = nil, index.frontier
		}
	}
	if first == nil && soonest < Never {
		// Nothing in memory is due before the frontier: look again then.
		d.s.move(t, soonest)
		return nil, needed
	}
	return first, soonest
}

// askLanes asks for the lanes of a tenant and priority beyond the frontier. The tenant waits for them.
func (d *decision) askLanes(t *tenant, priority int) {
	index := &t.lanes[priority]
	if !index.asked {
		index.ask()
		d.s.needs.Lanes = append(d.s.needs.Lanes, LanesNeed{t.name, priority, index.next()})
	}
	t.waits = true
	d.s.await(t)
}
