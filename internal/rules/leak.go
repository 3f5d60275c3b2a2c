package rules

// A leak admits n per period, evenly, and saves nothing up. It keeps its last slot and
// that slot's cost: what follows from them obeys the rate in force now, so a changed rate
// acts at once. (The leaky bucket as a queue: GCRA with no tolerance, ITU-T I.371.)
type leak struct{}

// turn returns the instant from which the next action may start.
func (leak) turn(f *field, r *rule) (at, rest int64) {
	if f == nil {
		return 0, 0
	}
	return r.advance(f.last, min(f.rest, r.n-1), f.units)
}

func (k leak) when(st *State, r *rule, t, _ int64) int64 {
	return max(t, roundUp(k.turn(st.find(r.id), r)))
}

// full lies behind the turn as long as a start at the turn would carry its fraction on.
func (k leak) full(st *State, r *rule) int64 {
	at, rest := k.turn(st.find(r.id), r)
	if rest > 0 {
		return later(at, 2)
	}
	return at
}

func (k leak) spend(st *State, r *rule, a action) {
	f := st.own(r.id, a.at)
	at, rest := k.turn(f, r)
	turn := roundUp(at, rest)
	if from, part := r.advance(a.at, 0, a.cost); a.at > turn || a.at < turn && isLater(from, part, at, rest) {
		at, rest = a.at, 0
	}
	if a.at >= turn || at == a.at {
		f.last, f.rest, f.units = at, rest, a.cost
		f.until = k.full(st, r)
	}
}

// undo gives only the newest slot back: what follows an older one stays where it is.
func (k leak) undo(st *State, r *rule, t, cost int64) {
	f := st.find(r.id)
	if f != nil && roundUp(f.last, f.rest) == t && f.units == cost {
		f.units = 0
		f.until = k.full(st, r)
	}
}
