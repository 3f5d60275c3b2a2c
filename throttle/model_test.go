package throttle

import (
	"math"
	"math/big"
	"slices"
)

// A modelRule is one rule of one subject, written from its definition. It remembers all
// that was spent and computes with fractions: slow, and a stranger to the scripts.
type modelRule struct {
	Rule
	subject, place int
	cost           int64 // of what is asked for
	spent          []modelSpend
	busy           *big.Rat // until when the rate of a leak or a token bucket is taken
	last, before   int64    // the two newest slots
}

type modelSpend struct{ slot, cost int64 }

func (m *modelRule) n() int64     { return int64(m.limit) }
func (m *modelRule) per() int64   { return m.period.Microseconds() }
func (m *modelRule) logged() bool { return m.kind == KindWindow || m.kind == KindSpacing }
func (m *modelRule) takes(cost int64) *big.Rat {
	return new(big.Rat).Mul(rat(cost), big.NewRat(m.per(), m.n()))
}

func rat(n int64) *big.Rat { return new(big.Rat).SetInt64(n) }

func sum(a, b *big.Rat) *big.Rat { return new(big.Rat).Add(a, b) }

func later(a, b *big.Rat) *big.Rat {
	if a.Cmp(b) >= 0 {
		return a
	}
	return b
}

func ceil(r *big.Rat) int64 {
	quotient, rest := new(big.Int).DivMod(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		return quotient.Int64() + 1
	}
	return quotient.Int64()
}

// during is the cost of what was spent in [from, to).
func (m *modelRule) during(from, to int64) (cost int64) {
	for _, s := range m.spent {
		if from <= s.slot && s.slot < to {
			cost += s.cost
		}
	}
	return cost
}

// when is the earliest instant >= t at which the definition lets cost start.
func (m *modelRule) when(t, cost int64) int64 {
	switch m.kind {
	case KindLeak:
		return max(t, ceil(m.busy))
	case KindTokenBucket:
		busy := m.busy
		if empty := sum(rat(m.last), m.takes(int64(m.burst))); busy.Cmp(empty) > 0 {
			busy = empty
		}
		return max(t, ceil(sum(busy, m.takes(cost-int64(m.burst)))))
	case KindSpacing:
		for _, s := range m.spent {
			t = max(t, s.slot+m.per())
		}
		return t
	case KindWindow:
		at := max(t, m.last)
		ends := []int64{at}
		for _, s := range m.spent {
			ends = append(ends, max(at, s.slot+m.per()))
		}
		slices.Sort(ends)
		i := slices.IndexFunc(ends, func(end int64) bool {
			return m.during(end-m.per()+1, end+1)+cost <= m.n()
		})
		return ends[i]
	case KindFixedWindow:
		number := max(t, m.last) / m.per()
		if m.during(number*m.per(), (number+1)*m.per())+cost > m.n() {
			number++
		}
		return max(t, number*m.per())
	}
	return m.whenCounted(t, cost)
}

func (m *modelRule) length() int64 {
	if m.buckets == 2 {
		return m.per()
	}
	return ceil(big.NewRat(m.per(), int64(m.buckets)))
}

// estimate is what a sliding counter takes for the count of the period that ends at t.
func (m *modelRule) estimate(t int64) *big.Rat {
	length := m.length()
	start := t / length * length
	if m.buckets > 2 {
		return rat(m.during(start-int64(m.buckets-1)*length, start+length))
	}
	overlap := big.NewRat(start+length-t, length)
	overlap.Mul(overlap, rat(m.during(start-length, start)))
	return sum(overlap, rat(m.during(start, start+length)))
}

