package rules

import "math"

// A token bucket holds burst tokens and gains n per period. It keeps the instant at which
// it will be full again, the pace that this was reckoned by, and its two newest slots,
// which bound what a refund may give. (GCRA.)
type tokenBucket struct{}

// fullAt returns the instant at which the bucket will be full. Tokens that were missing at
// the newest slot under another pace are still missing, and come back at the pace in force:
// a change of rules mints none.
func (tokenBucket) fullAt(f *field, r *rule) (at, rest int64) {
	switch {
	case f == nil:
		return 0, 0
	case f.keepsPace(r) || f.at <= f.last:
		return f.at, min(f.rest, r.n-1)
	}
	missing := math.Ceil(float64(roundUp(f.at, f.rest)-f.last) * float64(f.n) / float64(f.period))
	return r.advance(f.last, 0, int64(min(missing, mostUnits)))
}

// keepsPace tells whether the rule has the pace that the field was reckoned by.
func (f *field) keepsPace(r *rule) bool { return f.n == r.n && f.period == r.period }

func (k tokenBucket) when(st *State, r *rule, t, cost int64) int64 {
	f := st.find(r.id)
	if f == nil {
		return t
	}
	at, rest := k.fullAt(f, r)
	if empty, odd := r.advance(f.last, 0, int64(r.Burst)); isLater(at, rest, empty, odd) {
		at, rest = empty, odd // a bucket that became smaller lacks at most all its tokens
	}
	return max(t, roundUp(r.advance(at, rest, cost-int64(r.Burst))))
}

func (k tokenBucket) full(st *State, r *rule) int64 {
	return roundUp(k.fullAt(st.find(r.id), r))
}

// spend takes tokens. What was refused takes no more than there are in a bucket.
func (k tokenBucket) spend(st *State, r *rule, a action) {
	f := st.own(r.id, a.at)
	had, part := k.fullAt(f, r)
	at, rest := had, part
	if at < a.at {
		at, rest = a.at, 0
	}
	at, rest = r.advance(at, rest, a.cost)
	if a.refused {
		if empty, odd := r.advance(max(f.last, a.at), 0, int64(r.Burst)); isLater(at, rest, empty, odd) {
			at, rest = empty, odd
		}
		if isLater(had, part, at, rest) {
			at, rest = had, part
		}
	}
	f.before = max(f.before, min(f.last, a.at))
	f.last = max(f.last, a.at)
	k.set(f, r, at, rest)
}

// undo gives tokens back. The bucket may have been full between t and the newest slot, and
// what overflowed then is not there to give back: that much less.
func (k tokenBucket) undo(st *State, r *rule, t, cost int64) {
	f := st.find(r.id)
	if f == nil || t < f.since || t > f.last || t < f.last && !f.keepsPace(r) {
		return
	}
	had, part := k.fullAt(f, r)
	at, rest := r.advance(later(had, f.last-t), part, -cost)
	if isLater(at, rest, had, part) {
		at, rest = had, part
	}
	k.set(f, r, max(at, 0), rest)
	if t == f.last && f.before >= f.since {
		f.last = f.before
	}
}

func (tokenBucket) set(f *field, r *rule, at, rest int64) {
	if !f.keepsPace(r) {
		f.since = max(f.since, f.last) // tokens came in at another pace before
	}
	f.at, f.rest, f.n, f.period = at, rest, r.n, r.period
	f.until = roundUp(at, rest)
}
