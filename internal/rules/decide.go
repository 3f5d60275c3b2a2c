package rules

import "math"

// Costs below 1 count as 1 everywhere, and costs above what a rule can ever admit count
// as all of that when it is asked: a rule tightened below a waiting cost lets that start
// alone, rather than never.

// clamp returns what the rule takes a cost for when it is asked.
func (r *rule) clamp(cost int) int64 { return int64(min(max(cost, 1), r.top, mostUnits)) }

// units returns what a cost is when it is spent.
func units(cost int) int64 { return int64(min(max(cost, 1), mostUnits)) }

// off returns the first instant >= t that does not lie in the guarded end of a period.
func (r *rule) off(st *State, t int64) int64 {
	if r.guard == 0 {
		return t
	}
	if r.length == 0 { // hours: their closing is what they are asked for
		return t
	}
	if _, end := r.around(st, t); t >= end-r.guard {
		return end
	}
	return t
}

// asked returns what the kind says, without the guard.
func (r *rule) asked(st *State, t int64, cost int) int64 {
	return r.kind.when(st, r, t, r.clamp(cost))
}

// passes bounds how often the rules are asked again because one moved the instant to where another, which
// had allowed it, does not: into a guard, or behind the end of hours.
const passes = 100

// Earliest returns the first instant >= t that all rules allow which defer, and the index
// of the rule that moved it last, or -1 if none did. A rule that drops moves it only off
// the guarded end of a period. What a rule allows at an instant it allows later too, but
// for the guards and for hours: so only those make it ask again.
func (s *Set) Earliest(st *State, t int64, cost int) (at int64, binding int) {
	at, binding = t, -1
	for range passes {
		before := at
		for i := range s.list() {
			r := &s.rules[i]
			if r.Shadow {
				continue
			}
			next := at
			if !r.Drop {
				next = r.asked(st, at, cost)
			}
			if next = r.off(st, next); next > at {
				at, binding = next, i
			}
		}
		if s == nil || !s.again || at == before {
			break
		}
	}
	return at, binding
}

// AskedAgain reports whether some rule may forbid an instant behind one that it allows, so that it is asked again when another one has
// moved the instant.
func (s *Set) AskedAgain() bool { return s != nil && s.again }

// Soon returns the first instant that the rules which drop allow, from t to the later of `by` and their newest slot. If they allow none
// it returns t, or an instant behind it, and [Set.Refusing] says which of them refuses that.
//
// It is for a scheduler whose slots lie ahead by different times: a job that runs far away gets a later slot than the next one, which
// runs nearby. The next one is to wait for the order of the slots, and not to be refused.
func (s *Set) Soon(st *State, t, by int64, cost int) int64 {
	if !s.Drops() {
		return t
	}
	for i := range s.rules {
		r := &s.rules[i]
		if !r.Drop || r.Shadow {
			continue
		}
		if at := s.When(st, i, t, cost); at <= max(by, r.reached(st)) {
			t = max(t, at)
		}
	}
	return t
}

// reached returns the instant from which on a rule admits what it has left; 0 for all. Rules admit in the order of slots: a log not
// before its newest slot, and what counts by periods not before the period of that.
func (r *rule) reached(st *State) int64 {
	if r.logged {
		return st.logs[r.side].newest()
	}
	f := st.find(r.id)
	switch {
	case f == nil:
		return 0
	case r.length > 0:
		begin, _ := r.around(st, f.last)
		return begin
	}
	return f.last
}

// When returns the first instant >= t that the i-th rule allows, whatever it does with
// what it does not allow.
func (s *Set) When(st *State, i int, t int64, cost int) int64 {
	r := &s.rules[i]
	return r.off(st, r.asked(st, t, cost))
}

// Refusing returns the index of the first rule that drops and does not allow t, or -1.
func (s *Set) Refusing(st *State, t int64, cost int) int {
	if !s.Drops() {
		return -1
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.Drop && !r.Shadow && r.asked(st, t, cost) > t {
			return i
		}
	}
	return -1
}

// Objecting returns the index of the first shadow rule that does not allow t, or -1. It
// objects to every cost that it can never admit.
func (s *Set) Objecting(st *State, t int64, cost int) int {
	if !s.Shadows() {
		return -1
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.Shadow && r.objects(st, t, cost) {
			return i
		}
	}
	return -1
}

func (r *rule) objects(st *State, t int64, cost int) bool {
	return cost > r.top || r.asked(st, t, cost) > t
}

// Spend takes a slot from the rules, and from shadow rules too if shadows says so:
// which is when nobody is [Set.Objecting].
func (s *Set) Spend(st *State, t Spent, cost int, shadows bool) {
	if s == nil {
		return
	}
	t.Slot, t.Latest = min(t.Slot, Never), min(t.Latest, Never)
	s.pushStart(st, t.Latest, cost, shadows)
	for i := range s.rules {
		if r := &s.rules[i]; !r.logged && (shadows || !r.Shadow) {
			r.kind.spend(st, r, action{at: t.at(r), cost: units(cost)})
		}
	}
	s.skipped(st, t.Latest)
}

// widen lets the logs hold what the rules look at, from now on until they are empty.
func (s *Set) widen(st *State) {
	for of := range s.logs {
		if size := s.logs[of]; size.keep > 0 {
			st.logs[of].size(size)
		}
	}
}

