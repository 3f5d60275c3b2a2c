package schedule

// A tenant waits in one of two heaps, or in none:
//
//	due     by its bound: nothing of it starts before
//	ready   by its share: its bound has come, and it waits for its turn
//	none    nothing of it waits, or something has to be read first (await)
//
// A lane with jobs waits in one of the two heaps of its tenant and priority: due, or reading while its first jobs are
// being read. A third heap of the scheduler has the lanes whose first jobs will be too late some day.
//
// A bound in memory may be too early, which costs a look. It is never too late: whatever makes something possible earlier
// lowers the bounds concerned (wake, rouse).

// touch notes that the state of a subject has changed since it was written: the next commit takes it along. A subject
// without rules has nothing to write, unless it has a state of former ones.
func (s *Scheduler) touch(t toucher) {
	if u := t.subjectOf(); !u.changed && (u.rules.Len() > 0 || !u.state.Empty()) {
		u.changed = true
		s.touched = append(s.touched, t)
	}
}

// move gives a tenant a bound. It is ready when that comes.
func (s *Scheduler) move(t *tenant, bound int64) {
	t.bound = bound
	s.ready.remove(t)
	s.due.set(t, bound)
}

// rouse lets a tenant be looked at from an instant on, unless it is looked at before. One that waits for something that
// is read comes into line when it was read; one that is ready keeps its place.
func (s *Scheduler) rouse(t *tenant, at int64) {
	if t.waits || t.rank != outside {
		t.bound = min(t.bound, at)
		return
	}
	if at < t.bound || t.at == outside {
		t.bound = min(t.bound, at)
		s.due.set(t, t.bound)
	}
}

// hold gives a lane its first jobs; none if they have to be read: then it leaves the line, and comes back to its place there when they are
// known. It also notes from when on the first one is too late, if no hours are closed meanwhile.
func (s *Scheduler) hold(l *lane, heads []Head) {
	l.heads = heads
	if i := l.line; i != nil && len(heads) == 0 {
		s.leaveLine(l)
		if i.waits() {
			s.opening.set(i, 0)
		}
	}
	if expires := l.expiry(nil); expires < Never {
		s.expiring.set(l, expires)
	} else {
		s.expiring.remove(l)
	}
}

// expiry returns the instant from which on the first job of a lane is too late to start. The hours are those of its limits.
func (l *lane) expiry(hours []Remembered) int64 {
	if len(l.heads) == 0 || l.heads[0].Env == nil {
		return Never
	}
	env, expires := l.heads[0].Env, int64(Never)
	if latest := l.user.tenant.policy.Latest(env, nil, hours); latest > 0 {
		expires = latest + 1
	}
	if env.Until > 0 {
		expires = min(expires, env.Until)
	}
	return expires
}

// await takes a tenant out of all lines, with its bound and its share kept, until what it lacks was read.
func (s *Scheduler) await(t *tenant) {
	bound := t.bound
	s.pass(t)
	t.bound, t.awaits = bound, true
}

// pass takes a tenant out of all lines.
func (s *Scheduler) pass(t *tenant) {
	t.bound = Never
	s.due.remove(t)
	s.ready.remove(t)
}

// wake lets a lane be looked at from an instant on.
func (s *Scheduler) wake(l *lane, at int64) {
	l.heap().lower(l, at)
	s.rouse(l.user.tenant, at)
}
