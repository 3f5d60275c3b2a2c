package schedule_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// Whenever several jobs of a user may start at one instant, those of a higher priority start before
// those of a lower one: under every rule, without any, and with few places, also where a lane is
// longer than what is read of it at a time.
func TestHighBeforeLow(t *testing.T) {
	minute := func(kind rules.Kind, n int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: kind, Limit: n, Period: time.Minute, Burst: n})
	}
	for name, test := range map[string]struct {
		queue  *rules.Set
		policy schedule.Policy
		places int
		first  int // how many may start at once
	}{
		"no rules":                   {first: 90, places: 1000},
		"one place":                  {first: 1, places: 1},
		"a window of the user":       {policy: schedule.Policy{User: minute(rules.Window, 40)}, places: 1000, first: 40},
		"a window of the tenant":     {policy: schedule.Policy{Tenant: minute(rules.Window, 40)}, places: 1000, first: 40},
		"a window of the queue":      {queue: minute(rules.Window, 40), places: 1000, first: 40},
		"a token bucket of the user": {policy: schedule.Policy{User: minute(rules.TokenBucket, 40)}, places: 1000, first: 40},
		"a fixed window of the user": {policy: schedule.Policy{User: minute(rules.FixedWindow, 40)}, places: 1000, first: 40},
		"concurrency of the user":    {policy: schedule.Policy{UserConcurrency: schedule.Concurrency{Jobs: 4}}, places: 1000, first: 4},
	} {
		for _, ahead := range []int64{0, 10_000} {
			t.Run(fmt.Sprint(name, ", a worker ", ahead, " µs away"), func(t *testing.T) {
				s := onShelf(t, test.queue, test.policy)
				s.ahead = ahead
				for priority := envelope.Low; priority >= envelope.High; priority-- {
					for range 30 {
						s.put("t", "u", func(e *envelope.Envelope) { e.Priority = priority })
					}
				}
				s.places = test.places
				for len(s.starts) < 90 {
					before := len(s.starts)
					s.decide()
					if len(s.starts) != min(90, before+test.first) {
						t.Fatalf("%d starts after %d, want %d more", len(s.starts), before, test.first)
					}
					s.now += time.Minute.Microseconds()
					for _, start := range s.starts[before:] {
						s.s.Step(s.now, schedule.Ended{start.Claim})
					}
				}
				order := make([]int, len(s.starts))
				for i, start := range s.starts {
					order[i] = start.Lane.Priority
				}
				if !slices.IsSorted(order) {
					t.Errorf("started by priority %v, want all of 0 before 1 before 2", order)
				}
			})
		}
	}
}

// Users of one tenant take turns, also those whose jobs may start at one instant.
func TestUsersTakeTurns(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	for range 12 {
		for _, user := range []string{"a", "b", "c"} {
			s.put("t", user, nil)
		}
	}
	s.decide()
	if want := strings.TrimSpace(strings.Repeat("a b c ", 12)); s.order() != want {
		t.Errorf("started %s, want %s", s.order(), want)
	}
}

