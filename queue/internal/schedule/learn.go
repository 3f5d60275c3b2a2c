package schedule

import (
	"cmp"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Needs are what a scheduler has to be told before it can decide on.
type Needs struct {
	Tenants Span            // of the index of tenants
	Lanes   []LanesNeed     // of indexes of lanes
	Heads   []envelope.Lane // whose first jobs are needed
	States  []string        // scopes whose rules' memory is needed
}

// A Span asks for the members of an index from a bound on, N at most; 0 asks for nothing.
type Span struct {
	From int64
	N    int
}

// A LanesNeed asks for lanes of a tenant and priority.
type LanesNeed struct {
	Tenant   string
	Priority int
	Span
}

// Empty reports whether nothing is needed.
func (n Needs) Empty() bool {
	return n.Tenants.N == 0 && len(n.Lanes)+len(n.Heads)+len(n.States) == 0
}

// A Bound is a member of an index as Redis holds it.
type Bound struct {
	Name string
	At   int64
}

// Found is what was read of what was needed, in the order of the [Needs].
type Found struct {
	Tenants []Bound
	Fronts  [][]Bound // of Needs.Lanes
	Heads   [][]Head  // of each lane all first jobs, if they are fewer than were asked for
	States  []string
	Waiting []int64 // for each of Needs.States that is a tenant's: how many of its jobs wait
}

// Learn tells that a commit has happened, and what was read with it.
func (s *Scheduler) Learn(c Commit, found Found, now int64) {
	s.noted(c.Parks)
	if c.Needs.Tenants.N > 0 {
		s.learnTenants(found.Tenants)
	}
	for i, need := range c.Needs.Lanes {
		s.learnLanes(need, found.Fronts[i], now)
	}
	for i, lane := range c.Needs.Heads {
		s.learnHeads(lane, found.Heads[i], now)
	}
	tenants := 0
	for i, scope := range c.Needs.States {
		switch tenant, user := envelope.ParseScope(scope); {
		case tenant == "":
			s.queue.learn(found.States[i])
		case user != "":
			s.learnUser(tenant, user, found.States[i], now)
		default:
			s.learnTenant(tenant, found.States[i], found.Waiting[tenants], now)
			tenants++
		}
	}
}

// learnTenants takes in the next tenants of the index.
func (s *Scheduler) learnTenants(found []Bound) {
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

// learnLanes takes in the next lanes of an index.
func (s *Scheduler) learnLanes(need LanesNeed, found []Bound, now int64) {
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

// learnHeads takes in the first jobs of a lane, all of them if there are fewer than were
// asked for.
func (s *Scheduler) learnHeads(lane envelope.Lane, heads []Head, now int64) {
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

// learnUser takes in what the rules of a user remember.
func (s *Scheduler) learnUser(tenant, user, state string, now int64) {
	u := s.tenant(tenant).user(s, user)
	u.learn(state)
	s.rouse(u.tenant, now)
}

// learnTenant takes in what the rules of a tenant remember, and how much of it waits.
func (s *Scheduler) learnTenant(name, state string, waiting, now int64) {
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

// notice takes in that a lane has got its first job. If the scheduler neither knows the lane nor will
// find it in its index, it comes in with that job.
func (s *Scheduler) notice(lane envelope.Lane, head Head, now int64) {
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

// look lets all lanes of a user be read again and looked at: their first jobs, or what
// bounds them, may have changed.
func (s *Scheduler) look(tenant, user string, now int64) {
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

// forgetLanes lets the indexes of a tenant be read again, and of each lane the first jobs. Lanes keep
// their places in line.
func (s *Scheduler) forgetLanes(tenant string, now int64) {
	t := s.tenant(tenant)
	for p := range t.lanes {
		for _, entry := range t.lanes[p].due.entries {
			s.hold(entry.item, nil)
		}
	}
	s.loosen(t, now)
}

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
