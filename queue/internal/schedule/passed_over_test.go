package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// Where the first lanes of a line are called, and their users' rules let them start a moment later only, those behind them are called in the
// same decision.
func TestLanesBehindOneThatIsNotReady(t *testing.T) {
	set := func(kind rules.Kind, n int, per time.Duration) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: kind, Limit: n, Period: per})
	}
	for seed := range 20 {
		limit := namedLimit{name: "account", unit: "jobs", bounds: bounds{set: set(rules.Leak, 1000, time.Second)}}
		s := newShelf(t, &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {User: set(rules.Spacing, 1, 7*time.Millisecond)}}, Named: namedLimits{limit}})
		for k := range 200 {
			s.put(fmt.Sprint("t", k%3), fmt.Sprint("u", (k*7+seed)%12), func(e *envelope.Envelope) { e.Priority = k % 3 })
		}
		first := s.now
		for n := 0; s.now < first+60_000; n++ {
			s.decide()
			s.now += 9_000
		}
		within := 0
		for _, start := range s.starts {
			if start.Slot < first+60_000 {
				within++
			}
		}
		if within < 59 {
			t.Errorf("seed %d: %d jobs start within 60 ms, want 60", seed, within)
		}
	}
}
