package schedule

import "github.com/waterclock/waterclock/internal/rules"

// The lanes that an instance blocks wait in its line. A lane that its user's rules block has a bound of its own; a tenant's
// rules give the tenant one bound. If each of a hundred thousand lanes that wait for one instance had that instance's next
// free instant as its bound, all of them would be looked at each time, and one would start. In a line they wait without a
// bound:
//
//	join      a lane that an instance blocks has no bound (blocked). It stands in the instance's line: behind the
//	          lanes of its tenant that came before it, and the tenants in the line take turns by their shares
//	arm       the instance has one bound: when it lets the first lane of its line start
//	call      when that comes, the first lane gets its place among the lanes of its tenant back, and is looked at
//	          like any other. The instance waits until that has happened
//	release   the lane has started, or waits for something else: the instance calls the next one
//	part      a tenant in the line may start nothing now, since its own rules or limits keep it: its lanes step out of
//	          the line together, and come back with their places when the tenant may (rejoin)
//
// So an instance costs one look for each start, however many lanes wait. A lane that comes when others wait for an
// instance joins the line behind them.
//
// A lane in a line has its first jobs. While they are read it stands in none.
//
// A lane may be subject to several instances, and each may be used up by others at the instants at which the other one has
// room. Then the lane would go from one line to the other for ever. So a lane that was called by one instance and is
// blocked by another keeps the first one waiting, and comes first in the other's line, if that is free again within the
// time that the first one takes from one start to the next. If it takes longer, the lane waits for the slower one,
// which then waits for the faster. An instance that waits for a lane is never waited for by another one: so no two
// lanes wait for each other.

// Waiters are the lanes of a tenant in the line of an instance.
type waiters struct {
	tenant   *tenant
	instance *instance
	lanes    heap[*lane] // by priority, then by their tickets
	place    int         // in the line
	apart    bool        // out of the line, until their tenant may start something
}

// A standing is what a lane has in the lines of instances.
type standing struct {
	line      *instance   // in which it waits; nil for none
	place     int         // in the heap of its tenant there
	ticket    uint64      // tells which lane came first; 0 if it has not waited since its last start
	since     int64       // its bound when it came into a line first
	holds     []*instance // those that wait for it
	calledFor int64       // the instant for which it was called last; 0 if none waits for it
	calledAt  int64       // when its first job was called last; 0 if it was not
	calledTo  int64       // for which later instant it was called then, since it was not ready before; 0 for none
	counted   counted     // what counts its first job
	askedBy   *Policies   // under which the instances of its label were asked for
	ahead     int64       // so far ahead a grant of a shared limit has to lie at least for its first job
}

// InLine returns how many lanes wait for each limit by name that a lane has waited for. The caller does not keep it.
func (s *Scheduler) InLine() map[string]int { return s.inLine }

// waits reports whether lanes wait in the line.
func (i *instance) waits() bool { return len(i.urgent) > 0 || i.line.len() > 0 }

// awaited reports whether lanes wait for the instance, in the line or apart.
func (i *instance) awaited() bool { return len(i.urgent)+len(i.of) > 0 || i.called != nil }

// latest returns the instance that lets the job start last, if that is after an instant; nil if all do by then. A shared limit
// is left out: what it lacks is asked for when all others let the job start (shared.go).
func (d *decision) latest(at int64) (last *instance) {
	latest := at
	for _, of := range d.of[commonLimits:] {
		if of.who.(*instance).shared != nil {
			continue
		}
		if own := d.s.earliestOf(of.of, max(d.now, of.of.paused), of.cost); own > latest {
			latest, last = own, of.who.(*instance)
		}
	}
	return last
}

// line returns an instance in whose line the lane has to wait although rules let it start: as much runs of it as may,
// or others come first. nil for none. A lane that would be the first of the line does not go there: it would be called at
// once, and come back here. A job that was late before has had its turn.
func (d *decision) line(l *lane) *instance {
	waited := len(l.holds) > 0 || l.heads[0].Env.Late > 1 // and was late then
	for _, of := range d.of[commonLimits:] {
		i := of.who.(*instance)
		if d.s.full(&i.subject) || !waited && (i.called != nil || !i.leads(l)) {
			return i
		}
	}
	return nil
}

// leads reports whether a lane would be the first of the line.
func (i *instance) leads(l *lane) bool {
	first := i.first()
	switch {
	case first == nil:
		return true
	case len(i.urgent) > 0:
		return false
	case first.user.tenant != l.user.tenant:
		return l.user.tenant.share < first.user.tenant.share
	}
	return l.priority < first.priority || l.priority == first.priority && l.ticket > 0 && l.ticket < first.ticket
}

