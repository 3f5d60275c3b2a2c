package rules

// A fixed window admits at most n in each period since the epoch. It keeps its newest slot
// and the count of that slot's period.
type fixedWindow struct{}

// used returns the number of the newest period that was used, and its count.
func (fixedWindow) used(f *field, r *rule) (number, count int64) {
	if f == nil {
		return 0, 0
	}
	return f.last / r.period, f.units
}

func (k fixedWindow) when(st *State, r *rule, t, cost int64) int64 {
	number, count := k.used(st.find(r.id), r)
	if count+cost > r.n {
		number++
	}
	return max(t, min(number*r.period, Never))
}

func (k fixedWindow) full(st *State, r *rule) int64 {
	f := st.find(r.id)
	if f == nil {
		return 0
	}
	number, _ := k.used(f, r)
	return min((number+1)*r.period, Never)
}

func (k fixedWindow) spend(st *State, r *rule, a action) {
	f := st.own(r.id, a.at)
	number, count := k.used(f, r)
	if a.at/r.period > number {
		count = 0
	}
	f.units = counted(count, a.cost, r.n, a.refused)
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
	if f == nil || t < f.since || t/r.period != f.last/r.period {
		return
	}
	f.units = max(0, f.units-cost)
	f.until = k.full(st, r)
}
