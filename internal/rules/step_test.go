package rules_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// A window of many starts is never exceeded by any of them, is late by a thousandth of its period at
// most, and takes little to remember, however many there are.
func TestLargeWindowsCountInSteps(t *testing.T) {
	const slack = 5 * time.Millisecond
	for _, r := range []rules.Rule{
		{Kind: rules.Window, Limit: 5_000, Period: time.Second},
		{Kind: rules.Window, Limit: 20_000, Period: time.Hour},
		{Kind: rules.Window, Limit: 100_000, Period: 24 * time.Hour},
	} {
		set := rules.Compile(slack, r)
		var st rules.State
		random := rand.New(rand.NewPCG(1, 2))
		var starts []int64
		now, most := start0, 0
		period := (r.Period + slack).Microseconds()
		step := period / 1000
		for range 3 * r.Limit {
			now += random.Int64N(2 * period / int64(3*r.Limit))
			at, _ := set.Earliest(&st, now, 1)
			if n := len(starts); n >= r.Limit {
				exact := max(now, starts[n-r.Limit]+period)
				if at < exact {
					t.Fatalf("%v: start %d comes %d µs too early", r, n, exact-at)
				}
				if at > exact+step {
					t.Fatalf("%v: start %d comes %d µs too late, a step is %d", r, n, at-exact, step)
				}
			} else if at != now {
				t.Fatalf("%v: start %d waits, and the window is not full", r, n)
			}
			now = at
			set.Spend(&st, rules.At(at), 1, true)
			starts = append(starts, at)
		}
		most = len(st.Append(nil))
		if most > 10_000 {
			t.Errorf("%v: %d bytes are remembered", r, most)
		}
	}
}

// A slot that is given back is counted no more, also where it was kept with others.
func TestRefundWithinAStep(t *testing.T) {
	set := rules.Compile(time.Millisecond, rules.Rule{Kind: rules.Window, Limit: 1001, Period: time.Hour})
	var st rules.State
	for i := range int64(1001) {
		set.Spend(&st, rules.At(start0+i), 1, true)
	}
	if at, _ := set.Earliest(&st, start0+2000, 1); at == start0+2000 {
		t.Fatal("the window is not full")
	}
	set.Refund(&st, rules.At(start0+500), 1, false)
	if at, _ := set.Earliest(&st, start0+2000, 1); at != start0+2000 {
		t.Errorf("the slot that was given back is there in %v", time.Duration(at-start0-2000)*time.Microsecond)
	}
	set.Spend(&st, rules.At(start0+2000), 1, true)
	if at, _ := set.Earliest(&st, start0+3000, 1); at == start0+3000 {
		t.Error("two start where one slot was given back")
	}
}

// Beside a small window each start is remembered.
func TestSmallWindowsAreExact(t *testing.T) {
	set := rules.Compile(time.Millisecond,
		rules.Rule{Kind: rules.Window, Limit: 1_000_000, Period: 24 * time.Hour}, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Second})
	var st rules.State
	set.Spend(&st, rules.At(start0), 1, true)
	set.Spend(&st, rules.At(start0+10_000), 1, true)
	if at, _ := set.Earliest(&st, start0+20_000, 1); at != start0+1_001_000 {
		t.Errorf("the third may start in %d µs, want 1001000", at-start0)
	}
}
