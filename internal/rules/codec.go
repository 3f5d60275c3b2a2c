package rules

import (
	"encoding/binary"
	"errors"
)

// A state is written as a version, then its parts: each a tag and numbers, all as
// unsigned varints. Instants near another one are written as the distance to it.
//
//	tag 0, 1, 2   the log of that side: keep, span, how many slots, the newest slot, its
//	              cost; then for each older one twice the distance to the slot before,
//	              plus 1 and followed by its cost if that is not 1
//	tag 3 + id    a field: last, since, until; then what its kind keeps
const version = 1

var (
	errVersion = errors.New("rules: the state was written by another version")
	errGarbage = errors.New("rules: the state cannot be read")
)

// Append appends the state in the form that [State.Decode] reads, and nothing for an
// empty state.
func (st *State) Append(b []byte) []byte {
	if st.Empty() {
		return b
	}
	b = append(b, version)
	for of := own; of < sides; of++ {
		if !st.logs[of].empty() {
			b = st.logs[of].append(append(b, byte(of)))
		}
	}
	for i := range st.fields {
		f := &st.fields[i]
		b = f.append(binary.AppendUvarint(b, uint64(f.written())+uint64(sides)))
	}
	return b
}

func (l *log) append(b []byte) []byte {
	live := l.live()
	newest := live[len(live)-1]
	for _, n := range [...]int64{l.keep, l.span, int64(len(live)), newest.at, newest.cost} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	for i := len(live) - 2; i >= 0; i-- {
		gap := uint64(live[i+1].at-live[i].at) << 1
		if live[i].cost == 1 {
			b = binary.AppendUvarint(b, gap)
		} else {
			b = binary.AppendUvarint(binary.AppendUvarint(b, gap|1), uint64(live[i].cost))
		}
	}
	return b
}

func (f *field) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.last))
	b = binary.AppendVarint(b, f.since-f.last)
	b = binary.AppendVarint(b, f.until-f.last)
	switch f.code() {
	case codeLeak:
		b = binary.AppendUvarint(b, uint64(f.rest))
		b = binary.AppendUvarint(b, uint64(f.units))
		if f.from != 0 {
			b = binary.AppendVarint(b, f.from-f.last)
		}
	case codeTokenBucket:
		b = binary.AppendVarint(b, f.before-f.last)
		b = binary.AppendVarint(b, f.at-f.last)
		for _, n := range [...]int64{f.rest, f.n, f.period} {
			b = binary.AppendUvarint(b, uint64(n))
		}
	case codeFixedWindow:
		b = binary.AppendUvarint(b, uint64(f.units))
	case codeSlidingCounter:
		b = binary.AppendUvarint(b, uint64(len(f.ring)))
		for _, count := range f.ring {
			b = binary.AppendUvarint(b, uint64(count))
		}
	}
	return b
}

// code returns the kind that a field belongs to.
func (f *field) code() id { return f.id.code() }

func (i id) code() id { return i & (1<<idBits - 1) >> 1 }

// as returns the id with another kind.
func (i id) as(code id) id { return i - i.code()<<1 + code<<1 }

// written returns by which id a field is written.
func (f *field) written() id {
	if f.code() == codeLeak && f.from != 0 {
		return f.id.as(codeRamp)
	}
	return f.id
}

// Decode replaces the state by the one that b holds, which it does not retain. The empty
// string is the empty state. What cannot be read is an error, and leaves an empty state.
func (st *State) Decode(b string) error {
	st.Reset()
	if b == "" {
		return nil
	}
	if b[0] != version {
		return errVersion
	}
	r := reader{rest: b[1:]}
	for r.rest != "" && !r.bad {
		switch tag := r.next(maxTag); {
		case tag < int64(sides):
			r.log(&st.logs[tag])
		default:
			r.field(st, id(tag)-id(sides))
		}
	}
	if r.bad {
		st.Reset()
		return errGarbage
	}
	return nil
}

const maxTag = 1 << 20

// A reader takes a state apart. Once something was bad, all numbers are 0.
type reader struct {
	rest string
	bad  bool
}

// next returns the next number, from 0 to most.
func (r *reader) next(most int64) int64 {
	n, shift := uint64(0), 0
	for i := range len(r.rest) {
		c := r.rest[i]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			if n > uint64(most) {
				break
			}
			r.rest = r.rest[i+1:]
			return int64(n)
		}
		if shift += 7; shift > 63-7 {
			break
		}
	}
	r.rest, r.bad = "", true
	return 0
}

// near returns an instant that was written as its distance to another.
func (r *reader) near(to int64) int64 {
	n := r.next(4 * Never)
	at := to + (n>>1 ^ -(n & 1))
	if at < 0 || at > Never {
		r.bad = true
		return 0
	}
	return at
}

// positive returns the next number, from 1 to most.
func (r *reader) positive(most int64) int64 {
	n := r.next(most)
	r.bad = r.bad || n == 0
	return max(n, 1)
}

func (r *reader) log(l *log) {
	if !l.empty() {
		r.bad = true
		return
	}
	l.keep, l.span = r.positive(mostUnits), r.positive(Never)
	n := r.positive(int64(len(r.rest)))
	if r.bad {
		return
	}
	for int64(cap(l.slots)) < n {
		l.slots = append(l.slots[:cap(l.slots)], slot{})
	}
	l.slots = l.slots[:n]
	at, cost := r.next(Never), r.positive(mostUnits)
	for i := n - 1; ; i-- {
		l.slots[i] = slot{at, cost}
		if l.units += cost; i == 0 || r.bad {
			return
		}
		gap := r.next(2*Never + 1)
		cost = 1
		if gap&1 == 1 {
			cost = r.positive(mostUnits)
		}
		gap >>= 1
		at -= gap
		r.bad = r.bad || gap == 0 || at < 0
	}
}

// field reads what is written of a field by such an id.
func (r *reader) field(st *State, written id) {
	ramps, of := written.code() == codeRamp, written
	if ramps {
		of = written.as(codeLeak)
	}
	if st.find(of) != nil {
		r.bad = true
		return
	}
	f := st.add(of)
	f.last = r.next(Never)
	f.since, f.until = r.near(f.last), r.near(f.last)
	switch f.code() {
	case codeLeak:
		f.rest, f.units = r.next(mostUnits), r.next(mostUnits)
		if ramps {
			f.from = r.near(f.last)
			r.bad = r.bad || f.from == 0
		}
	case codeTokenBucket:
		f.before, f.at = r.near(f.last), r.near(f.last)
		f.rest, f.n, f.period = r.next(mostUnits), r.positive(mostUnits), r.positive(Never)
	case codeFixedWindow:
		f.units = r.next(mostUnits)
	case codeSlidingCounter:
		n := r.positive(int64(len(r.rest)))
		for range n {
			f.ring = append(f.ring, r.next(mostUnits))
		}
	}
}
