package schedule

import (
	"strings"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What was read is the state behind a commit, and several commits may be under way. So what is learned may be older
// than what the scheduler has decided or was told since:
//
//  1. Starts that were decided since are no trouble: each commit that takes jobs from a lane reads what follows them, and
//     Decide looks at no lane whose first jobs are being read.
//  2. A lane that got its first job since is marked (missed), and read once more if it was found empty.
//  3. An index of which a part was read may have got earlier members since: the frontier was moved back then, and stays
//     there (front.missed).
//  4. A lane that is in memory keeps its bound: the one that was read with the index may be older.

// A Bound is a member of an index as Redis holds it: a tenant, or a lane of a tenant and priority.
type Bound struct {
	Name  string // of the tenant, or of the lane's user
	Label string // of the lane
	At    int64

	Member string // as it stands in the index
}

// Found is what was read of what was needed, in the order of the [Needs].
type Found struct {
	Tenants []Bound
	Fronts  [][]Bound // of Needs.Lanes
	Heads   [][]Head  // of each lane all first jobs, if they are fewer than were asked for
	States  []string
	Waiting []int64 // for each of Needs.States that is a tenant's: how many of its jobs wait
}

// Learn tells that a commit has happened, and what was read with it. Commits are learned in the order in which they
// were decided.
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
		case strings.HasPrefix(scope, envelope.Person):
			s.learnClock(tenant, user, found.States[i], now)
		case strings.HasPrefix(scope, envelope.LimitScope):
			s.learnInstance(scope, found.States[i], now)
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

// learnTenants takes in the next tenants of the index. One that is in memory keeps its bound: it may be a later one
// than Redis was told.
func (s *Scheduler) learnTenants(found []Bound) {
	for _, b := range found {
		if s.tenants[b.Name] == nil {
			s.rouse(s.tenant(b.Name), b.At)
		}
	}
	s.front.learn(found)
}

// learnLanes takes in the next lanes of an index. A lane that the scheduler before has served comes in behind those
// that have waited for longer.
func (s *Scheduler) learnLanes(need LanesNeed, found []Bound, now int64) {
	t := s.tenant(need.Tenant)
	index := &t.lanes[need.Priority]
	for _, b := range found {
		l := t.user(s, b.Name).lane(need.Priority, b.Label)
		if l.at != outside {
			continue
		}
		if need.continues(b.At) && l.served == 0 {
			index.turn++
			l.served = index.turn
		}
		l.noted = b.At
		index.due.set(l, max(b.At, s.turns.lane(l, now)))
	}
	index.learn(found)
	if !need.continues(index.frontier) {
		index.turn = t.turns
		t.turns += keptTurns
	}
	t.waits = false
	s.rouse(t, now)
}

// learnHeads takes in the first jobs of a lane, all of them if there are fewer than were
// asked for.
func (s *Scheduler) learnHeads(lane envelope.Lane, heads []Head, now int64) {
	t := s.tenant(lane.Tenant)
	l := t.user(s, lane.User).lane(lane.Priority, lane.Label)
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
		s.quit(l, now)
		l.served = 0
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
