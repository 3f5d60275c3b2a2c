package schedule

// A job that costs more than others of its user would never find room in the user's rules if those took each bit that
// becomes free. So the lanes behind its lane wait with it: those of a lower priority, and those of its own priority whose
// turn comes after its turn. Lanes before it do not wait. The same holds for a tenant, whose lanes wait together (wait), and
// for the queue ([Scheduler.held]). Lanes that have changed in Redis end that, too: the costly job may be gone, while only Redis
// remembered its lane.

// holdRoom lets the lanes behind a lane wait until the user's rules have room for its first job, if that job costs more
// than 1.
func (s *Scheduler) holdRoom(l *lane, at, now int64) {
	u := l.user
	switch {
	case l.heads[0].Env.Cost <= 1:
		s.freeRoom(l, now)
	case u.held == nil || u.held == l || u.held.behind(l):
		u.held, u.room = l, at
	}
}

// freeRoom ends that lanes wait for a lane's costly job: it has left, or waits for something else.
func (s *Scheduler) freeRoom(l *lane, now int64) {
	u := l.user
	if u.held != l {
		return
	}
	u.held = nil
	for _, other := range u.lanes {
		if other.at != outside && other.behind(l) {
			s.wake(other, now)
		}
	}
}

// holdsBack reports whether a lane that could start something at an instant waits for the costly job of another one.
func (u *user) holdsBack(l *lane, at int64) bool {
	return u.held != nil && l.behind(u.held) && at < u.room
}

// behind reports whether a lane stands behind another one of its user, where both may start something at one instant.
func (l *lane) behind(other *lane) bool {
	return l.priority > other.priority || l.priority == other.priority && l.turn() > other.turn()
}
