package rules

import (
	"cmp"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
)

// Hours admit everything while they are open, and nothing while they are closed. They remember nothing: when they open is a
// function of the instant. The hours of a set are alternatives, and one rule: one of them has to be open.
//
// What other rules allow they allow later, too. What hours allow they do not: so a set with hours is asked again until all
// of its rules agree ([Set.Earliest]).
type hours struct{}

// A plan is the hours of one rule, in their zone.
type plan struct {
	wallclock.Hours
	zone  *time.Location // nil for that of the user
	quiet bool           // those that are the user's own: all but the quiet ones
}

// OfUser stands for the user's own zone, and hours.
const OfUser = "user"

// newPlan returns the hours of a valid rule.
func newPlan(r Rule) plan {
	text := r.Hours
	if text == OfUser {
		text = cmp.Or(r.Within, wholeDay)
	}
	open, _ := wallclock.ParseHours(text, r.Days, r.Holidays)
	return plan{open, zoneOf(r), r.Hours == OfUser}
}

const wholeDay = "00:00-24:00"

// opens returns the first instant from t on at which the plan is open.
func (p *plan) opens(st *State, t int64) int64 {
	switch {
	case p.quiet:
		return st.of.Opens(&p.Hours, t)
	case p.zone == nil:
		return p.Opens(st.of.Zone(), t)
	}
	return p.Opens(p.zone, t)
}

// closes returns the first instant from t on at which the plan is closed.
func (p *plan) closes(st *State, t int64) int64 {
	switch {
	case p.quiet:
		return st.of.Closes(&p.Hours, t)
	case p.zone == nil:
		return p.Closes(st.of.Zone(), t)
	}
	return p.Closes(p.zone, t)
}

// zoneOf returns the zone of a valid rule; nil for that of the user.
func zoneOf(r Rule) *time.Location {
	if r.Zone == OfUser {
		return nil
	}
	zone, err := wallclock.Zone(r.Zone)
	if err != nil {
		return time.UTC
	}
	return zone
}

// when returns the first instant at which one of the plans is open, and stays so for longer than an action may start after its slot.
func (hours) when(st *State, r *rule, t, _ int64) int64 {
	for t < Never {
		t = r.opens(st, t)
		if r.guard == 0 {
			return t
		}
		closes := r.closes(st, t)
		if closes == Never || closes-t > r.guard {
			return t
		}
		t = closes
	}
	return Never
}

func (hours) full(*State, *rule) int64         { return 0 }
func (hours) spend(*State, *rule, action)      {}
func (hours) undo(*State, *rule, int64, int64) {}

// or makes other hours alternatives of the rule.
func (r *rule) or(other rule) {
	r.plans = append(r.plans, other.plans...)
	r.name += " or " + strings.TrimPrefix(other.name, string(Hours)+" ")
}

// opens returns the first instant from t on at which one of the plans is open.
func (r *rule) opens(st *State, t int64) int64 {
	first := Never
	for i := range r.plans {
		first = min(first, r.plans[i].opens(st, t))
	}
	return first
}

// closes returns until when one of the plans is open from t on: at least, where they take turns many times.
func (r *rule) closes(st *State, t int64) int64 {
	again := true
	for n := 0; again && n < passes && t < Never; n++ {
		again = false
		for i := range r.plans {
			if at := r.plans[i].closes(st, t); at > t {
				t, again = at, true
			}
		}
	}
	return t
}

// Closes reports whether the set has hours: whether it may admit nothing for some time, whatever it remembers.
func (s *Set) Closes() bool { return s != nil && s.hours >= 0 }

// HoursName returns the name of the hours of a set that has some.
func (s *Set) HoursName() string { return s.rules[s.hours].name }

// Open returns the first instant from t on at which the hours of the set are open, and until when they are, at least. Without hours
// that is always. Hours that drop keep nobody waiting, and do not count here.
func (s *Set) Open(st *State, t int64) (from, until int64) {
	if !s.Closes() {
		return t, Never
	}
	r := &s.rules[s.hours]
	from = r.opens(st, t)
	return from, r.closes(st, from)
}

// Personal reports whether a rule of the set goes by the user's own clock, or hours.
func (s *Set) Personal() bool {
	for i := range s.list() {
		if s.rules[i].Zone == OfUser {
			return true
		}
	}
	return false
}