// A job is dropped when its deadline passes, whatever blocks it: a concurrency limit, a lack of
// places, a pause.
func TestDeadlinesPassWhileJobsAreBlocked(t *testing.T) {
	one := schedule.Concurrency{Jobs: 1}
	for name, test := range map[string]struct {
		queue  schedule.Concurrency
		policy schedule.Policy
		users  [2]string
		block  func(s *shelf)
	}{
		"concurrency of the user":   {policy: schedule.Policy{UserConcurrency: one}, users: [2]string{"u", "u"}},
		"concurrency of the tenant": {policy: schedule.Policy{TenantConcurrency: one}, users: [2]string{"u", "v"}},
		"concurrency of the queue":  {queue: one, users: [2]string{"u", "v"}},
		"no place":                  {users: [2]string{"u", "v"}, block: func(s *shelf) { s.places = 0 }},
		"a pause of the tenant": {users: [2]string{"u", "v"}, block: func(s *shelf) {
			s.s.Step(s.now, schedule.Paused{Scope: "t:t", Until: s.now + time.Hour.Microseconds()})
		}},
		"a pause of the user": {users: [2]string{"u", "v"}, block: func(s *shelf) {
			s.s.Step(s.now, schedule.Paused{Scope: "u:t:v", Until: s.now + time.Hour.Microseconds()})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := &schedule.Policies{QueueConcurrency: test.queue, Default: "p", Policies: map[string]schedule.Policy{"p": test.policy}}
			s := newShelf(t, p)
			s.put("t", test.users[0], nil)
			s.decide()
			if test.block != nil {
				test.block(s)
			}
			const left = 5_000_000
			s.put("t", test.users[1], func(e *envelope.Envelope) { e.Deadline = s.now + left })
			s.put("t", test.users[1], nil)
			s.decide()
			s.now += left
			s.decide()
			if name == "a pause of the user" { // it is certain from the beginning that the slot is later
				if len(s.starts) != 1 || len(s.drops) != 1 || s.drops[0].Reason != schedule.Expired {
					t.Errorf("%d starts, drops: %+v", len(s.starts), s.drops)
				}
				return
			}
			if len(s.starts) != 1 || len(s.drops) != 0 {
				t.Fatalf("%d starts and %d drops at the deadline, want 1 and none", len(s.starts), len(s.drops))
			}
			var f fleet
			if plan := s.s.Decide(s.now, &f, 100).Plan; plan.Next != s.now+1 {
				t.Errorf("the next decision comes in %d µs, want 1", plan.Next-s.now)
			}
			s.now++
			s.decide()
			if len(s.drops) != 1 || s.drops[0].Reason != schedule.Expired {
				t.Errorf("drops: %+v", s.drops)
			}
		})
	}
}

// A job of a higher priority that is due within the lead starts before a big one of a lower priority
// that the tenant's rules allow later than that.
func TestABigJobWaitsForHigherPriorities(t *testing.T) {
	spacing := rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 500 * time.Millisecond})
	window := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 3, Period: time.Second})
	s := onShelf(t, nil, schedule.Policy{Tenant: window, User: spacing})
	high := func(e *envelope.Envelope) { e.Priority = envelope.High }
	begun := s.now
	s.put("t", "first", nil) // counts until a second after
	s.decide()
	s.now = begun + 497_000
	s.put("t", "v", high)
	s.decide()
	s.put("t", "v", high) // is due at 997 ms
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost = 2 })
	s.decide()
	s.now = begun + 990_000
	s.decide()
	if len(s.starts) != 3 || s.starts[2].Lane.User != "v" || s.starts[2].Slot != begun+997_000 {
		t.Errorf("starts %+v, want the second one of v at 997 ms as the third", s.starts)
	}
}

// A job that is due within the lead starts before one of a lower priority that the queue's rules let start only after
// that: both would need the queue's next slot.
func TestLowPrioritiesTakeNoLaterSlotFirst(t *testing.T) {
	spacing := func(ms int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Duration(ms) * time.Millisecond})
	}
	s := onShelf(t, spacing(15), schedule.Policy{User: spacing(9)})
	begun := s.now
	s.put("t", "v", func(e *envelope.Envelope) { e.Priority = envelope.High })
	s.decide()
	s.put("t", "v", func(e *envelope.Envelope) { e.Priority = envelope.High }) // its user lets it start at 9 ms
	s.put("t", "u", nil)                                                       // its user lets it start at once
	s.decide()
	s.now = begun + 15_000
	s.decide()
	if order := s.order(); order != "v v u" {
		t.Errorf("started %s, want v v u", order)
	}
	if slot := s.starts[1].Slot; slot != begun+15_000 {
		t.Errorf("the second slot is at %d µs, want 15 ms", slot-begun)
	}
}
