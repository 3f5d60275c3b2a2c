package throttle

import (
	"cmp"
	"slices"
)

// A modelWorld is all subjects under their rules: what a store does, in plain words.
type modelWorld struct {
	subjects map[string]*modelSubject
}

type modelSubject struct {
	Subject
	rules, shadows []*modelRule
	units          map[string][]int64 // by side: every slot, a unit of cost each
	until          int64              // when nobody can tell it from new
}

func newModelSubject(s Subject) *modelSubject {
	m := &modelSubject{Subject: s, units: map[string][]int64{}}
	for i, rule := range s.Rules {
		if rule.kind == KindWindow || rule.kind == KindSpacing {
			rule.period += s.Slack
		}
		r := &modelRule{Rule: rule, place: i + 1, busy: rat(0)}
		if rule.shadow {
			m.shadows = append(m.shadows, r)
		} else {
			m.rules = append(m.rules, r)
		}
	}
	return m
}

func (m *modelRule) side() string {
	switch {
	case m.shadow:
		return "shadow"
	case m.counts:
		return "counting"
	}
	return ""
}

func (m *modelSubject) all() []*modelRule { return slices.Concat(m.rules, m.shadows) }

func (w *modelWorld) expire(now int64) {
	for _, m := range w.subjects {
		m.expire(now)
	}
}

// expire forgets what Redis would have: whole milliseconds after it ceased to matter.
func (m *modelSubject) expire(now int64) {
	if now < m.until {
		return
	}
	for _, r := range m.all() {
		*r = modelRule{Rule: r.Rule, subject: r.subject, place: r.place, busy: rat(0)}
	}
	clear(m.units)
}

// touch says how long it lives, now that some of it was written.
func (m *modelSubject) touch(now int64) {
	m.until = now
	for _, r := range m.all() {
		full := r.last + r.per()
		if !r.logged() {
			full = r.full()
		}
		m.until = max(m.until, now+(margin+max(1, (full-now+999)/1000))*1000)
	}
}

func (m *modelSubject) spend(rules []*modelRule, now, t, cost int64, refused bool) {
	logs := map[string]bool{}
	for _, r := range rules {
		r.spend(t, cost, refused)
		if side := r.side(); r.logged() && !logs[side] {
			logs[side] = true
			m.units[side] = append(m.units[side], slices.Repeat([]int64{r.last}, int(cost))...)
		}
	}
	if len(rules) > 0 || !refused {
		m.touch(now)
	}
}

// A modelAnswer is what stores must agree on.
type modelAnswer struct {
	Outcome    Outcome
	Slot, Full int64
	Subject    string
	Rule       int
	Remaining  int
	Shadow     int
	Spent      bool
}

func (w *modelWorld) decide(v verb, b bounds, costs []int, now int64, keys []string) modelAnswer {
	var rules, shadows []*modelRule
	var subjects []*modelSubject
	w.expire(now)
	for i, key := range keys {
		m := w.subjects[key]
		subjects = append(subjects, m)
		for _, r := range m.all() {
			r.subject, r.cost = i, int64(costs[i])
		}
		rules, shadows = append(rules, m.rules...), append(shadows, m.shadows...)
	}
	var objector *modelRule
	from := now + b.after.Microseconds()
	t, binding := earliestOf(subjects, from)
	answer := modelAnswer{Outcome: Admitted, Full: now}
	if t > now {
		answer.Outcome = Deferred
	}
	if i := slices.IndexFunc(rules, func(r *modelRule) bool { return r.drop && r.when(t, r.cost) > t }); i >= 0 {
		answer.Outcome, binding = Dropped, rules[i]
	}
	answer.Spent = answer.Outcome == Admitted && (v == verbAllow || v == verbReserve) || answer.Outcome == Deferred && v == verbReserve && (!b.bounded || t <= from+b.within.Microseconds())
	if !answer.Spent && (v == verbAllow || v == verbCount || v == verbReserve && answer.Outcome == Dropped) {
		for i, m := range subjects {
			m.spend(slices.DeleteFunc(slices.Clone(m.rules), func(r *modelRule) bool { return !r.counts }), now, now, int64(costs[i]), true)
		}
		if answer.Outcome == Deferred { // who waits exactly so long must not be refused for this try
			t, binding = earliestOf(subjects, now)
		}
	}
	answer.Slot = t
	for _, r := range shadows {
		if objector == nil && (r.cost > r.topCost() || r.when(t, r.cost) > t) {
			objector = r
			answer.Shadow = r.place
		}
	}
	for i, m := range subjects {
		if answer.Spent {
			spending := m.rules
			if objector == nil {
				spending = m.all()
			}
			m.spend(spending, now, t, int64(costs[i]), false)
		}
	}
	if binding == nil && len(rules) > 0 {
		binding = slices.MinFunc(rules, func(a, b *modelRule) int { return cmp.Compare(a.room(now), b.room(now)) })
	}
	if binding != nil {
		answer.Subject, answer.Rule = keys[binding.subject], binding.place
		answer.Remaining, answer.Full = binding.room(now), binding.full()
	}
	return answer
}

