package rules

import "math"

// A ramp is a leak whose rate grows: after it has stood still for longer than the ramp takes, it begins with a tenth of its rate,
// which grows evenly until the ramp is over. It stands still from the instant on at which the next action may start. Beside what a
// leak keeps it keeps when the ramp began: a leak that had none so far goes on at its whole rate.
type ramp struct{ leak }

// begins is the part of the rate with which a ramp begins.
const begins = 0.1

// turn returns the instant from which the next action may start.
func (k ramp) turn(f *field, r *rule) (at, rest int64) {
	if f == nil {
		return 0, 0
	}
	passed := f.last - f.from
	if passed >= r.ramp {
		return k.leak.turn(f, r)
	}
	return r.growsTo(f.from, passed, f.units), 0
}

// growsTo returns when so many units have started that follow those of some time since a ramp began.
//
// How much may start in a time x is the rate, times x at its beginning, plus what it has grown by: b·x + (1-b)·x²/2w, of a ramp of
// length w. It is told in time at the whole rate.
func (r *rule) growsTo(began, passed, units int64) int64 {
	each, w, x := float64(r.period)/float64(r.n), float64(r.ramp), float64(passed)
	whole := (1 + begins) / 2 * w
	due := whole + x - w
	if x < w {
		due = begins*x + (1-begins)*x*x/(2*w)
	}
	if due += float64(units) * each; due > whole {
		x = w + due - whole
	} else {
		x = (math.Sqrt(begins*begins+2*(1-begins)*due/w) - begins) * w / (1 - begins)
	}
	if x >= float64(Never-began) {
		return Never
	}
	return began + int64(math.Ceil(x))
}

// ramped is [Set.After] for a leak with a ramp, which begins at t if the leak has stood still for longer than it takes.
func (r *rule) ramped(st *State, t, k int64) int64 {
	began := t
	if f := st.find(r.id); f != nil && t <= later(roundUp(ramp{}.turn(f, r)), r.ramp) {
		began = f.from
	}
	return r.growsTo(began, t-began, k)
}

func (k ramp) when(st *State, r *rule, t, _ int64) int64 {
	return max(t, roundUp(k.turn(st.find(r.id), r)))
}

// full lies a ramp behind the turn: until then an action would go on with the ramp.
func (k ramp) full(st *State, r *rule) int64 {
	return later(roundUp(k.turn(st.find(r.id), r)), r.ramp+2)
}

func (k ramp) spend(st *State, r *rule, a action) {
	f := st.find(r.id)
	at, rest := k.turn(f, r)
	turn := roundUp(at, rest)
	switch {
	case f == nil || a.at > later(turn, r.ramp): // it has stood still
		f = st.own(r.id, a.at)
		f.from, f.last, f.rest, f.units = a.at, a.at, 0, a.cost
	case a.at > turn:
		f.last, f.rest, f.units = a.at, 0, a.cost
	case a.at == turn:
		f.last, f.rest, f.units = at, rest, a.cost
	default: // before its turn
		f.units = min(f.units+a.cost, mostUnits)
	}
	f.until = k.full(st, r)
}

// undo gives only the newest slot back. A ramp that began with it has not begun: the leak stands still since before.
func (k ramp) undo(st *State, r *rule, t, cost int64) {
	f := st.find(r.id)
	if f == nil || roundUp(f.last, f.rest) != t || f.units != cost {
		return
	}
	if f.from == t {
		f.from = t - r.ramp - 1
		f.last = f.from
	}
	f.units = 0
	f.until = k.full(st, r)
}
