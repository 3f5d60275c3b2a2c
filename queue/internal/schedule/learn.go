package schedule

import (
	"cmp"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Needs are what a scheduler has to be told before it can decide on.
type Needs struct {
	Tenants bool        // the next tenants of the index
	Lanes   []LanesNeed // the next lanes of indexes
	Heads   []envelope.Lane
	States  []string // scopes
}

// A LanesNeed asks for lanes of a tenant and priority from a bound on, n at most.
type LanesNeed struct {
	Tenant   string
	Priority int
	From     int64
	N        int
}

// Empty reports whether nothing is needed.
func (n Needs) Empty() bool {
	return !n.Tenants && len(n.Lanes)+len(n.Heads)+len(n.States) == 0
}

// Needs returns what is needed now, once: whoever asks has to tell.
func (s *Scheduler) Needs() Needs {
	needs := s.needs
	s.needs = Needs{}
	return needs
}

// TenantsFront says which part of the index of tenants is needed next.
func (s *Scheduler) TenantsFront() (from int64, n int) { return s.front.frontier, s.front.limit }

// A Bound is a member of an index as Redis holds it.
type Bound struct {
	Name string
	At   int64
}

// LearnTenants tells the next tenants of the index.
func (s *Scheduler) LearnTenants(found []Bound) {
	fresh := 0
	for _, b := range found {
		if s.tenants[b.Name] == nil {
			fresh++
			s.rouse(s.tenant(b.Name), b.At)
		}
	}
	s.front.learn(len(found), fresh, lastOf(found))
}

func lastOf(found []Bound) int64 {
	if len(found) == 0 {
		return 0
	}
	return found[len(found)-1].At
}

// LearnLanes tells the next lanes of an index.
func (s *Scheduler) LearnLanes(need LanesNeed, found []Bound, now int64) {
	t := s.tenant(need.Tenant)
	index := &t.lanes[need.Priority]
	fresh := 0
	for _, b := range found {
		l := t.user(s, b.Name).lane(need.Priority)
		if l.at != outside {
			continue
		}
		fresh++
		l.noted = b.At
		index.due.set(l, max(b.At, s.turns.lane(l, now)))
	}
	index.learn(len(found), fresh, lastOf(found))
	t.waits = false
	s.rouse(t, now)
}

// LearnHeads tells the first jobs of a lane, all of them if there are fewer than were
// asked for.
func (s *Scheduler) LearnHeads(lane envelope.Lane, heads []Head, now int64) {
	t := s.tenant(lane.Tenant)
	l := t.user(s, lane.User).lane(lane.Priority)
	missed, bound := l.missed, l.bound()
	l.heap().remove(l)
	l.asked, l.missed = false, false
	s.hold(l, heads)
	s.rouse(t, now)
	switch {
	case len(heads) > 0:
		if env := heads[0].Env; env != nil { // it may have come while the lane was read: others were there before it
			bound = max(bound, min(env.Offered(), now))
		}
		l.index().due.set(l, bound)
		s.park(l, bound, now)
	case missed:
		s.read(l, bound)
	default:
		s.rest(l.user)
	}
}

// LearnQueueState tells what the rules of the queue remember.
func (s *Scheduler) LearnQueueState(state string) { s.queue.learn(state) }

// LearnUserState tells what the rules of a user remember.
func (s *Scheduler) LearnUserState(tenant, user, state string, now int64) {
	u := s.tenant(tenant).user(s, user)
	u.learn(state)
	s.rouse(u.tenant, now)
}

// LearnTenantState tells what the rules of a tenant remember, and how much of it waits.
func (s *Scheduler) LearnTenantState(name, state string, waiting, now int64) {
	t := s.tenant(name)
	t.learn(state)
	t.waits = false
	if t.policy.Capacity > 0 && waiting > int64(t.policy.Capacity) {
		s.over = append(s.over, name)
	}
	s.rouse(t, now)
}

// wake lets a lane be looked at from an instant on.
func (s *Scheduler) wake(l *lane, at int64) {
	l.heap().lower(l, at)
	s.rouse(l.user.tenant, at)
}

// Notice tells that a lane has got its first job. If the scheduler neither knows the lane nor will
// find it in its index, it comes in with that job.
func (s *Scheduler) Notice(lane envelope.Lane, head Head, now int64) {
	t := s.tenant(lane.Tenant)
	index := &t.lanes[lane.Priority]
	if l := t.find(lane); l != nil && l.asked {
		l.missed = true
		return
	}
	if index.frontier <= now && head.Env != nil && head.Env.Offered()-letterDelay >= index.frontier {
		if index.asked {
			index.lower(head.Env.Offered() - letterDelay)
		}
		s.rouse(t, now)
		return
	}
	l := t.user(s, lane.User).lane(lane.Priority)
	if len(l.heads) > 0 {
		return
	}
	if l.at != outside { // its bound is that of another job, or of a late start
		s.wake(l, now)
		return
	}
	if head.Env != nil && head.Env.Offered() < l.looked { // it may have left before it was looked for
		s.read(l, now)
		s.rouse(t, now)
		return
	}
	at := now
	if head.Env != nil { // lanes that are told of together keep the order of their offers
		at = min(now, head.Env.Offered())
	}
	l.noted = at
	s.hold(l, append(l.heads, head))
	s.wake(l, at)
}

// letterDelay is how much earlier than the stamp of its first job a lane's bound may be, in
// µs. A lane whose bound lies before the frontier is not found behind it.
const letterDelay = 1_000_000

// Look lets all lanes of a user be read again and looked at: their first jobs, or what
// bounds them, may have changed.
func (s *Scheduler) Look(tenant, user string, now int64) {
	t := s.tenant(tenant)
	u := t.user(s, user)
	u.paused = s.paused[u.scope()]
	for priority := range u.lanes {
		s.readAgain(u.lane(priority), now)
	}
}

// readAgain lets the first jobs of a lane be read. It keeps its place in line, or comes
// in at an instant.
func (s *Scheduler) readAgain(l *lane, at int64) {
	t := l.user.tenant
	l.looked = at
	if t.knows(l, at) { // otherwise its index brings it, in its place in line
		s.read(l, min(at, l.bound()))
	}
	s.rouse(t, at)
}

// knows reports whether what is known of a lane is all that Redis knows: it is in memory,
// or would be if it were due by that instant.
func (t *tenant) knows(l *lane, at int64) bool {
	return l.at != outside || t.lanes[l.priority].frontier > at
}

// read asks for the first jobs of a lane. It comes in again at the bound, if there are any.
func (s *Scheduler) read(l *lane, bound int64) {
	s.hold(l, nil)
	l.heap().remove(l)
	if !l.asked {
		l.asked = true
		s.needs.Heads = append(s.needs.Heads, l.name())
	}
	l.index().reading.set(l, bound)
}

// ForgetLanes tells that the lanes of a tenant are not what they were: its indexes are read again,
// and of each lane the first jobs. Lanes keep their places in line.
func (s *Scheduler) ForgetLanes(tenant string, now int64) {
	t := s.tenant(tenant)
	for p := range t.lanes {
		for _, entry := range t.lanes[p].due.entries {
			s.hold(entry.item, nil)
		}
	}
	s.loosen(t, now)
}

// Loosen tells that Redis has lowered the bounds of a tenant's lanes: its indexes are read again.
func (s *Scheduler) Loosen(tenant string, now int64) { s.loosen(s.tenant(tenant), now) }

// loosen lets all lanes of a tenant be looked at now, those that are not in memory included. They
// keep their order.
func (s *Scheduler) loosen(t *tenant, now int64) {
	for p := range t.lanes {
		index := &t.lanes[p]
		index.lower(0)
		var later []entry[*lane]
		for _, of := range []*heap[*lane]{&index.due, &index.reading} {
			for _, e := range of.entries {
				if e.bound > now {
					later = append(later, e)
				}
			}
		}
		slices.SortFunc(later, func(a, b entry[*lane]) int {
			return cmp.Or(cmp.Compare(a.bound, b.bound), cmp.Compare(a.since, b.since))
		})
		for _, e := range later {
			e.item.heap().set(e.item, now)
		}
	}
	s.rouse(t, now)
}

// idleUsers is how many users with nothing waiting are remembered, to spare reading their
// states again.
const idleUsers = 10_000

// rest notes that nothing of a user may be waiting.
func (s *Scheduler) rest(u *user) {
	if u.idle {
		return
	}
	u.idle = true
	s.idle = append(s.idle, u)
	for len(s.idle) > idleUsers {
		u := s.idle[0]
		s.idle = s.idle[1:]
		u.idle = false
		if u.quiet() {
			delete(u.tenant.users, u.name)
		}
	}
}

// quiet reports whether nothing is lost by forgetting a user.
func (u *user) quiet() bool {
	for _, l := range u.lanes {
		if l != nil && l.at != outside {
			return false
		}
	}
	return !u.changed && !u.asked && u.running == 0
}

// Rest returns tenants that have had nothing to do for some time: since it was asked
// twice. They are forgotten.
func (s *Scheduler) Rest() (names []string) {
	for name, t := range s.tenants {
		if t.inLine() || t.waits || t.asked || t.changed || !t.empty() {
			t.resting = 0
			continue
		}
		if t.resting++; t.resting < 2 {
			continue
		}
		names = append(names, name)
		delete(s.tenants, name)
	}
	return names
}

// empty reports whether a tenant has no lane, as far as Redis knows any.
func (t *tenant) empty() bool {
	for p := range t.lanes {
		if t.lanes[p].frontier != Never || t.lanes[p].due.len() > 0 {
			return false
		}
	}
	for _, u := range t.users {
		if !u.quiet() {
			return false
		}
	}
	return true
}
