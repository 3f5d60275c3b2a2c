package rules_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
)

// atMost returns how many actions the rules that were ever in force admit together in any
// span that is as long as the shortest of their periods: no rule that was in force for a
// moment may let more through than the loosest of all allows in the shortest of all.
func atMost(rs []rules.Rule) (n int, span int64) {
	span = rules.Never
	for _, r := range rs {
		span = min(span, r.Period.Microseconds())
	}
	for _, r := range rs {
		switch r.Kind {
		case rules.TokenBucket:
			n = max(n, r.Burst)
		case rules.SlidingCounter:
			n = max(n, 2*r.Limit)
		default:
			n = max(n, r.Limit)
		}
	}
	return n, span
}

// changing runs a subject under rules of one kind that change all the time, with costs,
// refunds and late starts, and returns what started.
func changing(t *testing.T, rnd *rand.Rand, rs []rules.Rule) []start {
	var st rules.State
	var starts []start
	now := start0
	for range 400 {
		now += rnd.Int64N(int64(2) << rnd.IntN(18))
		r := rs[rnd.IntN(len(rs))]
		set := rules.Compile(0, r)
		cost := 1 + rnd.IntN(min(r.Most(), 3))
		if i := len(starts) - 1; i >= 0 && rnd.IntN(5) == 0 {
			i -= rnd.IntN(min(i+1, 3))
			set.Refund(&st, rules.At(starts[i].at), starts[i].cost, false)
			starts = append(starts[:i], starts[i+1:]...)
		}
		if at, _ := set.Earliest(&st, now, cost); at < now+50_000 {
			set.Spend(&st, rules.At(at), cost, true)
			starts = append(starts, start{at, cost})
			now = at
		}
		if rnd.IntN(4) == 0 {
			set.Forget(&st, now)
		}
		if rnd.IntN(4) == 0 && now >= set.Full(&st) {
			st.Reset()
		}
		recode(t, &st)
	}
	return starts
}

// Rules of one kind whose numbers change at random never admit more than the loosest of
// them would.
func TestChangesMintNothing(t *testing.T) {
	seeds := []uint64{8807} // in which a token bucket once gained from a refund between two rates
	for seed := range uint64(sample.Size(500, 2000, 2000)) {
		seeds = append(seeds, seed)
	}
	for _, seed := range seeds {
		rnd := rand.New(rand.NewPCG(seed, 3))
		kind := []rules.Kind{rules.Window, rules.FixedWindow, rules.TokenBucket, rules.SlidingCounter, rules.Spacing}[seed%5]
		var rs []rules.Rule
		for range 2 + rnd.IntN(3) {
			rs = append(rs, randomRule(rnd, kind))
		}
		if kind == rules.FixedWindow || kind == rules.SlidingCounter {
			for i := range rs { // what a span across an edge holds is judged by one length
				rs[i].Period, rs[i].Buckets = rs[0].Period, rs[0].Buckets
			}
		}
		starts := changing(t, rnd, rs)
		n, span := atMost(rs)
		if err := exceeds(kind, rs, starts, n, span); err != nil {
			t.Fatalf("seed %d: %v: %v", seed, rs, err)
		}
	}
}

// A leak whose rate and ramp change at random, and that gets a ramp or loses it, lets nothing start sooner than its fastest rate does.
func TestChangesOfALeakMintNothing(t *testing.T) {
	for seed := range uint64(sample.Size(200, 800, 800)) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		var rs []rules.Rule
		fastest := math.Inf(1) // µs for one
		for range 2 + rnd.IntN(3) {
			r := randomRule(rnd, rules.Leak)
			if rnd.IntN(2) == 0 {
				r.Ramp = time.Second + time.Duration(rnd.IntN(2000))*time.Millisecond
			}
			rs, fastest = append(rs, r), min(fastest, float64(r.Period.Microseconds())/float64(r.Limit))
		}
		starts := changing(t, rnd, rs)
		for i := 1; i < len(starts); i++ {
			before, next := starts[i-1], starts[i]
			if gap := next.at - before.at; float64(gap) < float64(before.cost)*fastest-1 {
				t.Fatalf("seed %d: %v: start %d lies %d µs behind one of cost %d", seed, rs, i, gap, before.cost)
			}
		}
	}
}

