package schedule

import (
	"cmp"
	"iter"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// For how many jobs a want is, what they cost, and how far apart other limits let them start.

// A Cost is what a job costs each part of a want, and how far it has to start behind the one before, in µs: other limits let it start no
// sooner. A grant for it has its name as the cost.
type Cost struct {
	Name int64
	Of   []int
	Gap  int64
}

// Costs returns what the first jobs cost that a want is about, in the order in which they would start: those that may start within the
// lead, as far as the queue, tenants, users and limits that are not shared let them, at so many free places. None if there are no places.
// In turn are those for which no tenant is passed over that has been served less: where others want grants, too, the rest can wait for the
// next time, when that tenant may start something again.
func (s *Scheduler) Costs(of Want, now int64, places int, inTurn bool) (costs []Cost) {
	i, most := s.instances[of.Scope], min(places, s.roomFrom(&s.queue, now, now+s.lead))
	if most <= 0 {
		return nil
	}
	left := make(map[*subject]int) // how many jobs of each may start
	if inTurn {
		left = s.turnsOf(i, now, most)
	}
	first, before := i.first(), (*lane)(nil)
	for l := range i.all() {
		n := most - len(costs)
		for who := range l.bounding() {
			if _, known := left[who]; !known && !(inTurn && who == &l.user.tenant.subject) {
				left[who] = s.roomNext(who, l, now)
			}
			n = max(0, min(n, left[who]))
		}
		switch {
		case l == first:
			n = max(n, 1)
		case s.full(&l.user.subject):
			continue
		}
		n = l.alike(n)
		for who := range l.bounding() {
			left[who] -= n
		}
		if n > 0 {
			cost := i.costOf(l)
			cost.Gap = s.gap(cmp.Or(before, l), l)
			costs, before = append(costs, cost), l
			cost.Gap = s.gap(l, l)
			costs = append(costs, slices.Repeat([]Cost{cost}, n-1)...)
		}
		if len(costs) >= most {
			break
		}
	}
	return costs
}

// roomNext returns how many jobs come next of what bounds a lane. Where others come between, by their turns, that is as many as may start at
// once.
func (s *Scheduler) roomNext(who *subject, l *lane, now int64) int {
	for _, of := range l.counted.shares {
		if i := of.who.(*instance); of.of == who && i.name == envelope.LimitScope+i.limit { // it counts for all
			return s.roomFrom(who, now, now+s.lead)
		}
	}
	return s.room(who, now+s.lead)
}

// bounding yields what bounds how many jobs of a lane may start soon, beside its queue, its user and shared limits.
func (l *lane) bounding() iter.Seq[*subject] {
	return func(yield func(*subject) bool) {
		if !yield(&l.user.tenant.subject) {
			return
		}
		for _, of := range l.counted.shares {
			if of.who.(*instance).shared == nil && !yield(of.of) {
				return
			}
		}
	}
}

// gap returns how far the first job of a lane has to start behind that of another one, in µs, by the leaks and spacings of what bounds both.
func (s *Scheduler) gap(before, l *lane) int64 {
	env := before.heads[0].Env
	if env == nil {
		return 0
	}
	gap := s.queue.gap(env.Cost)
	for who := range before.bounding() {
		for other := range l.bounding() {
			if who == other {
				gap = max(gap, who.gap(env.Cost))
			}
		}
	}
	return gap
}

// gap returns how far apart leaks and spacings let jobs of a cost start, in µs.
func (u *subject) gap(cost int) (gap int64) {
	for k := range u.rules.Len() {
		r := u.rules.Rule(k)
		if !r.Drop && !r.Shadow {
			gap = max(gap, gapOf(r, cost))
		}
	}
	return gap
}

// gapOf returns how far behind a job of a cost a rule lets the next one start, in µs, if it is a leak or a spacing; 0 for others.
func gapOf(r rules.Rule, cost int) int64 {
	switch r.Kind {
	case rules.Leak:
		return r.Takes(cost).Microseconds() + 1
	case rules.Spacing:
		return r.Period.Microseconds()
	}
	return 0
}

// turnsOf returns how many jobs of each tenant in line come next, until it would be the turn of one that may start no more.
func (s *Scheduler) turnsOf(i *instance, now int64, most int) map[*subject]int {
	type candidate struct {
		*tenant
		share int64
		left  int
	}
	var all []*candidate
	for _, w := range i.line.entries[:min(i.line.len(), mostPassed)] {
		t := w.item.tenant
		all = append(all, &candidate{t, t.share, min(s.room(&t.subject, now+s.lead), w.item.lanes.len())})
	}
	turns := make(map[*subject]int)
	for range most {
		var next *candidate
		for _, c := range all {
			if next == nil || c.share < next.share {
				next = c
			}
		}
		if next == nil || next.left == 0 {
			break
		}
		next.left--
		next.share += shareOfOne / int64(max(1, next.policy.Weight))
		turns[&next.tenant.subject]++
	}
	return turns
}

// all yields the lanes of the line, the first one before all others.
func (i *instance) all() iter.Seq[*lane] {
	return func(yield func(*lane) bool) {
		first := i.first()
		if first == nil || !yield(first) {
			return
		}
		for _, l := range i.urgent {
			if l != first && !yield(l) {
				return
			}
		}
		for _, w := range i.line.entries {
			for _, l := range w.item.lanes.entries {
				if l.item != first && !yield(l.item) {
					return
				}
			}
		}
	}
}

// alike returns how many of the first jobs of a lane, of n, cost as the first one does and may start one behind the other: one, where the
// user has limits.
func (l *lane) alike(n int) int {
	if u := l.user; u.rules.Len() > 0 || u.limit.Limits() {
		n = min(n, 1)
	}
	for k, head := range l.heads[:min(len(l.heads), n)] {
		if head.Env == nil || k > 0 && !head.Env.CountsAs(l.heads[0].Env) {
			return k
		}
	}
	return min(len(l.heads), n)
}

// costOf returns what the first job of a lane costs.
func (i *instance) costOf(l *lane) Cost {
	for _, of := range l.counted.shares {
		if of.who == toucher(i) {
			return of.costs()
		}
	}
	return Cost{Name: 1, Of: []int{1}}
}

// costs returns what a job costs each part of a shared limit.
func (s share) costs() Cost {
	if s.each != nil {
		return Cost{Name: int64(s.cost), Of: s.each}
	}
	return Cost{Name: int64(s.cost), Of: []int{s.cost}}
}

// room returns how many jobs the rules and the concurrency limit of the queue, or of a tenant, let start at once by an instant, and no more
// than are wanted at a time. Of a leak or a spacing that is one.
func (s *Scheduler) room(of *subject, by int64) int { return s.roomFrom(of, by, by) }

// roomFrom returns how many jobs a subject lets start between two instants, as [Scheduler.room] does: of a leak or a spacing one behind the
// other.
func (s *Scheduler) roomFrom(of *subject, from, by int64) int {
	n := MostWanted
	for k := range of.rules.Len() {
		r := of.rules.Rule(k)
		if r.Drop || r.Shadow || r.Kind == rules.Hours {
			continue
		}
		room := of.rules.Room(&of.state, k, by)
		if gap := gapOf(r, 1); gap > 0 && room > 0 {
			room += int((by - of.rules.NextFree(&of.state, k, from, 0)) / gap)
		}
		n = min(n, room)
	}
	if of.limit.Limits() {
		n = min(n, s.most(of)-of.running)
	}
	return max(0, n)
}
