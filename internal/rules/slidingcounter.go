package rules

// A sliding counter keeps the counts of its newest buckets, newest first, and its newest
// slot. Two buckets are this period and the one before, which counts by how much of it
// overlaps the rolling period. More are parts of one period and count in full.
type slidingCounter struct{}

// newest returns the number of the newest bucket that was used.
func (slidingCounter) newest(f *field, r *rule) int64 {
	if f == nil {
		return 0
	}
	return f.last / r.length
}

// count returns how many the i-th bucket has counted, from the newest.
func (slidingCounter) count(f *field, i int64) int64 {
	if f == nil || i < 0 || i >= int64(len(f.ring)) {
		return 0
	}
	return f.ring[i]
}

func (k slidingCounter) when(st *State, r *rule, t, cost int64) int64 {
	f := st.find(r.id)
	newest := k.newest(f, r)
	number := max(newest, t/r.length)
	for ; number < newest+int64(r.Buckets); number++ {
		first, room := newest-number, r.n-cost // the place of this bucket in the ring
		if r.Buckets == 2 {
			if at, fits := weighted(r, number, room-k.count(f, first), k.count(f, first+1)); fits {
				return max(t, at)
			}
			continue
		}
		for i := range int64(r.Buckets) {
			room -= k.count(f, first+i)
		}
		if room >= 0 {
			break
		}
	}
	return max(t, min(number*r.length, Never))
}

// weighted returns the first instant of a bucket at which room is left beside what still
// overlaps of the old ones in the bucket before, and whether there is one.
func weighted(r *rule, number, room, old int64) (at int64, fits bool) {
	wait := int64(0)
	switch {
	case room < 0:
		return 0, false
	case old > room:
		wait = r.period - room*(r.period/old) - room*(r.period%old)/old
	}
	return min(number*r.period+wait, Never), wait < r.period
}

func (k slidingCounter) full(st *State, r *rule) int64 {
	f := st.find(r.id)
	if f == nil {
		return 0
	}
	return min((k.newest(f, r)+int64(r.Buckets))*r.length, Never)
}

func (k slidingCounter) spend(st *State, r *rule, a action) {
	f := st.own(r.id, a.at)
	newest := k.newest(f, r)
	f.shift(max(newest, a.at/r.length)-newest, r.Buckets)
	f.ring[0] = counted(f.ring[0], a.cost, r.n, a.refused)
	f.last = max(f.last, a.at)
	f.until = k.full(st, r)
}

// shift makes room for so many newer buckets, and forgets those that are too old. A ring
// does not shrink: a rule that is changed for a moment must not make it forget.
func (f *field) shift(by int64, buckets int) {
	for len(f.ring) < buckets {
		f.ring = append(f.ring, 0)
	}
	n := int(min(by, int64(len(f.ring))))
	copy(f.ring[n:], f.ring)
	clear(f.ring[:n])
}

func (k slidingCounter) undo(st *State, r *rule, t, cost int64) {
	f := st.find(r.id)
	if f == nil || t < f.since {
		return
	}
	i := k.newest(f, r) - t/r.length
	if k.count(f, i) == 0 {
		return
	}
	f.ring[i] = max(0, f.ring[i]-cost)
	f.until = k.full(st, r)
}
