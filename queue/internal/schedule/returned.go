package schedule

import "github.com/waterclock/waterclock/internal/rules"

// A slot that is given back makes room: for other jobs of the same user, and where the job did not start at all, for
// everybody whom the same rules hold back. So bounds that were computed with it are lowered, and the lanes looked at
// again.

// refund gives the slot of a claimed job back: to the rules of its user, or to all. In the second case the job has not
// started, and its tenant was not served, either: what the start has added to its share is taken off.
func (s *Scheduler) refund(f Refunded, now int64) {
	t := s.tenant(f.Claim.Lane.Tenant)
	u := t.user(s, f.Claim.Lane.User)
	cost := f.Env.Cost
	back := []share{{who: u, cost: cost}}
	if f.All {
		back = append(back, share{who: s, cost: cost}, share{who: t, cost: cost})
		s.serve(t, -cost)
	}
	for _, of := range s.named(f.Claim.Lane, f.Env) {
		if f.All || of.ofUser {
			back = append(back, of)
		}
	}
	for _, b := range back {
		of := b.who.subjectOf()
		of.rules.Refund(&of.state, rules.Spent{Slot: f.Claim.Slot, Latest: f.Claim.Spent}, b.cost, false)
		named, is := b.who.(*instance)
		if is {
			s.arm(named, now)
		}
		if is && named.shared != nil {
			s.wanting[named] = true // it has something to give back
		} else {
			s.touch(b.who)
		}
	}
	s.lookAgain(u, now)
}

// lookAgain lets what waits of a user be looked at from an instant on: bounds were right
// for slots that were given back since.
func (s *Scheduler) lookAgain(u *user, at int64) {
	t := u.tenant
	u.plain()
	for _, l := range u.lanes {
		empty := l.at == outside && t.lanes[l.priority].frontier == Never // all lanes with jobs are in a heap
		if !empty && t.holdsOrFinds(l, at) {
			l.heap().lower(l, at)
		}
	}
	s.rouse(t, at)
}

// returned lets a lane be read whose job is the first of it again. What the rules got back may
// let the user's other lanes start something too.
func (s *Scheduler) returned(f Returned, now int64) {
	u, at := s.tenant(f.Lane.Tenant).user(s, f.Lane.User), now
	if f.Since > 0 {
		at = min(now, f.Since)
	}
	s.lookAgain(u, now)
	l := u.lane(f.Lane.Priority, f.Lane.Label)
	l.last = 0 // its slot may have been far ahead
	s.readAgain(l, at)
}