// pushStart puts a slot into the logs that the rules look at.
func (s *Set) pushStart(st *State, t int64, cost int, shadows bool) {
	s.widen(st)
	for of := own; of < sides; of++ {
		if s.logs[of].keep > 0 && (of != shadow || shadows) {
			st.logs[of].push(t, units(cost), false)
		}
	}
}

// skipped tells what belongs to other rules that it has not counted the slot t, and so may
// not give it back.
func (s *Set) skipped(st *State, t int64) {
	if len(st.fields) == 0 {
		return
	}
	for i := range st.fields {
		if f := &st.fields[i]; s.ruleOf(f) == nil {
			f.since = max(f.since, later(t, 1))
		}
	}
}

// ruleOf returns the rule that a field belongs to, or nil.
func (s *Set) ruleOf(f *field) *rule {
	for i := range s.list() {
		if r := &s.rules[i]; !r.logged && r.id == f.id {
			return r
		}
	}
	return nil
}

// SpendRefused counts what was refused at t in the rules that count that. It reports
// whether there are any.
func (s *Set) SpendRefused(st *State, t int64, cost int) bool {
	if !s.Counts() {
		return false
	}
	t = min(t, Never)
	s.widen(st)
	if log := &st.logs[counting]; s.logs[counting].keep > 0 {
		log.push(max(t, log.newest()), units(cost), true)
	}
	for i := range s.rules {
		if r := &s.rules[i]; r.Counts && !r.Shadow && !r.logged {
			r.kind.spend(st, r, action{at: t, cost: units(cost), refused: true})
		}
	}
	return true
}

// Refund gives an unused slot back to every rule that was spent at it: not to shadow
// rules if one of them objected, and never to a rule that did not count it.
func (s *Set) Refund(st *State, t Spent, cost int, objected bool) {
	if s == nil {
		return
	}
	s.widen(st)
	for of := own; of < sides; of++ {
		if s.logs[of].keep > 0 && !(of == shadow && objected) {
			st.logs[of].refund(t.Latest, units(cost), s.logs[of].span, of == counting)
		}
	}
	for i := range s.rules {
		if r := &s.rules[i]; !r.logged && !(r.Shadow && objected) {
			r.kind.undo(st, r, t.at(r), units(cost))
		}
	}
}

// Full returns the instant from which the state equals none, for these rules and for
// those that its other parts belong to. It is 0 for the empty state.
func (s *Set) Full(st *State) int64 {
	full := int64(0)
	for of := own; of < sides; of++ {
		if log := &st.logs[of]; !log.empty() {
			span := log.span
			if s != nil {
				span = max(span, s.logs[of].span)
			}
			full = max(full, later(log.newest(), span))
		}
	}
	for i := range st.fields {
		full = max(full, s.fieldFull(st, &st.fields[i]))
	}
	return full
}

// fieldFull returns the instant from which nobody can tell a field from none.
func (s *Set) fieldFull(st *State, f *field) int64 {
	if r := s.ruleOf(f); r != nil {
		return r.kind.full(st, r)
	}
	return f.until
}

// FullOf returns the instant from which the i-th rule equals one that has admitted
// nothing.
func (s *Set) FullOf(st *State, i int) int64 { return s.rules[i].kind.full(st, &s.rules[i]) }

// Forget drops what belongs to rules that are gone, and that nobody can tell from nothing at
// the instant now. Without it that stays as long as the state.
func (s *Set) Forget(st *State, now int64) {
	for of := own; of < sides; of++ {
		if log := &st.logs[of]; (s == nil || s.logs[of].keep == 0) && !log.empty() && later(log.newest(), log.span) <= now {
			log.clear()
		}
	}
	for i := len(st.fields) - 1; i >= 0; i-- {
		if f := &st.fields[i]; s.ruleOf(f) == nil && f.until <= now {
			st.drop(f)
		}
	}
}

// Room returns how many actions of cost 1 the i-th rule lets start at t.
func (s *Set) Room(st *State, i int, t int64) int {
	r := &s.rules[i]
	if r.asked(st, t, 1) > t {
		return 0
	}
	if r.top == math.MaxInt {
		return 1
	}
	low, high := 1, r.topAt(t)
	for low < high {
		if middle := (low + high + 1) / 2; r.asked(st, t, middle) > t {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return low
}

// NextFree returns when the i-th rule lets more start than the room that it has at t; t if that
// is all that it ever lets start at once.
func (s *Set) NextFree(st *State, i int, t int64, room int) int64 {
	r := &s.rules[i]
	if room >= r.top || room > 0 && r.top == math.MaxInt {
		return t
	}
	return r.asked(st, t, room+1)
}

// After guesses when the i-th rule lets an action of cost 1 start that has k others before it, where it lets the first of them start
// at t, and how fast it lets the others start depends on when that is. It is false for all other rules.
func (s *Set) After(st *State, i int, t, k int64) (at int64, depends bool) {
	r := &s.rules[i]
	switch {
	case r.stages != nil:
		return r.warmed(st, t, k), true
	case r.ramp > 0:
		return r.ramped(st, t, k), true
	case r.Kind == Calendar:
		return r.periodAfter(st, t, k/r.n), true
	}
	return 0, false
}

// periodAfter returns when the period begins that comes so many after the one which contains t.
func (r *rule) periodAfter(st *State, t, n int64) int64 {
	for range min(n, mostPeriods) {
		_, t = r.around(st, t)
	}
	return t
}

// mostPeriods is how many periods ahead anybody looks.
const mostPeriods = 1000
