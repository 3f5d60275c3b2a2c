package rules_test

import (
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/throttle"
)

// A start is an action that was let start.
type start struct {
	at   int64
	cost int
}

// start0 is a realistic instant.
const start0 = int64(1_763_600_000_123_457)

// allows tells from all starts, by the definition of the rule, whether one more may start
// at t, which lies at or behind all of them.
func allows(r rules.Rule, starts []start, t int64, cost int) bool {
	period := r.Period.Microseconds()
	for _, s := range starts {
		if r.Kind == rules.Window && s.at > t {
			return false
		}
	}
	switch r.Kind {
	case rules.Window:
		return sum(starts, t-period+1, t)+cost <= r.Limit
	case rules.Spacing:
		return len(starts) == 0 || starts[len(starts)-1].at+period <= t
	case rules.FixedWindow:
		begin := t / period * period
		return sum(starts, begin+period, rules.Never) == 0 && sum(starts, begin, begin+period-1)+cost <= r.Limit
	case rules.SlidingCounter:
		return allowsCounter(r, starts, t, cost)
	}
	return allowsMeter(r, starts, t, cost)
}

func sum(starts []start, from, to int64) (cost int) {
	for _, s := range starts {
		if s.at >= from && s.at <= to {
			cost += s.cost
		}
	}
	return cost
}

// allowsCounter is the estimate of a sliding counter, in integers: weights are n-ths of
// the period.
func allowsCounter(r rules.Rule, starts []start, t int64, cost int) bool {
	period, buckets := r.Period.Microseconds(), int64(r.Buckets)
	length := period
	if buckets > 2 {
		length = (period + buckets - 1) / buckets
	}
	begin := t / length * length
	if sum(starts, begin+length, rules.Never) > 0 {
		return false
	}
	now, old := sum(starts, begin, begin+length-1), sum(starts, begin-(buckets-1)*length, begin-1)
	if buckets > 2 {
		return now+old+cost <= r.Limit
	}
	weighted := new(big.Int).Mul(big.NewInt(int64(old)), big.NewInt(period-(t-begin)))
	room := new(big.Int).Mul(big.NewInt(int64(r.Limit-now-cost)), big.NewInt(period))
	return weighted.Cmp(room) <= 0
}

// allowsMeter follows leaks and token buckets in exact fractions.
func allowsMeter(r rules.Rule, starts []start, t int64, cost int) bool {
	each := big.NewRat(r.Period.Microseconds(), int64(r.Limit))
	units := func(n int) *big.Rat { return new(big.Rat).Mul(each, new(big.Rat).SetInt64(int64(n))) }
	busy := new(big.Rat) // until the last unit has left
	for _, s := range starts {
		// A leak's slot is the end of what was before, rounded up.
		at := new(big.Rat).SetInt64(s.at)
		if gap := new(big.Rat).Sub(at, busy); r.Kind == rules.TokenBucket && gap.Sign() > 0 || gap.Cmp(big.NewRat(1, 1)) >= 0 {
			busy = at
		}
		busy = busy.Add(busy, units(s.cost))
	}
	now := new(big.Rat).SetInt64(t)
	if r.Kind == rules.Leak {
		return now.Cmp(busy) >= 0
	}
	return now.Cmp(busy.Add(busy, units(cost-r.Burst))) >= 0
}

var allKinds = []rules.Kind{rules.Leak, rules.TokenBucket, rules.Window, rules.Spacing, rules.FixedWindow, rules.SlidingCounter}

// randomRule returns one of a kind, with small numbers and crooked periods.
func randomRule(rnd *rand.Rand, kind rules.Kind) rules.Rule {
	r := rules.Rule{Kind: kind, Limit: 1 + rnd.IntN(7), Period: time.Duration(1+rnd.IntN(3000)) * time.Millisecond}
	if rnd.IntN(2) == 0 {
		r.Period = r.Period/1000 + time.Duration(1+rnd.IntN(60))*time.Microsecond
	}
	switch kind {
	case rules.TokenBucket:
		r.Burst = 1 + rnd.IntN(8)
	case rules.Spacing:
		r.Limit = 1
	case rules.SlidingCounter:
		r.Buckets = 2 + rnd.IntN(4)
		r.Period += 10 * time.Microsecond
	}
	r.Period = r.Period.Truncate(time.Microsecond)
	return r
}

// judged returns the rule as the judge knows it.
func judged(r rules.Rule) throttle.Rule {
	switch r.Kind {
	case rules.Leak:
		return throttle.Leak(r.Limit, r.Period)
	case rules.TokenBucket:
		return throttle.TokenBucket(r.Limit, r.Period, r.Burst)
	case rules.Window:
		return throttle.Window(r.Limit, r.Period)
	case rules.Spacing:
		return throttle.Spacing(r.Period)
	case rules.FixedWindow:
		return throttle.FixedWindow(r.Limit, r.Period)
	}
	return throttle.SlidingCounter(r.Limit, r.Period, r.Buckets)
}

func verify(t *testing.T, starts []start, rs ...rules.Rule) {
	t.Helper()
	var events []throttle.Event
	for _, s := range starts {
		events = append(events, throttle.Event{Subject: "u", At: time.UnixMicro(s.at), Cost: s.cost})
	}
	var judges []throttle.Rule
	for _, r := range rs {
		judges = append(judges, judged(r))
	}
	for i, v := range throttle.Verify(events, judges) {
		if i < 3 {
			t.Error(v)
		}
	}
}

