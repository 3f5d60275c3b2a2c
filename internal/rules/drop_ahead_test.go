package rules_test

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// A slot that lies ahead of what is decided next is no reason to drop that: a rule drops what it does not admit. Both slots lie in the
// same period, or the first one in the next.
func TestASlotAheadDropsNothing(t *testing.T) {
	for _, rule := range []rules.Rule{
		{Kind: rules.Window, Limit: 3, Period: time.Hour},
		{Kind: rules.TokenBucket, Limit: 3, Period: time.Hour, Burst: 3},
		{Kind: rules.FixedWindow, Limit: 3, Period: time.Hour},
		{Kind: rules.SlidingCounter, Limit: 3, Period: time.Hour, Buckets: 2},
		{Kind: rules.Calendar, Limit: 3, Unit: "day", Zone: "UTC", Period: 24 * time.Hour},
	} {
		rule.Drop = true
		set := rules.Compile(0, rule)
		for _, begin := range []int64{1_763_596_800_000_000, 1_763_596_800_000_000 - 2500, 1_763_600_500_000_000} {
			var st rules.State
			set.Spend(&st, rules.At(begin+5000), 1, true)
			for n := 2; n <= 4; n++ {
				at, _ := set.Earliest(&st, begin, 1)
				at = set.Soon(&st, at, at, 1)
				if refused := set.Refusing(&st, at, 1) >= 0; refused != (n > 3) {
					t.Errorf("%v: action %d at %d µs is dropped: %v", rule, n, at-begin, refused)
				}
				set.Spend(&st, rules.At(at), 1, true)
			}
		}
	}
}

// An action may start later than its slot. A leak and a bucket count the slot, a window counts the latest start; all give back what they
// have counted.
func TestAnActionThatMayStartLater(t *testing.T) {
	const slot, latest = start0, start0 + 50_000
	for rule, want := range map[rules.Rule]int64{
		{Kind: rules.Leak, Limit: 10, Period: time.Second}:                  slot + 100_000,
		{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 1}: slot + 100_000,
		{Kind: rules.Window, Limit: 1, Period: time.Second}:                 latest + 1_000_000,
		{Kind: rules.Spacing, Limit: 1, Period: time.Second}:                latest + 1_000_000,
		{Kind: rules.FixedWindow, Limit: 1, Period: time.Second}:            (latest/1_000_000 + 1) * 1_000_000,
	} {
		set, st, taken := rules.Compile(0, rule), rules.State{}, rules.Spent{Slot: slot, Latest: latest}
		set.Spend(&st, taken, 1, true)
		if at, _ := set.Earliest(&st, slot, 1); at != want {
			t.Errorf("%s: the next slot lies %d µs behind the slot, want %d", rule.Kind, at-slot, want-slot)
		}
		set.Refund(&st, taken, 1, false)
		if at, _ := set.Earliest(&st, latest, 1); at != latest {
			t.Errorf("%s: %d µs after a refund", rule.Kind, at-latest)
		}
	}
}