// whenCounted bisects each bucket for the first instant at which the estimate, which
// only falls within one, leaves room.
func (m *modelRule) whenCounted(t, cost int64) int64 {
	length := m.length()
	fits := func(at int64) bool { return m.estimate(at).Cmp(rat(m.n()-cost)) <= 0 }
	low := max(t, m.last/length*length)
	for high := (low/length+1)*length - 1; !fits(high); high += length {
		low = high + 1
	}
	high := (low/length+1)*length - 1
	for low < high {
		if middle := (low + high) / 2; fits(middle) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

// full is the instant from which nothing that was spent matters any more.
func (m *modelRule) full() int64 {
	switch m.kind {
	case KindLeak:
		if !m.busy.IsInt() {
			return ceil(m.busy) + 1 // a start at the turn carries its fraction on
		}
		return ceil(m.busy)
	case KindTokenBucket:
		return ceil(m.busy)
	case KindFixedWindow:
		return (m.last/m.per() + 1) * m.per()
	case KindSlidingCounter:
		return (m.last/m.length() + int64(m.buckets)) * m.length()
	}
	return m.last + m.per()
}

// room is how many of cost 1 may start at t.
func (m *modelRule) room(t int64) (room int) {
	for room < m.most() && m.when(t, int64(room+1)) == t {
		room++
	}
	return room
}

// spend takes the slot, or counts what was refused at t. It reports whether it counted.
func (m *modelRule) spend(t, cost int64, refused bool) bool {
	switch m.kind {
	case KindLeak:
		next := sum(rat(t), m.takes(cost))
		switch {
		case ceil(m.busy) == t:
			next = sum(m.busy, m.takes(cost))
		case refused && next.Cmp(m.busy) <= 0:
			return false
		}
		m.busy, m.last = next, t
		return true
	case KindTokenBucket:
		had := m.busy
		m.busy = sum(later(m.busy, rat(t)), m.takes(cost))
		if refused {
			m.emptyAtMost(max(m.last, t))
			m.busy = later(m.busy, had)
		}
	case KindFixedWindow:
		slot := max(t, m.last)
		start := slot / m.per() * m.per()
		t, cost = slot, m.counted(cost, m.during(start, start+m.per()), refused)
	case KindSlidingCounter:
		slot := max(t, m.last/m.length()*m.length())
		start := slot / m.length() * m.length()
		t, cost = slot, m.counted(cost, m.during(start, start+m.length()), refused)
	default:
		t = max(t, m.last)
	}
	m.before, m.last = max(m.before, min(m.last, t)), max(m.last, t)
	m.spent = append(m.spent, modelSpend{t, cost})
	return true
}

// counted is what of a cost is counted: what was refused fills the count and no more.
func (m *modelRule) counted(cost, count int64, refused bool) int64 {
	if refused {
		return max(0, min(cost, m.n()-count))
	}
	return cost
}

// since is when the first slot was that the rule counted.
func (m *modelRule) since() int64 {
	if len(m.spent) == 0 {
		return math.MaxInt64
	}
	return m.spent[0].slot
}

// emptyAtMost says that what was refused takes no more tokens than a bucket holds.
func (m *modelRule) emptyAtMost(slot int64) {
	if empty := sum(rat(slot), m.takes(int64(m.burst))); m.busy.Cmp(empty) > 0 {
		m.busy = empty
	}
}

// undo gives back what is not in a log. It reports whether there was anything.
func (m *modelRule) undo(slot, cost int64) bool {
	switch m.kind {
	case KindLeak:
		if m.last == slot {
			// The newest slot is free again, its remainder included.
			if free := sum(m.busy, m.takes(-cost)); ceil(free) == slot {
				m.busy = free
				return true
			}
		}
		return false
	case KindTokenBucket:
		if slot > m.last || slot < m.since() {
			return false
		}
		if back := sum(m.takes(cost), rat(slot-m.last)); back.Sign() > 0 {
			m.busy = sum(m.busy, back.Neg(back))
		}
		if slot == m.last && m.before >= m.since() {
			m.last = m.before
		}
	case KindFixedWindow:
		start := slot / m.per() * m.per()
		if start != m.last/m.per()*m.per() || slot < m.since() {
			return false
		}
		m.spent = append(m.spent, modelSpend{slot, -min(cost, m.during(start, start+m.per()))})
	case KindSlidingCounter:
		start := slot / m.length() * m.length()
		if age := m.last/m.length() - slot/m.length(); age < 0 || age >= int64(m.buckets) || slot < m.since() {
			return false
		}
		m.spent = append(m.spent, modelSpend{slot, -min(cost, m.during(start, start+m.length()))})
	}
	return true
}