// wholeLanes is how many lanes may wait for a limit with all of their first jobs in memory. Of further ones, a hundred
// thousand perhaps, only the first job stays there.
const wholeLanes = 4096

// join lets a lane wait in the line of an instance, which blocks it.
func (s *Scheduler) join(l *lane, i *instance, now int64) {
	if l.ticket == 0 {
		s.tickets++
		l.ticket, l.since = s.tickets, min(l.bound(), now)
	}
	if len(l.heads) > 1 && s.inLine[i.limit] >= wholeLanes {
		l.heads = l.heads[:1:1]
	}
	l.heap().set(l, blocked)
	s.freeRoom(l, now)
	hold := s.holdsFor(l, i, now)
	if !hold {
		s.release(l, now)
	}
	if l.line != i {
		s.leaveLine(l)
		l.line = i
		s.inLine[i.limit]++
		if hold {
			i.urgent = append(i.urgent, l)
		} else {
			i.enter(l)
		}
	}
	s.arm(i, now)
}

// holdsFor reports whether the instances that wait for a lane go on waiting while it is in the line of another one.
func (s *Scheduler) holdsFor(l *lane, i *instance, now int64) bool {
	if len(l.holds) == 0 || i.called != nil || s.full(&i.subject) || len(i.urgent) > 0 {
		return false
	}
	opens := s.opensFor(i, l, now)
	if i.shared != nil && opens >= rules.Never {
		opens = max(now, i.expected)
	}
	if _, until := i.rules.Open(&i.state, now); opens >= until { // its hours close before
		return false
	}
	for _, first := range l.holds {
		if opens-now > now-first.state.Last() {
			return false
		}
	}
	return true
}

// enter puts a lane into the line, in its place.
func (i *instance) enter(l *lane) {
	t := l.user.tenant
	w := i.of[t]
	if w == nil {
		w = &waiters{tenant: t, instance: i, place: outside, lanes: heap[*lane]{at: func(l *lane) *int { return &l.place }}}
		i.of[t] = w
	}
	w.lanes.set(l, int64(l.priority)<<56|int64(l.ticket))
	if !w.apart {
		i.line.set(w, t.share)
	}
}

// part takes the lanes of a tenant out of the line until it may start something.
func (w *waiters) part() {
	w.apart = true
	w.instance.line.remove(w)
	w.tenant.apart = append(w.tenant.apart, w)
}

// rejoin lets the lanes of a tenant that may start something stand in their lines again.
func (s *Scheduler) rejoin(t *tenant, now int64) {
	apart := t.apart
	t.apart = nil
	for _, w := range apart {
		if w.apart = false; w.lanes.len() > 0 {
			w.instance.line.set(w, t.share)
			s.arm(w.instance, now)
		}
	}
}

// leaveLine takes a lane out of the line in which it waits.
func (s *Scheduler) leaveLine(l *lane) {
	i := l.line
	if i == nil {
		return
	}
	l.line = nil
	s.inLine[i.limit]--
	for k, urgent := range i.urgent {
		if urgent == l {
			i.urgent = append(i.urgent[:k], i.urgent[k+1:]...)
			return
		}
	}
	w := i.of[l.user.tenant]
	w.lanes.remove(l)
	if w.lanes.len() == 0 {
		i.line.remove(w)
		delete(i.of, l.user.tenant)
	}
	if !i.waits() {
		s.opening.remove(i)
	}
	if !i.awaited() {
		s.restInstance(i)
	}
}

// first returns the lane that is called next; nil if none waits.
func (i *instance) first() *lane {
	if len(i.urgent) > 0 {
		return i.urgent[0]
	}
	for i.line.len() > 0 {
		w := i.line.entries[0].item
		if now := w.tenant.share; now != i.line.first() { // it was served since
			i.line.set(w, now)
			if i.line.entries[0].item != w {
				continue
			}
		}
		return w.lanes.entries[0].item
	}
	return nil
}

// opensFor returns when the rules of an instance let the first job of a lane start.
func (s *Scheduler) opensFor(i *instance, l *lane, now int64) int64 {
	cost := 1
	for _, of := range l.counted.shares {
		if of.who == toucher(i) {
			cost = of.cost
		}
	}
	from := max(now, i.paused)
	if i.shared != nil {
		from = max(from, s.usable(l, now))
	}
	return s.earliestOf(&i.subject, from, cost)
}

