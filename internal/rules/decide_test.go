package rules_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// An action that starts up to slack after its slot falls into the period of its slot, and
// keeps windows and spacings.
func TestSlack(t *testing.T) {
	const slack = 5 * time.Millisecond
	for seed := range uint64(600) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		rs := []rules.Rule{randomRule(rnd, allKinds[2+seed%4]), randomRule(rnd, allKinds[2+rnd.IntN(4)])}
		for i := range rs {
			rs[i].Period = 20*time.Millisecond*time.Duration(max(2, rs[i].Buckets)) + rs[i].Period%(200*time.Millisecond)
			rs[i].Drop = rnd.IntN(3) == 0 && rs[i].Kind != rules.Window
		}
		set := rules.Compile(slack, rs...)
		var st rules.State
		var starts []start
		now := start0
		for range 80 {
			now += rnd.Int64N(10_000)
			at, _ := set.Earliest(&st, now, 1)
			if set.Refusing(&st, at, 1) >= 0 {
				continue
			}
			set.Spend(&st, rules.At(at), 1, true)
			now = at + rnd.Int64N(slack.Microseconds()+1)
			starts = append(starts, start{now, 1})
		}
		verify(t, starts, rs...)
		if t.Failed() {
			t.Fatalf("seed %d: %v", seed, rs)
		}
	}
}

// A rule that drops does not drop what it would admit a moment later, at the end of a
// guarded period: that is moved.
func TestGuardDropsNothing(t *testing.T) {
	set := rules.Compile(5*time.Millisecond, rules.Rule{Kind: rules.FixedWindow, Limit: 1, Period: time.Second, Drop: true},
		rules.Rule{Kind: rules.FixedWindow, Limit: 1, Period: 20 * time.Millisecond})
	var st rules.State
	edge := start0/1_000_000*1_000_000 + 1_000_000
	if at, binding := set.Earliest(&st, edge-5001, 1); at != edge-5001 || binding != -1 {
		t.Errorf("%d before the edge by %d", edge-at, binding)
	}
	at, binding := set.Earliest(&st, edge-5000, 1)
	if at != edge || binding != 0 || set.Refusing(&st, at, 1) != -1 {
		t.Errorf("%d before the edge by %d", edge-at, binding)
	}
	set.Spend(&st, rules.At(at), 1, true)
	if at, _ := set.Earliest(&st, edge+30_000, 1); set.Refusing(&st, at, 1) != 0 {
		t.Error("not refused")
	}
}

// Absurd numbers end at Never, and nothing overflows.
func TestSaturates(t *testing.T) {
	year := 366 * 24 * time.Hour
	for _, kind := range allKinds {
		for _, cost := range []int{1, 1_000_000, math.MaxInt} {
			r := rules.Rule{Kind: kind, Limit: 1, Period: year, Burst: 1_000_000, Buckets: 60}
			set := rules.Compile(time.Second, r)
			for _, now := range []int64{0, start0, rules.Never - 1, rules.Never} {
				var st rules.State
				for range 3 {
					at, _ := set.Earliest(&st, now, cost)
					if at < now || at > rules.Never {
						t.Fatalf("%s of cost %d: slot %d", kind, cost, at)
					}
					set.Spend(&st, rules.At(at), cost, true)
					recode(t, &st)
					if full := set.Full(&st); full < 0 || full > rules.Never {
						t.Fatalf("%s of cost %d: full at %d", kind, cost, full)
					}
				}
				set.Refund(&st, rules.At(now), cost, false)
				recode(t, &st)
			}
		}
	}
	leak := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: year})
	if leak.Impossible(1_000_000) != 0 || leak.Impossible(1) != -1 || leak.Impossible(math.MaxInt) != 0 {
		t.Error("a leak that takes more than a century")
	}
	window := rules.Rule{Kind: rules.Window, Limit: 5, Period: year}
	shadow := window
	shadow.Shadow = true
	if set := rules.Compile(0, shadow, window); set.Impossible(6) != 1 || set.Impossible(5) != -1 {
		t.Error("a cost above a window")
	}
}

// A large cost is one slot: it costs neither time nor memory.
func TestCostsNothing(t *testing.T) {
	set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1_000_000, Period: time.Hour})
	var st rules.State
	set.Spend(&st, rules.At(start0), 999_999, true)
	if text := st.Append(nil); len(text) > 40 {
		t.Errorf("%d bytes", len(text))
	}
	if at, _ := set.Earliest(&st, start0+1, 1); at != start0+1 {
		t.Error("no room for the last")
	}
	if at, _ := set.Earliest(&st, start0+1, 2); at != start0+3_600_000_000 {
		t.Error("room for two")
	}
}

// Rules of one kind keep separate states, and shadow rules a world of their own.
func TestSeparateStates(t *testing.T) {
	set := rules.Compile(0,
		rules.Rule{Kind: rules.FixedWindow, Limit: 2, Period: time.Second},
		rules.Rule{Kind: rules.FixedWindow, Limit: 3, Period: time.Minute, Drop: true},
		rules.Rule{Kind: rules.FixedWindow, Limit: 1, Period: time.Minute, Shadow: true})
	now := start0 / 60_000_000 * 60_000_000
	var st rules.State
	for i, want := range []struct{ at, refusing, objecting int64 }{{0, -1, -1}, {0, -1, 2}, {1_000_000, -1, 2}, {1_000_000, 1, 2}} {
		at, _ := set.Earliest(&st, now, 1)
		refusing, objecting := set.Refusing(&st, at, 1), set.Objecting(&st, at, 1)
		if at-now != want.at || int64(refusing) != want.refusing || int64(objecting) != want.objecting {
			t.Fatalf("start %d: at %d, refused by %d, objected to by %d", i, at-now, refusing, objecting)
		}
		set.Spend(&st, rules.At(at), 1, objecting < 0)
	}
}

// Deciding allocates nothing.
func TestNoAllocations(t *testing.T) {
	set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: time.Minute},
		rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Second}, rules.Rule{Kind: rules.Leak, Limit: 50, Period: time.Second},
		rules.Rule{Kind: rules.SlidingCounter, Limit: 1000, Period: time.Hour, Buckets: 12})
	var st rules.State
	now, text, next := start0, "", []byte(nil)
	decide := func() {
		if err := st.Decode(text); err != nil {
			t.Fatal(err)
		}
		now, _ = set.Earliest(&st, now, 1)
		set.Spend(&st, rules.At(now), 1, true)
		set.Refund(&st, rules.At(now-1000), 1, false)
		set.Forget(&st, now)
		next = st.Append(next[:0])
	}
	for range 100 {
		decide()
		text = string(next)
	}
	if n := testing.AllocsPerRun(100, decide); n > 0 {
		t.Errorf("%v allocations a decision", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	set := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: time.Minute},
		rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Second})
	var st rules.State
	for i := range int64(10) {
		set.Spend(&st, rules.At(start0+i*6_000_000), 1, true)
	}
	text, next := string(st.Append(nil)), []byte(nil)
	for b.Loop() {
		_ = st.Decode(text)
		at, _ := set.Earliest(&st, start0+60_000_000, 1)
		set.Spend(&st, rules.At(at), 1, true)
		next = st.Append(next[:0])
	}
}
