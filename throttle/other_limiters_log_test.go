package throttle

import (
	"fmt"
	"maps"
	"testing"
	"time"
)

// github.com/classdojo/rolling-rate-limiter, src/index.test.ts. A refused action counts
// there: with us it does where a rule says so.
func TestRollingRateLimiter(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	tests := map[string]table{
		"prevents more than maxInInterval actions within interval": {[]Rule{Window(2, 10*ms)}, []fact{
			{0, "allow", 1, 0, 1, unsaid},
			{1 * ms, "peek", 1, 1 * ms, 1, unsaid},
			{1 * ms, "allow", 1, 1 * ms, 0, unsaid},
			{9 * ms, "peek", 1, 10 * ms, 0, unsaid},
			{10 * ms, "peek", 1, 10 * ms, 1, unsaid},
			{10 * ms, "allow", 1, 10 * ms, 0, unsaid},
		}},
		"blocked actions count as actions": {[]Rule{Window(3, 10*ms).CountingDropped()}, []fact{
			row(0, "allow", 1, 0), row(0, "allow", 1, 0), row(0, "allow", 1, 0),
			row(9*ms, "allow", 1, 10*ms), row(9*ms, "allow", 1, 10*ms),
			row(10*ms, "allow", 1, 10*ms), row(10*ms, "allow", 1, 19*ms),
		}},
		"prevents actions less than minDistance apart": {[]Rule{Window(4, 10*ms).CountingDropped(), Spacing(2 * ms).CountingDropped()}, []fact{
			row(0, "allow", 1, 0), row(0, "allow", 1, 2*ms),
			row(1*ms, "allow", 1, 3*ms),
			row(3*ms, "allow", 1, 3*ms), row(3*ms, "allow", 1, 10*ms),
		}},
		// It says when an action could succeed that follows the one asked about, as if that
		// were done; ours, when this one could.
		"returns info about limiting (no min distance)": {[]Rule{Window(3, 10*ms).CountingDropped()}, []fact{
			{0, "allow", 1, 0, 2, unsaid},
			{4 * ms, "allow", 1, 4 * ms, 1, unsaid},
			{5 * ms, "allow", 1, 5 * ms, 0, unsaid},
			{5 * ms, "peek", 1, 10 * ms, 0, unsaid},  // its 5 ms until allowed
			{8 * ms, "allow", 1, 14 * ms, 0, unsaid}, // its 6 ms, since the refused one counts
			{8 * ms, "peek", 1, 14 * ms, 0, unsaid},
			{11 * ms, "peek", 1, 14 * ms, 0, unsaid},
			{17 * ms, "peek", 1, 17 * ms, 2, unsaid},
		}},
		"returns info about limiting (with min distance)": {[]Rule{Window(3, 10*ms).CountingDropped(), Spacing(2 * ms).CountingDropped()}, []fact{
			row(0, "allow", 1, 0), row(0, "peek", 1, 2*ms),
			row(4*ms, "allow", 1, 4*ms), row(4*ms, "peek", 1, 6*ms),
			row(5*ms, "allow", 1, 10*ms), row(5*ms, "peek", 1, 10*ms),
			row(8*ms, "allow", 1, 14*ms), row(8*ms, "peek", 1, 14*ms),
			row(11*ms, "peek", 1, 14*ms), row(17*ms, "peek", 1, 17*ms),
		}},
	}
	for name, table := range tests {
		t.Run(name, func(t *testing.T) { checkFacts(t, table) })
	}
}

// Its test of separate users, and the older ones, test/index.js: of 300 tries of three
// users at once 30 of each are admitted, and after the interval 30 more.
func TestRollingRateLimiterUsers(t *testing.T) {
	t.Parallel()
	for name, rules := range map[string][]Rule{
		"deferring": {Window(30, 100*time.Millisecond)}, "counting": {Window(30, 100*time.Millisecond).CountingDropped()},
	} {
		c := memoryContestant()
		admitted := map[string]int{}
		for _, at := range []int64{0, 100_000} {
			c.set(1_763_600_000_000_000 + at)
			for n := range 300 {
				user := fmt.Sprint("user-", n%3)
				d, err := New(c.store).Allow(t.Context(), 1, Subject{Key: user, Rules: rules})
				if err != nil {
					t.Fatal(err)
				}
				if d.Outcome == Admitted {
					admitted[user]++
				}
			}
		}
		if want := map[string]int{"user-0": 60, "user-1": 60, "user-2": 60}; !maps.Equal(admitted, want) {
			t.Errorf("%s: admitted %v, want %v", name, admitted, want)
		}
	}
}

