package schedule_test

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// ending is a shelf with policies that let a tenant start a job each period and hold for so long, in µs. A job has started, and
// three wait.
func ending(t *testing.T, period time.Duration, holds int64) *shelf {
	t.Helper()
	leak := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: period})
	s := onShelf(t, nil, schedule.Policy{Tenant: leak})
	s.policies.Ends = s.now + holds
	s.policies.Overrides = map[string]schedule.Override{envelope.TenantScope("t"): {Until: s.policies.Ends}}
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 1 {
		t.Fatalf("%d started, want 1", len(s.starts))
	}
	clear(s.lanes)
	for range 3 {
		s.put("t", "u", nil)
	}
	return s
}

// Nothing is given a slot at the end of an override or after it, however near that is: neither ahead nor at the instant itself.
// There is nothing to decide again before the end.
func TestNoSlotBeyondTheEndOfAnOverride(t *testing.T) {
	for slot, want := range map[time.Duration]int{5*time.Millisecond - time.Microsecond: 2, 5 * time.Millisecond: 1, 6 * time.Millisecond: 1} {
		s := ending(t, slot, 5000)
		end := s.policies.Ends
		var f fleet
		f.places = []*schedule.Place{{Worker: "w"}}
		c := s.s.Decide(s.now, &f, 100)
		if n := 1 + len(c.Plan.Starts); n != want {
			t.Errorf("period %v: %d started, want %d", slot, n, want)
		}
		if want == 1 && c.Plan.Next != end {
			t.Errorf("period %v: decides again %d µs from the end, want at the end", slot, c.Plan.Next-end)
		}
	}
}

// At the end nothing is decided any more by policies that hold no more.
func TestNothingIsDecidedAfterTheEndOfAnOverride(t *testing.T) {
	for after, want := range map[int64]int{-1: 1, 0: 0, 1: 0, 1_000_000: 0} {
		s := ending(t, time.Millisecond, 30_000)
		var f fleet
		f.places = []*schedule.Place{{Worker: "w"}}
		now := s.policies.Ends + after
		c := s.s.Decide(now, &f, 1)
		if len(c.Plan.Starts) != want || want == 0 && c.Plan.Next != now {
			t.Errorf("%d µs after the end: %d starts, next in %d µs; want %d", after, len(c.Plan.Starts), c.Plan.Next-now, want)
		}
	}
}

// A worker that is far away is given no slot beyond the end either.
func TestNoSlotBeyondTheEndForAWorkerFarAway(t *testing.T) {
	s := ending(t, time.Millisecond, 100_000)
	var f fleet
	f.places = []*schedule.Place{{Worker: "far", Ahead: 60_000}}
	s.now = s.policies.Ends - 60_000
	c := s.s.Decide(s.now, &f, 1)
	if len(c.Plan.Starts) != 0 || c.Plan.Next != s.policies.Ends || len(f.places) != 1 {
		t.Errorf("%+v", c.Plan)
	}
}

// A job is too late if its latest start lies before the end, and not if it lies behind it.
func TestTheLatestStartAndTheEndOfAnOverride(t *testing.T) {
	for latest, drops := range map[int64]int{49_999: 1, 50_000: 0, 3_000_000: 0} {
		leak := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Hour})
		s := onShelf(t, leak, schedule.Policy{})
		s.policies.Ends = s.now + 50_000
		s.put("t", "first", nil)
		s.decide()
		s.put("t", "second", func(e *envelope.Envelope) { e.Deadline = s.now + latest })
		s.decide()
		if len(s.starts) != 1 || len(s.drops) != drops {
			t.Errorf("latest start %d µs from now: %d starts, %d drops; want %d", latest, len(s.starts), len(s.drops), drops)
		}
	}
}

// A job that was late gets a slot that lies ahead. It waits for the end of an override of its own user, and nobody waits with
// it, not even a late job of another user.
func TestALateJobBeforeTheEndOfAnOverrideDelaysNobody(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.policies.Ends = s.now + 300_000
	s.policies.Overrides = map[string]schedule.Override{envelope.UserScope("t", "late"): {Until: s.policies.Ends}}
	late := func(e *envelope.Envelope) { e.Late = 500_000 }
	s.put("t", "late", late)
	s.put("t", "late too", late)
	s.put("t", "other", nil)
	s.put("another", "user", nil)
	s.decide()
	if got := s.order(); got != "late too user other" {
		t.Errorf("started %q, want all but that of late", got)
	}
}

// A job that gets a slot beyond the end of somebody else's override is too late if that slot lies behind its latest start.
func TestALatestStartBehindTheEndOfAnothersOverride(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.policies.Ends = s.now + 50_000
	s.policies.Overrides = map[string]schedule.Override{envelope.UserScope("t", "other"): {Until: s.policies.Ends}}
	s.put("t", "late", func(e *envelope.Envelope) { e.Late, e.Deadline = 500_000, s.now+100_000 })
	s.decide()
	if len(s.starts) != 0 || len(s.drops) != 1 || s.drops[0].Reason != schedule.Expired {
		t.Errorf("%d starts, %d drops; want the job dropped as expired", len(s.starts), len(s.drops))
	}
}

// A limit by name has called a job for a slot within the lead. If an override that ends before comes into force meanwhile, the
// job waits for the end.
func TestNoSlotBeyondTheEndForALaneThatWasCalledBefore(t *testing.T) {
	s := onNamedShelf(t, nil, leakOf("all", "", 1, time.Second))
	for _, user := range []string{"a", "b"} {
		s.put("t", user, nil)
	}
	s.decide()
	if len(s.starts) != 1 || s.s.InLine()["all"] != 1 {
		t.Fatalf("%d started, want one and another in line", len(s.starts))
	}
	s.now, s.places = s.now+985_000, 0 // the lane is called, and there is no place
	s.decide()
	p := *s.policies
	p.Ends = s.now + 5000
	p.Overrides = map[string]schedule.Override{envelope.TenantScope("t"): {Until: p.Ends}}
	s.places = 1
	s.s.Step(s.now, schedule.Settings{Policies: &p})
	s.decide()
	if len(s.starts) != 1 {
		t.Errorf("a job has a slot %d µs after the end", s.starts[1].Slot-p.Ends)
	}
	s.now = p.Ends
	s.s.Step(s.now, schedule.Settings{Policies: s.policies})
	s.decide()
	if len(s.starts) != 2 {
		t.Errorf("%d started, want 2 after the end", len(s.starts))
	}
}
