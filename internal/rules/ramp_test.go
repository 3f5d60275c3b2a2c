package rules_test

import (
	"math"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// spendAll lets actions start as early as a rule allows, from an instant on until another, and returns their slots.
func spendAll(set *rules.Set, st *rules.State, from, until int64, cost int) (slots []int64) {
	for at := from; ; {
		if at, _ = set.Earliest(st, at, cost); at >= until {
			return slots
		}
		set.Spend(st, rules.At(at), cost, true)
		slots = append(slots, at)
	}
}

// The rate of a leak with a ramp grows from a tenth to the whole, evenly, and never exceeds it; so it does once more after it has
// stood still for longer than the ramp, and not after less.
func TestARampGrowsEvenly(t *testing.T) {
	const sec = int64(1_000_000)
	for _, rate := range []int{20, 50, 7000} {
		for _, cost := range []int{1, 3} {
			set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: rate, Period: time.Second, Ramp: time.Minute})
			var st rules.State
			begin := 1_000_000 * sec
			for _, still := range []int64{0, 61 * sec, 3600 * sec} {
				begin += still
				slots := spendAll(set, &st, begin, begin+90*sec, cost)
				if slots[0] != begin {
					t.Errorf("%d/s: the first starts %d µs after it may", rate, slots[0]-begin)
				}
				for second := 0; second < 90; second += 10 {
					n := 0
					for _, at := range slots {
						if at >= begin+int64(second)*sec && at < begin+int64(second+10)*sec {
							n += cost
						}
					}
					middle := math.Min(float64(second)+5, 60)
					if second == 60 {
						middle = 60
					}
					want := float64(rate) * 10 * (0.1 + 0.9*middle/60)
					if math.Abs(float64(n)-want) > 0.05*want+float64(cost) {
						t.Errorf("%d/s, cost %d, after %d s: %d start in 10 s, want %.0f", rate, cost, second, n, want)
					}
				}
				for i := 1; i < len(slots); i++ {
					if slots[i]-slots[i-1] < int64(cost)*sec/int64(rate) {
						t.Fatalf("%d/s: %d µs between two starts", rate, slots[i]-slots[i-1])
					}
				}
				begin = slots[len(slots)-1]
			}
			begin += 59 * sec
			if n := len(spendAll(set, &st, begin, begin+10*sec, cost)) * cost; n < 10*rate-2*cost {
				t.Errorf("%d/s: after 59 s of nothing %d start in 10 s", rate, n)
			}
		}
	}
}

// A state with a ramp in it is read as it was written, and is forgotten when nobody can tell it from none.
func TestARampIsRemembered(t *testing.T) {
	const sec = int64(1_000_000)
	set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 10, Period: time.Second, Ramp: time.Minute}, rules.Rule{Kind: rules.Leak, Limit: 9, Period: time.Second})
	var st, read rules.State
	at := 1_000_000 * sec
	for range 40 {
		at, _ = set.Earliest(&st, at, 1)
		if again, _ := set.Earliest(&read, at, 1); again != at {
			t.Fatalf("written and read the slot is %d, and %d before", again, at)
		}
		set.Spend(&st, rules.At(at), 1, true)
		if err := read.Decode(string(st.Append(nil))); err != nil {
			t.Fatal(err)
		}
	}
	full := set.Full(&st)
	for _, test := range []struct {
		at   int64
		want int64 // between the first two from then on, in tenths of a second at the whole rate
	}{{full, 9}, {full - 2*sec, 1}} {
		var copied rules.State
		if err := copied.Decode(string(st.Append(nil))); err != nil {
			t.Fatal(err)
		}
		slots := spendAll(set, &copied, test.at, test.at+5*sec, 1)
		if gap := slots[1] - slots[0]; gap < test.want*sec/10 {
			t.Errorf("%d s before it is forgotten %d µs lie between the first two", (full-test.at)/sec, gap)
		}
	}
	if full < at+60*sec {
		t.Errorf("it is forgotten %d s after the last start", (full-at)/sec)
	}
}

// The newest slot of a ramp is given back.
func TestASlotOfARampIsGivenBack(t *testing.T) {
	const sec = int64(1_000_000)
	set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 10, Period: time.Second, Ramp: time.Minute})
	var st rules.State
	slots := spendAll(set, &st, 1_000_000*sec, 1_000_010*sec, 1)
	last := slots[len(slots)-1]
	set.Refund(&st, rules.At(last), 1, false)
	if at, _ := set.Earliest(&st, last, 1); at != last {
		t.Errorf("after a refund the next slot is %d µs later", at-last)
	}
}

// The guess when so many have started is what the rule does, at the beginning of a ramp, within it, and after it.
func TestAfterOfARamp(t *testing.T) {
	const sec = int64(1_000_000)
	set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 50, Period: time.Second, Ramp: time.Minute})
	begin := 1_000_000 * sec
	var all rules.State
	slots := spendAll(set, &all, begin, begin+100*sec, 1)
	for _, started := range []int{0, 1, 300, 1000, 1649, 1651, 2500} {
		var st rules.State
		for _, at := range slots[:started] {
			set.Spend(&st, rules.At(at), 1, true)
		}
		from, _ := set.Earliest(&st, begin, 1)
		for _, k := range []int{0, 1, 10, 200, 900} {
			at, depends := set.After(&st, 0, from, int64(k))
			if d := at - slots[started+k]; !depends || d < -sec/50 || d > sec/50 {
				t.Errorf("after %d starts, number %d more is expected %d µs after it starts", started, k, d)
			}
		}
	}
	at, _ := set.After(&all, 0, begin+1000*sec, 200)
	if d := at - begin - 1000*sec - (slots[200] - begin); d < -sec/50 || d > sec/50 {
		t.Errorf("when it has stood still, 200 take %d µs, and %d at first", at-begin-1000*sec, slots[200]-begin)
	}
}

// A ramp begins with a start that is given back: it has not begun, and the next start begins it, be it at the same instant or later.
func TestARampWhoseFirstStartIsGivenBack(t *testing.T) {
	const sec = int64(1_000_000)
	set := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second, Ramp: 4 * time.Second})
	for _, again := range []int64{0, 1, sec / 10, 2 * sec} {
		var fresh, undone rules.State
		set.Spend(&undone, rules.At(start0), 1, true)
		set.Refund(&undone, rules.At(start0), 1, false)
		if at, _ := set.Earliest(&undone, start0+again, 1); at != start0+again {
			t.Errorf("%d µs after it the next may start %d µs later", again, at-start0-again)
		}
		for _, st := range []*rules.State{&fresh, &undone} {
			set.Spend(st, rules.At(start0+again), 1, true)
		}
		want, _ := set.Earliest(&fresh, start0+again+1, 1)
		if got, _ := set.Earliest(&undone, start0+again+1, 1); got != want {
			t.Errorf("%d µs after it: the second start %d µs behind the first, want %d", again, got-start0-again, want-start0-again)
		}
	}
}
