package throttle

import (
	"math"
	"slices"
)

// A bound is a rule with the state that it looks at: what a kind does, as in kinds.lua.
type bound struct {
	Rule
	memory         *memory
	field, side    string
	n, period      int64
	subject, place int // where it stands in the request, from 1
}

func (b *bound) logged() bool { return b.kind == kindWindow || b.kind == kindSpacing }

func (b *bound) log() *memoryLog { return b.memory.logs[b.side] }

// part names what the rule remembers.
func (b *bound) part() string {
	if b.logged() {
		return logPart(b.side)
	}
	return b.field
}

func logPart(side string) string { return "%" + side }

// at returns the i-th newest slot, or 0.
func (l *memoryLog) at(i int) int64 {
	if l == nil || i >= len(l.slots) {
		return 0
	}
	return l.slots[len(l.slots)-1-i]
}

// refund is refund_log in rules.lua.
func (l *memoryLog) refund(slot int64, cost, keep int, span int64, counting bool) bool {
	full, newest, oldest := len(l.slots) >= keep, l.at(0), l.at(len(l.slots)-1)
	removed := 0
	for i := len(l.slots) - 1; i >= 0 && removed < cost; i-- {
		if l.slots[i] == slot {
			l.slots = slices.Delete(l.slots, i, i+1)
			removed++
		}
	}
	if removed > 0 && full {
		latest := min(oldest, newest-span)
		if counting {
			latest = oldest
		}
		l.slots = slices.Insert(l.slots, 0, slices.Repeat([]int64{latest}, removed)...)
	}
	return removed > 0
}

// top is the most that ever counts as the rule's cost.
func (b *bound) top() int {
	if b.kind == kindLeak || b.kind == kindSpacing {
		return math.MaxInt
	}
	return b.most()
}

func (b *bound) whenClamped(t int64, cost int) int64 { return b.when(t, min(cost, b.top())) }

func (b *bound) room(t int64) int {
	if b.when(t, 1) > t {
		return 0
	}
	if b.top() == math.MaxInt {
		return 1
	}
	low, high := 1, b.top()
	for low < high {
		if middle := (low + high + 1) / 2; b.when(t, middle) > t {
			high = middle - 1
		} else {
			low = middle
		}
	}
	return low
}

// advance moves an instant by what the rate takes for cost, remainders in n-ths.
func (b *bound) advance(at, rest int64, cost int) (int64, int64) {
	ticks := rest + int64(cost)*(b.period%b.n)
	return at + int64(cost)*(b.period/b.n) + floorDiv(ticks, b.n), ticks - floorDiv(ticks, b.n)*b.n
}

func floorDiv(a, b int64) int64 {
	if a < 0 {
		return -((-a + b - 1) / b)
	}
	return a / b
}

func roundUp(at, rest int64) int64 {
	if rest > 0 {
		return at + 1
	}
	return at
}

func isLater(at, rest, than, part int64) bool { return at > than || at == than && rest > part }

func (b *bound) when(t int64, cost int) int64 {
	switch b.kind {
	case kindLeak:
		return max(t, roundUp(b.turn()))
	case kindTokenBucket:
		tat, rest, _, _ := b.bucket()
		return max(t, roundUp(b.advance(tat, rest, cost-b.burst)))
	case kindWindow:
		if b.log().at(0) == 0 {
			return t
		}
		return max(t, b.log().at(0), b.log().at(b.limit-cost)+b.period)
	case kindSpacing:
		return max(t, b.log().at(0)+b.period)
	case kindFixedWindow:
		number, count := b.window()
		if count+int64(cost) > b.n {
			number++
		}
		return max(t, number*b.period)
	}
	return b.ringWhen(t, int64(cost))
}

func (b *bound) full() int64 {
	switch b.kind {
	case kindTokenBucket:
		tat, rest, _, _ := b.bucket()
		return roundUp(tat, rest)
	case kindWindow, kindSpacing:
		return b.log().at(0) + b.period
	case kindFixedWindow:
		number, _ := b.window()
		return (number + 1) * b.period
	case kindSlidingCounter:
		number, _ := b.ring()
		return (number + int64(b.buckets)) * b.length()
	}
	return b.when(0, 1)
}

