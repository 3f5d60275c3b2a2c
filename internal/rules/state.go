package rules

import "github.com/waterclock/waterclock/internal/wallclock"

// A State is what is remembered of one subject. The zero value remembers nothing. It is
// meant to be reused: Decode forgets what was there and keeps the memory.
type State struct {
	logs     [sides]log
	fields   []field
	of       *wallclock.Person // by whose clock the rules go that are of the user's; nil for nobody's
	grants   []Grant           // that are not used, in the order of their instants; no part of what is written
	returned []Grant           // that were used by what has not started
}

// Zone returns the name of the zone of whoever that is.
func (st *State) Zone() string { return st.of.Zone().String() }

// Of lets the rules that go by the user's clock go by that of a person. It is no part of what is remembered.
func (st *State) Of(p *wallclock.Person) { st.of = p }

// An id names a field: the kind of its rule, whether that is a shadow rule, and its place
// among the rules alike.
type id uint32

const idBits = 4 // of the kind and the world; the rest is the place

const (
	codeLeak id = iota
	codeTokenBucket
	codeFixedWindow
	codeSlidingCounter
	codeRamp // is written in the place of a leak's, if that remembers when a ramp began
)

// A field is what one rule remembers that does not look at a log. Each kind uses what it
// needs.
type field struct {
	id    id
	since int64 // it counts slots from here on: older ones are not given back
	last  int64 // the newest slot
	until int64 // from then on it equals none

	units int64   // leak: the cost of the newest slot; fixed window: the count
	rest  int64   // leak: n-ths of a µs behind last; token bucket: behind at
	from  int64   // leak: when its ramp began last; 0 if it had none
	ring  []int64 // sliding counter: counts of its buckets, newest first

	// Of a token bucket:
	before    int64 // the slot before the newest
	at        int64 // when it will be full again
	n, period int64 // the pace that `at` was reckoned by
}

// Empty reports whether nothing is remembered.
func (st *State) Empty() bool {
	return len(st.fields) == 0 && st.logs[own].empty() && st.logs[counting].empty() && st.logs[shadow].empty()
}

// Reset forgets everything and keeps the memory.
func (st *State) Reset() {
	for i := range st.logs {
		st.logs[i].clear()
	}
	st.fields = st.fields[:0]
}

// Recent returns the slots that the windows and spacings of the subject look at, oldest first: of
// what started, no more than the largest of its windows holds.
func (st *State) Recent() []int64 {
	var at []int64
	for _, s := range st.logs[own].live() {
		at = append(at, s.at)
	}
	return at
}

// Last returns the newest slot of what has started, 0 for none.
func (st *State) Last() int64 {
	last := st.logs[own].newest()
	for i := range st.fields {
		last = max(last, st.fields[i].last)
	}
	return last
}

// Newest returns the newest slot that is remembered, also of what was refused and in the world of
// shadow rules; 0 if there is none.
func (st *State) Newest() int64 {
	newest := int64(0)
	for i := range st.logs {
		newest = max(newest, st.logs[i].newest())
	}
	for i := range st.fields {
		newest = max(newest, st.fields[i].last)
	}
	return newest
}

// ForgetAfter forgets all slots after an instant. What a rule without a log remembers is
// forgotten as a whole if its newest slot is one of them.
func (st *State) ForgetAfter(t int64) {
	for i := range st.logs {
		l := &st.logs[i]
		for !l.empty() && l.newest() > t {
			l.units -= l.slots[len(l.slots)-1].cost
			l.slots = l.slots[:len(l.slots)-1]
		}
	}
	for i := len(st.fields) - 1; i >= 0; i-- {
		if st.fields[i].last > t {
			st.drop(&st.fields[i])
		}
	}
}

// find returns a field, or nil.
func (st *State) find(id id) *field {
	for i := range st.fields {
		if st.fields[i].id == id {
			return &st.fields[i]
		}
	}
	return nil
}

// own returns a field. One that is new counts from t on.
func (st *State) own(id id, t int64) *field {
	if f := st.find(id); f != nil {
		return f
	}
	f := st.add(id)
	f.since = t
	return f
}

// add appends an empty field, in used memory if there is some.
func (st *State) add(id id) *field {
	n := len(st.fields)
	if n < cap(st.fields) {
		st.fields = st.fields[:n+1]
	} else {
		st.fields = append(st.fields, field{})
	}
	f := &st.fields[n]
	*f = field{id: id, ring: f.ring[:0]}
	return f
}

// drop forgets a field. The last takes its place.
func (st *State) drop(f *field) {
	last := &st.fields[len(st.fields)-1]
	*f, *last = *last, *f
	st.fields = st.fields[:len(st.fields)-1]
}