// smallest returns what a cost can be under all rules.
func smallest(rs []rules.Rule) int {
	most := 9
	for _, r := range rs {
		if r.Kind != rules.Leak && r.Kind != rules.Spacing {
			most = min(most, r.Most())
		}
	}
	return most
}

func recode(t *testing.T, st *rules.State) {
	t.Helper()
	text := string(st.Append(nil))
	if err := st.Decode(text); err != nil {
		t.Fatalf("%v: %x", err, text)
	}
	if again := string(st.Append(nil)); again != text {
		t.Fatalf("%x became %x", text, again)
	}
}

// Every slot is the first that the definitions of all rules allow, and the judge agrees.
// States that were written and read, or shortened, or kept, answer alike.
func TestEarliestIsFirst(t *testing.T) {
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		rs := []rules.Rule{randomRule(rnd, allKinds[seed%6])}
		for range rnd.IntN(3) {
			rs = append(rs, randomRule(rnd, allKinds[rnd.IntN(6)]))
		}
		set := rules.Compile(0, rs...)
		var kept, short rules.State
		var starts []start
		now := start0
		for step := range 60 {
			now += rnd.Int64N(int64(2) << rnd.IntN(22))
			cost := 1 + rnd.IntN(smallest(rs))
			at, binding := set.Earliest(&kept, now, cost)
			if other, by := set.Earliest(&short, now, cost); other != at || by != binding {
				t.Fatalf("seed %d, step %d: %d by %d, and %d by %d after writing and reading", seed, step, at, binding, other, by)
			}
			if binding < 0 != (at == now) {
				t.Fatalf("%d is %d behind now and bound by %d", at, at-now, binding)
			}
			for i, r := range rs {
				if !allows(r, starts, at, cost) {
					t.Fatalf("seed %d, step %d: %s does not allow the slot", seed, step, r)
				}
				if i == binding && allows(r, starts, at-1, cost) {
					t.Fatalf("seed %d, step %d: %s allows an earlier slot", seed, step, r)
				}
			}
			if rnd.IntN(4) == 0 {
				continue // only asked
			}
			starts = append(starts, start{at, cost})
			set.Spend(&kept, rules.At(at), cost, true)
			set.Spend(&short, rules.At(at), cost, true)
			set.Forget(&short, now)
			recode(t, &short)
			now = max(now, at-rnd.Int64N(1000))
		}
		verify(t, starts, rs...)
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, rs)
		}
	}
}

// From the instant Full on, a state answers as none, and one microsecond before it need
// not. A leak's fraction is carried until then.
func TestFull(t *testing.T) {
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		r := randomRule(rnd, allKinds[seed%6])
		set := rules.Compile(0, r)
		var st, none rules.State
		now := start0
		for range 20 {
			at, _ := set.Earliest(&st, now, 1)
			set.Spend(&st, rules.At(at), 1, true)
		}
		full := set.Full(&st)
		if full <= now {
			t.Fatalf("%s: full at %d", r, full)
		}
		for range 20 {
			a, _ := set.Earliest(&st, full, 1)
			b, _ := set.Earliest(&none, full, 1)
			if a != b {
				t.Fatalf("seed %d, %s: %d µs after full, and %d of a new one", seed, r, a-full, b-full)
			}
			set.Spend(&st, rules.At(a), 1, true)
			set.Spend(&none, rules.At(b), 1, true)
		}
		var nobody *rules.Set // to whom all of it is somebody else's
		until := nobody.Full(&st)
		if nobody.Forget(&st, until-1); st.Empty() {
			t.Errorf("%s: forgotten too early", r)
		}
		if nobody.Forget(&st, until); !st.Empty() {
			t.Errorf("%s: not forgotten", r)
		}
	}
}

// A leak of 1001 a second is that, wherever its state would have expired.
func TestLeakKeepsItsFraction(t *testing.T) {
	set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1001, Period: time.Second})
	var st rules.State
	at := start0
	for range 1001 {
		at, _ = set.Earliest(&st, at, 1)
		set.Forget(&st, at)
		set.Spend(&st, rules.At(at), 1, true)
	}
	if next, _ := set.Earliest(&st, at, 1); next != start0+1_000_000 {
		t.Errorf("1001 starts took %d µs", next-start0)
	}
}

func TestNames(t *testing.T) {
	for _, kind := range allKinds {
		r := randomRule(rand.New(rand.NewPCG(1, 1)), kind)
		if got, want := rules.Compile(0, r).Name(0), judged(r).String(); got != want || r.String() != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	var none *rules.Set
	if at, binding := none.Earliest(new(rules.State), 7, 1); at != 7 || binding != -1 || none.Len() != 0 ||
		none.Drops() || none.Counts() || none.Shadows() || none.Impossible(9) != -1 || none.Full(new(rules.State)) != 0 {
		t.Error("a nil set has rules")
	}
	none.Spend(new(rules.State), rules.At(7), 1, true)
	none.Refund(new(rules.State), rules.At(7), 1, false)
	none.Forget(new(rules.State), 7)
	if none.SpendRefused(new(rules.State), 7, 1) || none.Refusing(new(rules.State), 7, 1) != -1 {
		t.Error("a nil set has rules")
	}
}
