package schedule

import "math"

// Two things make up an index in memory: a heap of members with their bounds, and a front, which says up to which bound
// all members are in the heap. Both are small: what lies behind the frontier is read when it comes near.
//
// Tenants of one bound keep the order in which they got it. Lanes of one bound stand in the order of their turns: the one
// that was served longest ago comes first. A lane keeps its turn while its bound moves, since what moves it (the rules of
// its user, say) may move the bounds of others to the same instant.

// Never is later than any instant.
const Never = math.MaxInt64

// A heap holds items by a number, the least first, and those with the same number by their turns, or, without those, in
// the order in which they got it. Items know their places in it.
type heap[T any] struct {
	entries []entry[T]
	at      func(T) *int   // the place of an item
	turn    func(T) uint64 // nil for items without turns
	sets    uint64
}

type entry[T any] struct {
	bound int64
	turn  uint64 // of the item, or the number of the call that has set the bound
	item  T
}

func (e *entry[T]) before(other *entry[T]) bool {
	return e.bound < other.bound || e.bound == other.bound && e.turn < other.turn
}

const outside = -1 // the place of an item in no heap

func (h *heap[T]) len() int { return len(h.entries) }

// first returns the earliest bound, or Never.
func (h *heap[T]) first() int64 {
	if len(h.entries) == 0 {
		return Never
	}
	return h.entries[0].bound
}

// set gives an item a bound, and puts it in if it is not there. An item that has this bound already keeps its place
// among those with the same one.
func (h *heap[T]) set(item T, bound int64) {
	i := *h.at(item)
	if i == outside {
		i = len(h.entries)
		h.entries = append(h.entries, entry[T]{bound, 0, item})
		*h.at(item) = i
	}
	switch e := &h.entries[i]; {
	case h.turn != nil:
		e.bound, e.turn = bound, h.turn(item)
	case e.turn == 0 || e.bound != bound:
		h.sets++
		e.bound, e.turn = bound, h.sets
	}
	h.down(h.up(i))
}

// lower gives an item an earlier bound, if it has a later one or none.
func (h *heap[T]) lower(item T, bound int64) {
	if i := *h.at(item); i == outside || h.entries[i].bound > bound {
		h.set(item, bound)
	}
}

// bound returns the bound of an item, Never for one that is not in the heap.
func (h *heap[T]) bound(item T) int64 {
	if i := *h.at(item); i != outside {
		return h.entries[i].bound
	}
	return Never
}

// remove takes an item out, if it is in the heap.
func (h *heap[T]) remove(item T) {
	i, last := *h.at(item), len(h.entries)-1
	if i == outside {
		return
	}
	h.swap(i, last)
	var none entry[T]
	h.entries[last] = none
	h.entries = h.entries[:last]
	*h.at(item) = outside
	if i < last {
		h.down(h.up(i))
	}
}

func (h *heap[T]) swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	*h.at(h.entries[i].item), *h.at(h.entries[j].item) = i, j
}

func (h *heap[T]) up(i int) int {
	for parent := (i - 1) / 2; i > 0 && h.entries[i].before(&h.entries[parent]); parent = (i - 1) / 2 {
		h.swap(i, parent)
		i = parent
	}
	return i
}

func (h *heap[T]) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(h.entries) {
			return
		}
		if child+1 < len(h.entries) && h.entries[child+1].before(&h.entries[child]) {
			child++
		}
		if !h.entries[child].before(&h.entries[i]) {
			return
		}
		h.swap(i, child)
		i = child
	}
}

// A front is how far an index in Redis is known: all of its members with a bound before the frontier are in memory. Of those with
// the bound of the frontier the first ones are, up to a member: there may be a million of them, lanes whose hours open at one
// instant. What is in memory may lie beyond.
type front struct {
	frontier int64  // Never if all is known
	after    string // the last member with that bound that is known, in the order of Redis; "" if none is
	asked    bool   // what lies beyond is being read
	missed   int64  // the earliest bound to which the frontier was moved back while it is read
}

// frontChunk is how many members of an index are read at a time.
const frontChunk = 64

// newFront returns the front of an index of which nothing is known.
func newFront() front { return front{missed: Never} }

// whole is the front of an index that is known to be empty.
func whole() front { return front{frontier: Never, missed: Never} }

// ask notes that what lies beyond the frontier is being read.
func (f *front) ask() { f.asked, f.missed = true, Never }

// next is what lies beyond the frontier, as much of it as is read at a time.
func (f *front) next() Span { return Span{f.frontier, f.after, frontChunk} }

// lower moves the frontier back to a bound, before all members that have it: one that is not in memory may have it, too.
func (f *front) lower(at int64) {
	if at <= f.frontier {
		f.frontier, f.after = at, ""
	}
	f.missed = min(f.missed, at)
}

// learn notes what was read. Fewer members than were asked for are all that there are. What the frontier was moved back to
// meanwhile holds (missed).
func (f *front) learn(found []Bound) {
	missed := f.missed
	f.frontier, f.after = Never, ""
	if n := len(found); n >= frontChunk {
		f.frontier, f.after = found[n-1].At, found[n-1].Member
	}
	f.lower(missed)
	f.asked, f.missed = false, Never
}