// exceeds looks for a place where more started than n in a span.
func exceeds(kind rules.Kind, rs []rules.Rule, starts []start, n int, span int64) error {
	for i, s := range starts {
		from, most := s.at-span+1, n
		switch kind {
		case rules.FixedWindow:
			from = s.at / span * span
		case rules.TokenBucket:
			if err := overdrawn(rs, starts[:i+1]); err != nil {
				return err
			}
			continue
		}
		if got := sum(starts[:i+1], from, s.at); got > most {
			return fmt.Errorf("%d in %d µs before start %d, at most %d", got, span, i, most)
		}
	}
	return nil
}

// overdrawn tells whether some span that ends now held more than the largest bucket and
// the fastest rate give.
func overdrawn(rs []rules.Rule, starts []start) error {
	burst, rate := 0, 0.0
	for _, r := range rs {
		burst, rate = max(burst, r.Burst), max(rate, float64(r.Limit)/float64(r.Period.Microseconds()))
	}
	end, got := starts[len(starts)-1].at, 0
	for i := len(starts) - 1; i >= 0; i-- {
		got += starts[i].cost
		if most := float64(burst) + rate*float64(end-starts[i].at+1); float64(got) > most+1e-6 {
			return fmt.Errorf("%d in %d µs, at most %.3f", got, end-starts[i].at, most)
		}
	}
	return nil
}

// A window of 5 that is 1 for a moment, while a slot is given back, is 5 afterwards.
func TestTightenedAndLoosened(t *testing.T) {
	wide := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 5, Period: 10 * time.Second})
	tight := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1, Period: 10 * time.Second})
	var st rules.State
	for i := range int64(5) {
		wide.Spend(&st, rules.At(start0+i), 1, true)
	}
	tight.Refund(&st, rules.At(start0+4), 1, false)
	if at, _ := wide.Earliest(&st, start0+10, 1); at != start0+10 {
		t.Errorf("the refunded slot is not free")
	}
	wide.Spend(&st, rules.At(start0+10), 1, true)
	if at, _ := wide.Earliest(&st, start0+11, 1); at != start0+10_000_000 {
		t.Errorf("the next may start at %d", at-start0)
	}
}

// Starts that a tightened rule of a shorter period has no use for are not forgotten.
func TestTightenedForAWhile(t *testing.T) {
	const sec = int64(1_000_000)
	for _, kind := range []rules.Kind{rules.Window, rules.SlidingCounter} {
		wide := rules.Compile(0, rules.Rule{Kind: kind, Limit: 5, Period: 8 * time.Second, Buckets: 4})
		tight := rules.Compile(0, rules.Rule{Kind: kind, Limit: 3, Period: 4 * time.Second, Buckets: 2})
		now := start0 / (8 * sec) * (8 * sec)
		var st rules.State
		for i := range int64(4) {
			wide.Spend(&st, rules.At(now+i*2*sec), 1, true)
		}
		tight.Spend(&st, rules.At(now+7*sec), 1, true)
		recode(t, &st)
		if room := wide.Room(&st, 0, now+7*sec+1); room != 0 {
			t.Errorf("%s: room for %d after 5 of 5", kind, room)
		}
	}
}

