package rules

// A side is a log of its own, and the world that it is the memory of.
type side uint8

const (
	own      side = iota // what started
	counting             // what started, and what was refused
	shadow               // what shadow rules would have let start
	sides
)

// A log holds the newest slots that its windows and spacings look at, and one more, so
// that a log which has forgotten some can be told from one which has not. It remembers the
// most that it ever had to hold, until it is empty: a rule that is tightened for a moment
// must not make it forget.
type log struct {
	slots []slot // oldest first, each instant once
	head  int    // slots before it are gone
	units int64  // their costs, summed up
	keep  int64  // how many units it holds at least
	span  int64  // how long they matter
	step  int64  // slots within one step of the clock are kept as one, the last of them; 0 if each is
}

type slot struct{ at, cost int64 }

func (l *log) live() []slot { return l.slots[l.head:] }

func (l *log) empty() bool { return len(l.slots) == l.head }

// newest returns the newest slot, or 0 of an empty log.
func (l *log) newest() int64 {
	if l.empty() {
		return 0
	}
	return l.slots[len(l.slots)-1].at
}

// size makes the log hold what rules look at.
func (l *log) size(of look) {
	if l.empty() {
		l.keep, l.span = 0, 0
	}
	l.keep, l.span, l.step = max(l.keep, of.keep), max(l.span, of.span), of.step
}

// together reports whether two slots are kept as one.
func (l *log) together(a, b int64) bool {
	return a == b || l.step > 1 && a/l.step == b/l.step
}

// push puts a slot into the log, in order, and forgets what nobody looks at any more. What
// was refused counts for no more than the log holds.
func (l *log) push(t, cost int64, refused bool) {
	holds := l.keep
	if !refused {
		holds = max(holds, cost)
	}
	l.add(t, min(cost, holds))
	for excess := l.units - holds; excess > 0; excess = l.units - holds {
		oldest := &l.slots[l.head]
		taken := min(oldest.cost, excess)
		l.units -= taken
		if oldest.cost -= taken; oldest.cost == 0 {
			l.head++
		}
	}
	l.compact()
}

// add puts a slot in its place.
func (l *log) add(t, cost int64) {
	i := len(l.slots)
	for i > l.head && l.slots[i-1].at > t {
		i--
	}
	switch {
	case i > l.head && l.together(l.slots[i-1].at, t):
		l.slots[i-1].at = t
		l.raise(i-1, cost)
		return
	case i < len(l.slots) && l.together(l.slots[i].at, t):
		l.raise(i, cost)
		return
	}
	l.units += cost
	l.slots = append(l.slots, slot{})
	copy(l.slots[i+1:], l.slots[i:])
	l.slots[i] = slot{t, cost}
}

// raise adds to the cost of a slot.
func (l *log) raise(i int, cost int64) {
	cost = min(cost, mostUnits-l.slots[i].cost)
	l.slots[i].cost += cost
	l.units += cost
}

// compact moves the slots to the front once half of the memory is unused.
func (l *log) compact() {
	if l.head > 16 && l.head > len(l.slots)/2 {
		n := copy(l.slots, l.live())
		l.slots, l.head = l.slots[:n], 0
	}
}

// find returns the place of a slot, or of the one that stands for it, or -1. The newest are asked for
// most.
func (l *log) find(t int64) int {
	for i := len(l.slots) - 1; i >= l.head && l.slots[i].at >= t; i-- {
		if l.together(l.slots[i].at, t) {
			return i
		}
	}
	return -1
}

// refund takes a slot out. What the log has forgotten was, at its newest slot, out of
// every rule's sight, for which a slot matters so long as span says; it stands in with the
// latest slot that it can have been. Rules that were in force before may have looked
// farther back: they say nothing about it. Where refused actions stand in the log too, it
// is the oldest one.
func (l *log) refund(t, cost, span int64, counting bool) {
	i := l.find(t)
	if i < 0 {
		return
	}
	forgot := l.units >= l.keep
	latest := l.slots[l.head].at
	if !counting {
		latest = max(0, min(latest, l.newest()-span))
	}
	cost = min(cost, l.slots[i].cost)
	l.units -= cost
	if l.slots[i].cost -= cost; l.slots[i].cost == 0 {
		l.slots = append(l.slots[:i], l.slots[i+1:]...)
	}
	if forgot {
		l.add(latest, cost)
	}
}

func (l *log) clear() { *l = log{slots: l.slots[:0]} }

// nth returns the slot of the n-th newest unit, from 0, and whether there is one. It
// counts from the nearer end.
func (l *log) nth(n int64) (int64, bool) {
	if n >= l.units {
		return 0, false
	}
	live := l.live()
	if behind := l.units - n; behind < n {
		for i := range live { // the behind-th oldest, from 1
			if behind -= live[i].cost; behind <= 0 {
				return live[i].at, true
			}
		}
	}
	for i := len(live) - 1; i >= 0; i-- {
		if n -= live[i].cost; n < 0 {
			return live[i].at, true
		}
	}
	return 0, false
}

// fullAfter returns when the newest slot of a log is a rule's period old.
func fullAfter(st *State, r *rule) int64 {
	if st.logs[r.side].empty() {
		return 0
	}
	return later(st.logs[r.side].newest(), r.period)
}

// A window admits at most n in any period, exactly: the n-th newest slot must be a period
// old. (The sliding window log, with no more slots than can matter.)
type window struct{}

func (window) when(st *State, r *rule, t, cost int64) int64 {
	log := &st.logs[r.side]
	if log.empty() || later(log.newest(), r.period) <= t {
		return t
	}
	t = max(t, log.newest())
	if at, found := log.nth(r.n - cost); found {
		t = max(t, later(at, r.period))
	}
	return t
}

func (window) full(st *State, r *rule) int64    { return fullAfter(st, r) }
func (window) spend(*State, *rule, action)      {} // the set pushes into logs
func (window) undo(*State, *rule, int64, int64) {}

// A spacing keeps slots a period apart, whatever they cost. (The minimum difference of
// ClassDojo's rolling-rate-limiter.)
type spacing struct{}

func (spacing) when(st *State, r *rule, t, _ int64) int64 { return max(t, fullAfter(st, r)) }
func (spacing) full(st *State, r *rule) int64             { return fullAfter(st, r) }
func (spacing) spend(*State, *rule, action)               {}
func (spacing) undo(*State, *rule, int64, int64)          {}

// A look is what rules look at in a log.
type look struct {
	keep, span int64
	step       int64 // slots within one step of the clock are kept as one; 0 if each is kept
	exact      bool  // a small window needs each
}

// coarsen lets the log of a window count in steps, unless a window that looks at the same log is
// small.
func (l *look) coarsen(n, period int64) {
	switch step := period / mostSlots; {
	case n <= mostSlots:
		l.step, l.exact = 0, true
	case l.exact:
	case l.step == 0:
		l.step = step
	default:
		l.step = min(l.step, step)
	}
}

// mostSlots is how many slots of a large window are kept, about: a state is read and written as a
// whole.
const mostSlots = 1000
