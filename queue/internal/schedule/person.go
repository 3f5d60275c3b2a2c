package schedule

import (
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Rules may go by the clock of a user: their zone, or their hours, is "user". What is known of the clock stands under a scope of its own
// ([envelope.PersonScope]), and is read like what rules remember, together with that. The leader does not write it. When it changes the
// lanes of the user are looked at again.

// A person is a user as far as the user's clock goes.
type person struct {
	wallclock.Person                  // with what the policy says of those who have said nothing
	own              wallclock.Person // what the user has said
	known, asked     bool
}

func (p *person) govern(usual *wallclock.Person) {
	p.Person = p.own
	if usual != nil {
		p.Person = p.own.Over(*usual)
	}
}

// OfUsers reports whether some of the rules go by users' own clocks. It works on nil.
func (p *Policies) OfUsers() bool { return p != nil && p.Personal }

// lacksClock reports whether the clock of a user has to be read before something is decided.
func (s *Scheduler) lacksClock(u *user) bool { return s.policies.OfUsers() && !u.person.known }

// askClock asks for the clock of a user, if it is lacking.
func (s *Scheduler) askClock(u *user) {
	if s.lacksClock(u) && !u.person.asked {
		u.person.asked = true
		s.needs.States = append(s.needs.States, envelope.PersonScope(u.tenant.name, u.name))
	}
}

// learnClock takes in what is known of the clock of a user.
func (s *Scheduler) learnClock(tenant, user, text string, now int64) {
	u := s.tenant(tenant).user(s, user)
	u.person.known, u.person.asked, u.person.own = true, false, wallclock.ReadPerson(text)
	u.person.govern(u.tenant.policy.Person)
	s.rouse(u.tenant, now)
}

// reset lets the clock of a user be read again, and the user's lanes be looked at.
func (s *Scheduler) reset(tenant, user string, now int64) {
	if !s.policies.OfUsers() {
		if u := s.tenant(tenant).users[user]; u != nil {
			u.person.known = false
		}
		return
	}
	s.tenant(tenant).user(s, user).person.known = false
	s.look(envelope.Lane{Tenant: tenant, User: user, Priority: envelope.Normal}, now)
}