// What counting refused actions does to a flood: 5 in 2 seconds, a try each 300 ms for 10
// seconds. 5 are admitted, and none ever after; without it 25 are.
func TestCountingRefusedActionsKeepsAFloodOut(t *testing.T) {
	t.Parallel()
	for want, rule := range map[int]Rule{25: Window(5, 2*time.Second), 5: Window(5, 2*time.Second).CountingDropped()} {
		c := memoryContestant()
		admitted := 0
		for at := time.Duration(0); at < 10*time.Second; at += 300 * time.Millisecond {
			c.set(1_763_600_000_000_000 + at.Microseconds())
			d, err := New(c.store).Allow(t.Context(), 1, Subject{Key: "u", Rules: []Rule{rule}})
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome == Admitted {
				admitted++
			}
		}
		if admitted != want {
			t.Errorf("%s: admitted %d, want %d", rule, admitted, want)
		}
	}
}

// redis_rate's own tests want 9 left of 10 after the first; since July 2025 it answers 8,
// for it counts seconds in doubles. Ours are whole microseconds.
func TestRemainingIsExact(t *testing.T) {
	t.Parallel()
	for _, rule := range []Rule{
		TokenBucket(10, time.Second, 10), TokenBucket(100, time.Minute, 100), TokenBucket(1000, time.Hour, 1000),
		TokenBucket(7, time.Minute, 7), Window(10, time.Second), FixedWindow(10, time.Second), SlidingCounter(10, time.Second, 2),
	} {
		checkFacts(t, table{[]Rule{rule}, []fact{{time.Microsecond, "allow", 1, time.Microsecond, rule.most() - 1, unsaid}}})
	}
}

// The worked examples of the literature for the two forms of the sliding counter.
func TestSlidingCounterFromTheBooks(t *testing.T) {
	t.Parallel()
	const minute, sec = time.Minute, time.Second
	// The tables begin at ...:20 of a minute.
	window := func(at time.Duration) time.Duration { return at + 40*sec }
	checkFacts(t, table{[]Rule{SlidingCounter(100, minute, 2)}, []fact{
		{window(0), "allow", 84, window(0), 16, unsaid},
		{window(minute), "peek", 1, window(minute), 16, unsaid},
		{window(minute + 15*sec), "allow", 36, window(minute + 15*sec), 1, unsaid}, // 84 × 75 % + 36 = 99
		{window(minute + 15*sec), "allow", 1, window(minute + 15*sec), 0, unsaid},
		{window(minute + 15*sec), "allow", 1, window(minute+15*sec) + 714286*time.Microsecond, 0, unsaid},
	}})
	// 5 × 70 % + 3 = 6.5 of 7. Some round down and let one more through; ours waits until
	// the estimate with it is 7: 5 × 60 % + 4.
	checkFacts(t, table{[]Rule{SlidingCounter(7, minute, 2)}, []fact{
		{window(0), "allow", 5, window(0), 2, unsaid},
		{window(minute + 18*sec), "allow", 3, window(minute + 18*sec), 0, unsaid},
		{window(minute + 18*sec), "allow", 1, window(minute + 24*sec), 0, unsaid},
	}})
	// An hour is 3 buckets of 20 minutes: what a bucket counted goes all at once.
	begin := time.Unix(1_763_600_000, 0)
	edge := begin.Truncate(20 * minute).Add(20 * minute).Sub(begin)
	checkFacts(t, table{[]Rule{SlidingCounter(3, time.Hour, 3)}, []fact{
		{edge + 19*minute, "allow", 2, edge + 19*minute, 1, unsaid},
		{edge + 21*minute, "allow", 1, edge + 21*minute, 0, unsaid},
		{edge + 22*minute, "allow", 1, edge + 60*minute, 0, unsaid},
		{edge + 60*minute, "allow", 2, edge + 60*minute, 0, unsaid},
		{edge + 60*minute, "allow", 1, edge + 80*minute, 0, unsaid},
	}})
}