// arm gives an instance its bound: when it lets the first lane of its line start. It has none while it waits for a lane,
// and while so much of it runs as may.
func (s *Scheduler) arm(i *instance, now int64) {
	l := s.nextOf(i, now)
	if i.shared != nil && l != nil {
		s.wanting[i] = true
	}
	s.noteLeasing(i)
	if l == nil || i.called != nil || s.full(&i.subject) {
		s.opening.remove(i)
		return
	}
	at := now
	if !i.lacks() {
		at = s.opensFor(i, l, now)
	}
	if i.shared != nil {
		at -= s.aheadOf(l)
	}
	s.opening.set(i, at)
}

// call lets the first lane of an instance whose bound has come be looked at. It reports whether there was one.
func (d *decision) call() bool {
	s := d.s
	at := s.opening.first()
	if at > d.horizon {
		return false
	}
	i := s.opening.entries[0].item
	l := s.nextOf(i, d.now)
	if l == nil || i.called != nil {
		s.opening.remove(i)
		return true
	}
	t := l.user.tenant
	if s.partIfClosed(i, t, d.horizon, d.now) { // the next one is called
		s.arm(i, d.now)
		return true
	}
	if l.calledAt != d.now {
		l.calledTo = 0
	} else { // and was not ready: it is called for the instant at which all limits let it start, once for each
		ready := s.readyAt(i, l, d.now)
		if ready <= l.calledTo || ready > d.horizon {
			s.opening.set(i, d.horizon+1)
			return true
		}
		at, l.calledTo = ready, ready
	}
	s.leaveLine(l)
	l.heap().set(l, l.since)
	s.rouse(t, at)
	if i.shared != nil && l.calledTo == 0 {
		at += s.aheadOf(l)
	}
	i.called, l.holds, l.calledFor, l.calledAt = l, append(l.holds, i), max(l.calledFor, at), d.now
	s.calling = append(s.calling, i)
	s.opening.remove(i)
	return true
}

// readyAt returns when all limits let the first job of a lane start that waits in the line of an instance.
func (s *Scheduler) readyAt(i *instance, l *lane, now int64) int64 {
	if i.shared != nil {
		return s.opensFor(i, l, now)
	}
	return s.ungranted(l, now)
}

// partIfClosed takes the lanes of a tenant out of the line that may start nothing by the horizon, and reports whether it has. A lane that
// comes first whatever its tenant stays.
func (s *Scheduler) partIfClosed(i *instance, t *tenant, horizon, now int64) bool {
	opens := s.opens(t, now)
	if opens <= horizon || len(i.urgent) > 0 {
		return false
	}
	i.of[t].part()
	s.rouse(t, opens)
	return true
}

// opens returns from when on a tenant may start something, as far as its own rules, limit and pause go.
func (s *Scheduler) opens(t *tenant, now int64) int64 {
	if !t.known {
		return now
	}
	if s.full(&t.subject) {
		return blocked
	}
	at, _ := t.rules.Earliest(&t.state, max(now, t.paused), 1)
	return at
}

// release lets the instances that wait for a lane call others.
func (s *Scheduler) release(l *lane, now int64) {
	holds := l.holds
	l.holds, l.calledFor = nil, 0
	for _, i := range holds {
		i.called = nil
		s.arm(i, now)
	}
}

// recall releases what waits for lanes that are not due by the horizon: their tenants wait for something else by now. It
// reports whether there was any.
func (s *Scheduler) recall(horizon, now int64) (any bool) {
	calling := s.calling[:0]
	for _, i := range s.calling {
		l := i.called
		switch {
		case l == nil:
		case l.line == nil && (l.at == outside || l.bound() > horizon || l.user.tenant.bound > horizon && !l.user.tenant.waits):
			s.release(l, now)
			any = true
		default:
			calling = append(calling, i)
		}
	}
	clear(s.calling[len(calling):])
	s.calling = calling
	return any
}

// quit ends what a lane has in the lines: its first job has left, or nothing waits in it.
func (s *Scheduler) quit(l *lane, now int64) {
	line := l.line
	s.leaveLine(l)
	l.ticket, l.ahead, l.calledAt = 0, 0, 0
	s.release(l, now)
	s.freeRoom(l, now)
	if line == nil {
		return
	}
	if l.at != outside { // the next one has the lane's place
		l.heap().lower(l, l.since)
		s.rouse(l.user.tenant, l.since)
	}
	s.arm(line, now)
}
