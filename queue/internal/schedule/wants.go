package schedule

import (
	"cmp"
	"iter"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What a scheduler wants of shared limits: for which lines, and for which jobs in them. How it uses what it gets is in shared.go.

// A Want is that the line of shared limits waits for grants: for which jobs [Scheduler.Costs] tells.
type Want struct {
	Scope string
	Parts []Part
	From  int64 // other limits let none of the first jobs start before
	Ahead int64 // how long before its instant the worker of the first job has to be told, in µs
}

// A Cost is what a job costs each part of a want, and how far it has to start behind the one before, in µs: other limits let it start no
// sooner. A grant for it has its name as the cost.
type Cost struct {
	Name int64
	Of   []int
	Gap  int64
}

// MostWanted is how many grants one limit wants at a time.
const MostWanted = 64

// Wants returns what shared limits want for whose first waiting jobs there is no grant, and the grants whose instants lie before
// now.
func (s *Scheduler) Wants(now int64) (wants []Want, missed []Missed) {
	for i := range s.wanting {
		for _, g := range i.state.Missed(now) {
			missed = append(missed, Missed{i.name, g, false})
		}
		for _, g := range i.state.Returned() {
			missed = append(missed, Missed{i.name, g, true})
		}
		if !i.waits() && len(i.state.Grants()) == 0 || i.shared == nil || i.gone {
			delete(s.wanting, i)
			continue
		}
		if i.called != nil || i.paused > now || s.queue.paused > now || s.full(&i.subject) {
			continue
		}
		first := s.firstOpen(i, now)
		if first == nil || s.opensFor(i, s.nextOf(i, now), now) < rules.Never {
			continue
		}
		wants = append(wants, Want{i.name, i.shared.Parts, s.wantedFrom(i, first, now), s.aheadOf(first)})
	}
	s.weigh(wants, now)
	slices.SortFunc(wants, func(a, b Want) int { return cmp.Compare(a.Scope, b.Scope) })
	return wants, missed
}

// wantedFrom returns the first instant from now on at which all else lets one of the first lanes of a line start.
func (s *Scheduler) wantedFrom(i *instance, first *lane, now int64) int64 {
	at := s.ungranted(first, now)
	if at > now && len(i.urgent) == 0 {
		for l := range i.passing() {
			if at = min(at, s.ungranted(l, now)); at <= now {
				break
			}
		}
	}
	return at
}

// Weights of wants.
const (
	// weighedFor is for how long, in µs, the tenants of lines are not weighed again.
	weighedFor = 5_000
	// mostWeighed is how many tenants of a line are looked at: the others weigh as much on average.
	mostWeighed = 1000
)

// weigh tells each part of the wants how much the tenants weigh together that wait for it and may start something within the lead. A tenant
// that waits in several lines for one part weighs once.
func (s *Scheduler) weigh(wants []Want, now int64) {
	known := now-s.weighedAt < weighedFor
	for _, want := range wants {
		for _, part := range want.Parts {
			known = known && s.weights[part.Scope] > 0
		}
	}
	if !known {
		s.weights, s.weighedAt = s.weightsOf(wants, now), now
	}
	for k, want := range wants {
		wants[k].Parts = slices.Clone(want.Parts)
		for j, part := range want.Parts {
			wants[k].Parts[j].Weight = max(1, s.weights[part.Scope])
		}
	}
}

// weightsOf returns what the tenants weigh that wait for each part of the wants, by the scopes of the parts.
func (s *Scheduler) weightsOf(wants []Want, now int64) map[string]int {
	type waiting struct {
		part   string
		tenant *tenant
	}
	seen, weights := make(map[waiting]bool), make(map[string]int)
	for _, want := range wants {
		i := s.instances[want.Scope]
		n := min(i.line.len(), mostWeighed)
		all := make([]*tenant, 0, n+len(i.urgent))
		for _, w := range i.line.entries[:n] {
			all = append(all, w.item.tenant)
		}
		for _, l := range i.urgent {
			all = append(all, l.user.tenant)
		}
		all = slices.DeleteFunc(all, func(t *tenant) bool { return s.full(&t.subject) || s.room(&t.subject, now+s.lead) == 0 })
		for _, part := range want.Parts {
			sum := 0
			for _, t := range all {
				if w := (waiting{part.Scope, t}); !seen[w] {
					seen[w] = true
					sum += max(1, t.policy.Weight)
				}
			}
			if n > 0 {
				sum = sum * i.line.len() / n
			}
			weights[part.Scope] += max(sum, 1)
		}
	}
	return weights
}

// firstOpen returns the first lane in line whose tenant may start something within the lead; nil if there is none.
func (s *Scheduler) firstOpen(i *instance, now int64) *lane {
	for {
		first := i.first()
		if first == nil || !s.partIfClosed(i, first.user.tenant, now+s.lead, now) {
			return first
		}
	}
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
