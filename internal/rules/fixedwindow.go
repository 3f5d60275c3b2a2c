package rules

// A fixed window admits at most n in each period: of a length, since the epoch, or by the calendar of a zone. It keeps its
// newest slot and the count of that slot's period.
type fixedWindow struct{}

// Around returns when the period of a window by the calendar began that contains an instant, and when it ends. Its zone is not that of a user.
func (r Rule) Around(t int64) (begin, end int64) { return r.Unit.Around(zoneOf(r), t) }

// around returns when the period began that contains an instant, and when it ends.
func (r *rule) around(st *State, t int64) (begin, end int64) {
	switch {
	case r.zone != nil:
		return r.Unit.Around(r.zone, t)
	case r.Unit != "":
		return r.Unit.Around(st.of.Zone(), t)
	}
	begin = t - t%r.length
	return begin, later(begin, r.length)
}

func (fixedWindow) when(st *State, r *rule, t, cost int64) int64 {
	f := st.find(r.id)
	if f == nil {
		return t
	}
	begin, end := r.around(st, f.last)
	if f.units+cost > r.n {
		return max(t, end)
	}
	return max(t, begin)
}

func (fixedWindow) full(st *State, r *rule) int64 {
	f := st.find(r.id)
	if f == nil {
		return 0
	}
	_, end := r.around(st, f.last)
	return end
}

func (k fixedWindow) spend(st *State, r *rule, a action) {
	f := st.own(r.id, a.at)
	if _, end := r.around(st, f.last); a.at >= end {
		f.units = 0
	}
	f.units = counted(f.units, a.cost, r.n, a.refused)
	f.last = max(f.last, a.at)
	f.until = k.full(st, r)
}

// counted adds a cost to a count. What was refused fills it up to n and no further.
func counted(count, cost, n int64, refused bool) int64 {
	if refused {
		return max(count, min(n, count+cost))
	}
	return min(count+cost, mostUnits)
}

func (k fixedWindow) undo(st *State, r *rule, t, cost int64) {
	f := st.find(r.id)
	if f == nil || t < f.since {
		return
	}
	if begin, end := r.around(st, f.last); t < begin || t >= end {
		return
	}
	f.units = max(0, f.units-cost)
	f.until = k.full(st, r)
}