// earliestOf asks the subjects until all of them allow the instant.
func earliestOf(subjects []*modelSubject, t int64) (int64, *modelRule) {
	var binding *modelRule
	for again := true; again; {
		again = false
		for _, m := range subjects {
			if at, rule := m.earliest(t); rule != nil {
				t, binding, again = at, rule, true
			}
		}
	}
	return t, binding
}

// earliest asks the rules of a subject until all of them allow the instant.
func (m *modelSubject) earliest(t int64) (int64, *modelRule) {
	var binding *modelRule
	for again := true; again; {
		again = false
		for _, r := range m.rules {
			at := t
			if !r.drop {
				at = r.when(t, min(r.cost, r.topCost()))
			}
			if part := r.part().Microseconds(); m.Slack > 0 && part > 0 && part-at%part <= m.Slack.Microseconds() {
				at += part - at%part // an action that starts late would be in the next period
			}
			if at > t {
				t, binding, again = at, r, true
			}
		}
	}
	return t, binding
}

func (m *modelRule) topCost() int64 {
	if m.kind == KindLeak || m.kind == KindSpacing {
		return 1 << 40
	}
	return int64(m.most())
}

// refund takes a slot out of everything. A log is a list of limited length: what it has
// forgotten is taken to have been as late as the rules can have let it be.
func (w *modelWorld) refund(keys []string, costs []int, slot, now int64, objected bool) {
	w.expire(now)
	for i, key := range keys {
		m, cost := w.subjects[key], costs[i]
		logs := map[string]bool{}
		for _, r := range m.all() {
			if r.shadow && objected {
				continue
			}
			if !r.logged() {
				r.undo(slot, int64(cost))
			} else if !logs[r.side()] {
				logs[r.side()] = m.removeUnits(r.side(), slot, cost)
			}
		}
		for _, r := range m.all() {
			if r.logged() && logs[r.side()] {
				r.spent, r.last = nil, 0
				for _, unit := range m.units[r.side()] {
					r.spent, r.last = append(r.spent, modelSpend{unit, 1}), max(r.last, unit)
				}
			}
		}
		m.touch(now)
	}
}

func (m *modelSubject) removeUnits(side string, slot int64, cost int) bool {
	keep, span := 0, int64(0)
	for _, r := range m.all() {
		if r.logged() && r.side() == side {
			keep, span = max(keep, r.limit+1), max(span, r.per())
		}
	}
	units := m.units[side]
	slices.Sort(units)
	units = units[max(0, len(units)-keep):]
	if !slices.Contains(units, slot) {
		return false
	}
	full, newest, oldest := len(units) == keep, units[len(units)-1], units[0]
	removed := 0
	units = slices.DeleteFunc(slices.Clone(units), func(unit int64) bool {
		if unit == slot && removed < cost {
			removed++
			return true
		}
		return false
	})
	if full {
		latest := min(oldest, newest-span)
		if side == "counting" {
			latest = oldest
		}
		units = append(slices.Repeat([]int64{latest}, removed), units...)
	}
	m.units[side] = units
	return true
}
