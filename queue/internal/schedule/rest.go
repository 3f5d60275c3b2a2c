package schedule

// Memory is bounded by what is due soon, not by how many tenants and users there are. A user with nothing waiting and
// nothing running is forgotten when ten thousand others have come to rest after it; a tenant when it was at rest
// at two looks in a row. What rules remember of them stands in Redis for as long as it can bind anybody.

// idleUsers is how many users with nothing waiting are remembered, to spare reading their
// states again.
const idleUsers = 10_000

// rest notes that nothing of a user may be waiting. Whether that is so is looked at when the user would be forgotten.
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
		if l.at != outside {
			return false
		}
	}
	return !u.changed && !u.asked && u.running == 0
}

// Rest returns tenants that have had nothing to do for some time: at this call and the one before. The scheduler
// forgets them, and the caller lets Redis forget them. If one gets a job a notice tells of it.
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
