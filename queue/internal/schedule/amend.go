package schedule

import "github.com/waterclock/waterclock/queue/internal/envelope"

// Knows reports whether the states of a lane's user and tenant are known; if not, they are
// needed.
func (s *Scheduler) Knows(lane envelope.Lane) bool {
	t := s.tenant(lane.Tenant)
	u := t.user(s, lane.User)
	s.ask(s)
	s.ask(t)
	s.ask(u)
	return s.queue.known && t.known && u.known
}

// refund gives the slot of a claimed job back: to the rules of its user, or to all.
func (s *Scheduler) refund(claim envelope.Claim, cost int, all bool, now int64) {
	t := s.tenant(claim.Lane.Tenant)
	u := t.user(s, claim.Lane.User)
	u.rules.Refund(&u.state, claim.Spent, cost, false)
	s.touch(u)
	if all {
		for _, who := range []toucher{s, t} {
			of := who.subjectOf()
			of.rules.Refund(&of.state, claim.Spent, cost, false)
			s.touch(who)
		}
	}
	s.lookAgain(u, now)
}

// lookAgain lets what waits of a user be looked at from an instant on: bounds were right
// for slots that were given back since.
func (s *Scheduler) lookAgain(u *user, at int64) {
	t := u.tenant
	for priority := range u.lanes {
		l := u.lane(priority)
		l.last = 0
		if t.knows(l, at) {
			l.heap().lower(l, at)
		}
	}
	s.rouse(t, at)
}

// returned lets a lane be read whose job is the first of it again. What the rules got back may
// let the user's other lanes start something too.
func (s *Scheduler) returned(lane envelope.Lane, now int64) {
	u := s.tenant(lane.Tenant).user(s, lane.User)
	s.lookAgain(u, now)
	s.readAgain(u.lane(lane.Priority), now)
}

// A State is what the rules of a subject remember, to be written.
type State struct {
	Scope, Text string
	Until       int64 // from then on it equals nothing
	of          toucher
}

// states returns what has changed since it was asked last.
func (s *Scheduler) states(now int64) []State {
	states := make([]State, 0, len(s.touched))
	for _, who := range s.touched {
		of := who.subjectOf()
		if !of.changed { // in doubt since
			continue
		}
		of.changed = false
		of.rules.Forget(&of.state, now)
		s.text = of.state.Append(s.text[:0])
		states = append(states, State{who.scope(), string(s.text), of.rules.Full(&of.state), who})
	}
	s.touched = s.touched[:0]
	return states
}

// A Park is a lane's bound that Redis should know.
type Park struct {
	Lane envelope.Lane
	At   int64
	lane *lane
}

// parks returns the bounds that have moved far since they were noted last.
func (s *Scheduler) parks() (parks []Park) {
	for _, l := range s.parked {
		l.parked = false
		if bound := l.bound(); !l.asked && bound < blocked {
			parks = append(parks, Park{l.name(), bound, l})
		}
	}
	s.parked = s.parked[:0]
	return parks
}

// noted notes that Redis knows the bounds: the lanes need not be remembered until then.
func (s *Scheduler) noted(parks []Park) {
	for _, p := range parks {
		l := p.lane
		index := l.index()
		if l.asked || l.bound() != p.At {
			continue
		}
		index.due.remove(l)
		s.hold(l, nil)
		l.noted = p.At
		index.lower(p.At)
		s.rest(l.user)
	}
}

// Over returns the tenants whose backlogs were above their capacity when they were read.
func (s *Scheduler) Over() []string {
	names := s.over
	s.over = nil
	return names
}

// Cancelled reports whether the job with that ID never runs.
func (s *Scheduler) Cancelled(id string) bool { return s.cancelled[id] }

// Tenants returns how many tenants are remembered.
func (s *Scheduler) Tenants() int { return len(s.tenants) }

// Policy returns what limits a tenant.
func (s *Scheduler) Policy(tenant string) Policy { return s.policies.Of(tenant) }