func (b *bound) spend(t int64, cost int) {
	switch b.kind {
	case kindLeak:
		at, rest := b.turn()
		turn := roundUp(at, rest)
		if from, part := b.advance(t, 0, cost); t > turn || t < turn && isLater(from, part, at, rest) {
			at, rest = t, 0
		}
		if t >= turn || at == t {
			b.set(at, rest, int64(cost))
		}
	case kindTokenBucket:
		tat, rest, last, before := b.bucket()
		if tat < t {
			tat, rest = t, 0
		}
		tat, rest = b.advance(tat, rest, cost)
		b.set(tat, rest, max(last, t), max(before, min(last, t)))
	case kindFixedWindow:
		number, count := b.window()
		if t/b.period > number {
			number, count = t/b.period, 0
		}
		b.set(number*b.period, min(b.n, count+int64(cost)))
	case kindSlidingCounter:
		newest, counts := b.ring()
		number := max(newest, t/b.length())
		moved := make([]int64, b.buckets)
		for i := range moved {
			moved[i] = count(counts, int64(i)-(number-newest))
		}
		moved[0] = min(b.n, moved[0]+int64(cost))
		b.set(append([]int64{number * b.length()}, moved...)...)
	}
}

func (b *bound) undo(t int64, cost int) {
	if len(b.memory.states[b.field]) == 0 {
		return
	}
	switch b.kind {
	case kindLeak:
		if state := b.memory.states[b.field]; roundUp(state[0], state[1]) == t && state[2] == int64(cost) {
			b.set(state[0], state[1], 0)
		}
	case kindTokenBucket:
		tat, rest, last, before := b.bucket()
		if t > last {
			return
		}
		at, part := b.advance(tat+last-t, rest, -cost)
		if isLater(at, part, tat, rest) {
			at, part = tat, rest
		}
		if t == last {
			last = before
		}
		b.set(at, part, last, before)
	case kindFixedWindow:
		if number, count := b.window(); t/b.period == number {
			b.set(number*b.period, max(0, count-int64(cost)))
		}
	case kindSlidingCounter:
		newest, counts := b.ring()
		if i := newest - t/b.length(); i >= 0 && i < int64(len(counts)) {
			counts = slices.Clone(counts)
			counts[i] = max(0, counts[i]-int64(cost))
			b.set(append([]int64{newest * b.length()}, counts...)...)
		}
	}
}

func (b *bound) set(state ...int64) {
	b.memory.states[b.field] = state
	b.memory.written = true
}

// turn is the instant from which a leak allows the next start.
func (b *bound) turn() (at, rest int64) {
	state := b.memory.states[b.field]
	if len(state) == 0 {
		return 0, 0
	}
	return b.advance(state[0], min(state[1], b.n-1), int(state[2]))
}

// bucket is when a token bucket will be full again, and its two newest slots.
func (b *bound) bucket() (tat, rest, last, before int64) {
	state := b.memory.states[b.field]
	if len(state) == 0 {
		return 0, 0, 0, 0
	}
	tat, rest, last, before = state[0], min(state[1], b.n-1), state[2], state[3]
	latest, part := b.advance(last, 0, b.burst)
	if isLater(tat, rest, latest, part) {
		tat, rest = latest, part
	}
	return tat, rest, last, before
}

// window is the newest fixed window that was used, and its count.
func (b *bound) window() (number, count int64) {
	state := b.memory.states[b.field]
	if len(state) == 0 {
		return 0, 0
	}
	return state[0] / b.period, state[1]
}

// length is that of one bucket of a sliding counter.
func (b *bound) length() int64 {
	if b.buckets == 2 {
		return b.period
	}
	return (b.period + int64(b.buckets) - 1) / int64(b.buckets)
}

// ring is the newest bucket of a sliding counter, and the counts from it backward.
func (b *bound) ring() (newest int64, counts []int64) {
	state := b.memory.states[b.field]
	if len(state) == 0 {
		return 0, nil
	}
	return state[0] / b.length(), state[1:]
}

func count(counts []int64, i int64) int64 {
	if i < 0 || i >= int64(len(counts)) {
		return 0
	}
	return counts[i]
}

func (b *bound) ringWhen(t, cost int64) int64 {
	newest, counts := b.ring()
	number := max(newest, t/b.length())
	for ; number < newest+int64(b.buckets); number++ {
		first, room := newest-number, b.n-cost
		if b.buckets == 2 {
			if at, fits := b.weighted(t, number, room-count(counts, first), count(counts, first+1)); fits {
				return at
			}
			continue
		}
		for i := range int64(b.buckets) {
			room -= count(counts, first+i)
		}
		if room >= 0 {
			break
		}
	}
	return max(t, number*b.length())
}

// weighted is the first instant of a bucket at which room is left beside what still
// overlaps of the old ones in the bucket before.
func (b *bound) weighted(t, number, room, old int64) (at int64, fits bool) {
	wait := int64(0)
	switch {
	case room < 0:
		return 0, false
	case old > room:
		wait = b.period - room*(b.period/old) - room*(b.period%old)/old
	}
	return max(t, number*b.period+wait), wait < b.period
}