// Costs that a tightened rule takes for less are what they were for the loosened one.
func TestTightenedCosts(t *testing.T) {
	for _, kind := range []rules.Kind{rules.Window, rules.FixedWindow, rules.SlidingCounter, rules.TokenBucket} {
		rule := rules.Rule{Kind: kind, Limit: 10, Period: 10 * time.Second, Burst: 10, Buckets: 3}
		wide := rules.Compile(0, rule)
		rule.Limit, rule.Burst = 1, 1
		tight := rules.Compile(0, rule)
		now := start0 / 10_000_000 * 10_000_000
		var st rules.State
		tight.Spend(&st, rules.At(now), 9, true)
		if free := wide.Room(&st, 0, now+1000); free != 1 {
			t.Errorf("%s: room for %d, want 1", kind, free)
		}
	}
}

// A slot that was spent under another kind of rule is not given back to this one.
func TestRefundToARuleThatDidNotCount(t *testing.T) {
	for _, kind := range allKinds {
		rule := rules.Rule{Kind: kind, Limit: 3, Period: time.Hour, Burst: 3, Buckets: 4}
		set, before := rules.Compile(0, rule), rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1000, Period: time.Hour})
		if kind == rules.Window || kind == rules.Spacing { // they look at one log
			before = rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1000, Period: time.Hour})
		}
		for _, counted := range []bool{false, true} { // had the rule counted others even before?
			var st rules.State
			now := start0 / 3_600_000_000 * 3_600_000_000
			if counted {
				set.Spend(&st, rules.At(now), 1, true)
			}
			for i := range int64(3) {
				before.Spend(&st, rules.At(now+1+i), 1, true)
			}
			for range 3 {
				if at, _ := set.Earliest(&st, now+10, 1); at == now+10 {
					set.Spend(&st, rules.At(at), 1, true)
				}
			}
			before.Refund(&st, rules.At(now+3), 1, false)
			before.Spend(&st, rules.At(now+15), 1, true)
			recode(t, &st)
			at, _ := set.Earliest(&st, now+20, 1)
			for _, slot := range []int64{now + 1, now + 2, now + 3, now + 15} {
				set.Refund(&st, rules.At(slot), 1, false)
			}
			if after, _ := set.Earliest(&st, now+20, 1); after != at {
				t.Errorf("%s: %d µs earlier after a refund of what it did not count", kind, at-after)
			}
		}
	}
}

// Slots ahead that come back leave no more room than there was before them: what the log
// forgot for their sake still counts.
func TestRefundsOfSlotsAhead(t *testing.T) {
	const second = 1_000_000
	for limit := 1; limit <= 3; limit++ {
		set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: limit, Period: time.Second})
		var st rules.State
		for range limit {
			set.Spend(&st, rules.At(start0), 1, true)
		}
		ahead := 3 * limit
		for i := range ahead {
			set.Spend(&st, rules.At(start0+int64(1+i/limit)*second), 1, true)
		}
		for i := ahead - 1; i >= 0; i-- {
			set.Refund(&st, rules.At(start0+int64(1+i/limit)*second), 1, false)
		}
		if at, _ := set.Earliest(&st, start0+second/2, 1); at < start0+second {
			t.Errorf("limit %d: a start %d µs after %d others", limit, at-start0, limit)
		}
	}
}

// A costly start pushes the one before it out of the log. When it is given back, the rule in force still knows what it has let start,
// also where a rule that was in force before has looked farther back.
func TestARefundAfterALongerRule(t *testing.T) {
	const sec = int64(1_000_000)
	for _, first := range []rules.Rule{{Kind: rules.Window, Limit: 1, Period: time.Minute}, {Kind: rules.Spacing, Limit: 1, Period: 5 * time.Second}} {
		var st rules.State
		rules.Compile(0, first).Spend(&st, rules.At(start0), 1, true)
		spacing := rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 5 * time.Second})
		started, costly := start0+100*sec, start0+105*sec
		spacing.Spend(&st, rules.At(started), 1, true)
		spacing.Spend(&st, rules.At(costly), 2, true)
		spacing.Refund(&st, rules.At(costly), 2, false)
		if at, _ := spacing.Earliest(&st, costly-1, 1); at != costly {
			t.Errorf("after %v: a start %d µs after another one", first, at-started)
		}
	}
}
