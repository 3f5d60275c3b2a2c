package rules

import "time"

// A rule is a Rule, compiled.
type rule struct {
	Rule
	name   string
	kind   kind
	id     id   // names its field in a State
	side   side // its log, and its world
	logged bool // windows and spacings
	paced  bool // leaks and token buckets: they count slots
	top    int  // costs above it count as all of it
	pace
	length int64          // of one period or bucket, counted from the epoch
	guard  int64          // no slot lies within so much of its end
	zone   *time.Location // of a calendar window: its periods are those of a calendar there
	plans  []plan         // of hours: one of them has to be open
	ramp   int64          // of a leak that has one
	stages []stage        // of a warm-up
}

// A kind is what an algorithm does. The first two answer, the others change the state of
// the subject.
type kind interface {
	// when returns the first instant >= t at which the rule admits cost, at most r.top.
	when(st *State, r *rule, t, cost int64) int64
	// full returns the instant from which the rule cannot tell the state from none.
	full(st *State, r *rule) int64
	// spend counts an action.
	spend(st *State, r *rule, a action)
	// undo gives the slot t back.
	undo(st *State, r *rule, t, cost int64)
}

// A Spent is a slot that was taken, and by when its action starts: at the slot, as a rule. Leaks and token buckets count the slot, all
// others the latest instant at which the action may start.
type Spent struct{ Slot, Latest int64 }

// At returns an action that starts at its slot.
func At(slot int64) Spent { return Spent{slot, slot} }

// at returns what a rule counts.
func (s Spent) at(r *rule) int64 {
	if r.paced {
		return s.Slot
	}
	return s.Latest
}

// An action starts at an instant and costs something, or was refused then.
type action struct {
	at, cost int64
	refused  bool
}
