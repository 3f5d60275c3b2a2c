package schedule

import (
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// judge decides about the first job of a lane whose tenant may start one at `at`: it is dropped, or waits by a bound,
// or for the end of another job, or for a place, or it is taken.
//
// A job may be taken with a slot that lies ahead of the one that its rules allow: so that it gets to its worker in
// time, or since it was late before, or since the job before it in its lane has such a slot. What fits at the earlier
// slot may not fit at the later one: it is judged once more.
func (d *decision) judge(t *tenant, l *lane, at int64) verdict {
	s, u, h := d.s, l.user, l.heads[0]
	if h.Env == nil {
		d.drop(l, "", h.Err.Error())
		return on
	}
	if d.of = s.shares(d.of[:0], l); !d.known(t) {
		return on
	}
	slot, wait := d.slot(l, at)
	shared := d.lacksGrant(slot)
	if shared != nil {
		slot = s.ungranted(l, d.now)
	}
	if reason := d.unfit(t, h, min(slot, s.policies.End())); reason != "" { // it may start from the end of an override on
		d.drop(l, reason, "")
		return on
	}
	if slot <= d.horizon && d.dropIfRefused(l, slot) {
		return on
	}
	if u.holdsBack(l, slot) {
		s.release(l, d.now)
		t.lanes[l.priority].due.set(l, max(u.room, d.horizon+1)) // or when the other lane has started
		return on
	}
	if slot > max(d.now, t.bound, l.calledFor) {
		if v, waits := d.wait(t, l, slot); waits {
			return v
		}
	}
	if from := max(slot, l.last); from > max(at, t.bound) && t.above(l.priority) < from && !d.goesAhead(l, slot) {
		t.lanes[l.priority].due.set(l, from) // a job of a higher priority may start before
		return on
	}
	if s.full(&u.subject) {
		s.release(l, d.now)
		t.lanes[l.priority].due.set(l, blocked)
		return on
	}
	if shared != nil {
		s.join(l, shared, d.now)
		return on
	}
	if of := d.line(l); of != nil {
		s.join(l, of, d.now)
		return on
	}
	if s.full(&s.queue) {
		d.plan.Next = Never
		return stop
	}
	place := d.places.Next()
	if place == nil {
		d.plan.Hungry, d.plan.Next = true, Never
		return stop
	}
	s.held = nil
	return d.give(t, l, at, slot, place, wait)
}

// give takes the first job of a lane for a place, at the first slot for which it gets there in time. Behind that the job may not
// start any more: hours have closed, an override has ended, its latest start has passed. Then the place is free again.
func (d *decision) give(t *tenant, l *lane, at, slot int64, place *Place, wait Wait) verdict {
	s, env := d.s, l.heads[0].Env
	if d.shares() {
		s.far = place.Ahead
	}
	ahead := l.last // what comes after a job that goes far does not overtake it
	far := max(place.Ahead, d.late(env))
	if far > 0 {
		ahead = max(ahead, d.now+far)
	}
	if ahead > slot || slot > d.horizon {
		asked, opens := max(ahead, slot), int64(0)
		slot = d.earliest(asked)
		if shared := d.lacksGrant(slot); shared != nil {
			d.places.Free(place)
			l.ahead = far
			s.join(l, shared, d.now)
			return on
		}
		if slot-asked > Lead && s.policies.Closes() { // hours have closed by then
			opens = slot
		} else if end := s.policies.EndFor(s.policies.Uses(l.name(), env)); slot >= end { // decided by the rules that count then
			opens = end
		}
		if opens > 0 {
			d.places.Free(place)
			s.release(l, d.now)
			s.freeRoom(l, d.now)
			t.lanes[l.priority].due.set(l, opens)
			return on
		}
		if reason := d.unfit(t, l.heads[0], slot); reason != "" { // it would get there too late
			d.places.Free(place)
			d.drop(l, reason, "")
			return on
		}
		if d.dropIfRefused(l, slot) {
			d.places.Free(place)
			return on
		}
	}
	d.take(l, at, slot, place).Wait = wait.until(slot)
	return on
}

// late returns how far ahead a job has to go since it was late before.
func (d *decision) late(env *envelope.Envelope) int64 {
	if d.shares() {
		return min(env.Late, mostLate)
	}
	return env.Late
}

// above returns from when on a lane of a higher priority may start something, as far as is known; Never if none may.
func (t *tenant) above(priority int) int64 {
	first := int64(Never)
	for p := range priority {
		first = min(first, t.lanes[p].due.first(), t.lanes[p].reading.first())
	}
	return first
}

// goesAhead reports whether the first job of a lane was late before, and has to go so far ahead that it may take a slot which
// others wait for. Several such jobs go ahead together. If each waited for the slot of the one before, and then went ahead from
// there, nobody whom a limit by name counts with them could start meanwhile. Where a rule may drop the job, it waits.
func (d *decision) goesAhead(l *lane, slot int64) bool {
	late := l.heads[0].Env.Late
	return late > 1 && slot <= d.horizon+late && !slices.ContainsFunc(d.of, func(s share) bool { return s.of.rules.Drops() })
}

// earliest returns the first instant from one on at which all rules let the job start, as far as they do not drop it.
func (d *decision) earliest(at int64) int64 {
	d.remembered = d.remembered[:0]
	drop := false
	for _, s := range d.of {
		d.remembered = append(d.remembered, Remembered{s.of.rules, &s.of.state, s.cost})
		drop = drop || s.of.rules.Drops()
	}
	if !drop {
		return Earliest(d.remembered, at)
	}
	return Admitted(d.remembered, at, d.s.reach)
}

// earliestOf returns the first instant from one on at which the rules of a subject let a job of a cost start, as far as they do not
// drop it.
func (s *Scheduler) earliestOf(of *subject, at int64, cost int) int64 {
	if of.rules.Drops() {
		return Admitted([]Remembered{{of.rules, &of.state, cost}}, at, s.reach)
	}
	at, _ = of.rules.Earliest(&of.state, at, cost)
	return at
}

// The slot of a job is the first instant at which the rules of all its subjects (the queue, its tenant, its user, and
// the limits by name that are about it) let it start. Each set of rules answers with an instant, not with yes or no, so
// the latest of the answers is asked again until all agree ([Earliest]).
//
// Taking the job spends its slot in all of them at once. Where a worker may start late, the rules count the end of the
// time in which it may (Spent): two jobs are never closer together than written, whenever in that time the first one
// starts.

// slot returns the slot of a lane's first job, and what it waited for. Rules are asked from the instant at
// which the job became ready, to find which of them delayed it; an earlier answer stays valid. Of
// rules that allow it within a grace of each other, the one that has held longest is to blame.
func (d *decision) slot(l *lane, at int64) (slot int64, wait Wait) {
	ready := l.heads[0].Env.Since()
	since := min(ready, at)
	slot = since
	for k := range d.of {
		who := &d.of[k]
		who.allows, who.rule = who.of.rules.Earliest(&who.of.state, since, who.cost)
		slot = max(slot, who.allows)
	}
	if d.s.policies.Closes() {
		slot = d.agreed(slot)
	}
	paused := int64(0)
	for _, who := range d.of {
		if who.rule >= 0 && who.allows > slot-Grace {
			wait.Blame.longer(who.ruleName(who.rule), who.allows-max(ready, who.of.state.Last()))
		}
		paused = max(paused, who.of.paused)
	}
	wait.allowed = max(ready, slot)
	wait.Rules = wait.allowed - ready
	if paused > slot {
		slot, wait.Blame = paused, Blame{}
		wait.Blame.longer("paused", paused-max(ready, l.last, l.user.state.Last()))
	}
	wait.Pauses = wait.allow(paused)
	until := slot
	for _, who := range d.of {
		if who.of.fullUntil > until {
			until, wait.Blame = who.of.fullUntil, Blame{}
			wait.Blame.longer(who.name(who.of.limit.String()), who.of.fullUntil-max(ready, who.of.fullSince))
		}
	}
	wait.Concurrency = wait.allow(until)
	if d.s.policies.Closes() {
		d.wasClosed(&wait)
	}
	return d.earliest(max(slot, d.now)), wait
}

// agreed returns the first instant from one on at which all rules let the job start, and notes which of them have moved it.
func (d *decision) agreed(slot int64) int64 {
	for range passes {
		before := slot
		for k := range d.of {
			who := &d.of[k]
			if at, rule := who.of.rules.Earliest(&who.of.state, slot, who.cost); rule >= 0 {
				slot, who.allows, who.rule = at, at, rule
			}
		}
		if slot == before {
			break
		}
	}
	return slot
}

// wasClosed notes for how long hours have kept the job since all else allowed it.
func (d *decision) wasClosed(w *Wait) {
	for _, who := range d.of {
		if who.of.rules.Closes() && w.allowed < d.now {
			held := closed(d.hours([]share{who}), w.allowed, d.now)
			w.Rules += w.allow(w.allowed + held)
			w.Blame.longer(who.name(who.of.rules.HoursName()), held)
		}
	}
}

// wait moves the bound of whoever keeps a job from starting before its slot: of the lane,
// where that is its user's rules (the user's lanes behind it wait with it for a costly job, see room.go); it lets the lane
// wait in the line of a limit by name, where that is one and the slot does not come soon; or moves the bound of the tenant, whose other lanes wait with it, since a job
// of a higher cost would never find room otherwise; or of all, for the rules of the
// queue. It reports false where only the queue's rules do, and the slot comes soon.
func (d *decision) wait(t *tenant, l *lane, slot int64) (v verdict, waits bool) {
	s, u, cost := d.s, l.user, l.heads[0].Env.Cost
	index, by := &t.lanes[l.priority], max(d.now, l.calledFor)
	if own := s.earliestOf(&u.subject, max(d.now, u.paused), cost); own > max(by, index.due.bound(l)) {
		s.release(l, d.now)
		index.due.set(l, own)
		s.holdRoom(l, own, d.now)
		if u.paused <= d.now {
			s.park(l, own, d.now)
		}
		return on, true
	}
	if s.policies.Closes() {
		if opens, _ := Open(d.hours(d.of[commonLimits:]), d.now); opens > max(by, index.due.bound(l)) {
			s.release(l, d.now)
			s.freeRoom(l, d.now)
			index.due.set(l, opens)
			return on, true
		}
	}
	if of := d.latest(max(by, t.bound, index.due.bound(l))); of != nil && slot > d.horizon && !d.goesAhead(l, slot) {
		s.join(l, of, d.now)
		return on, true
	}
	open := max(d.now, t.paused, s.queue.paused)
	if own := s.earliestOf(&t.subject, open, cost); own > max(by, t.bound) {
		s.release(l, d.now)
		s.move(t, own)
		return on, true
	}
	if slot <= d.horizon+s.aheadOf(l) || d.goesAhead(l, slot) {
		return on, false
	}
	if s.earliestOf(&s.queue, open, cost) <= open {
		s.release(l, d.now)
		index.due.set(l, slot) // all rules of the job together, and not those of the queue
		return on, true
	}
	if cost > 1 {
		s.held = t
	}
	d.plan.Next = s.before(slot)
	return stop, true
}
