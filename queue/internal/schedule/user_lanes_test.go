package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// onUserShelf has a tenant with that policy, and two limits by name that never bind: they give each user lanes of
// their own for the types "bulk" and "mail", beside the one for all other jobs.
func onUserShelf(t *testing.T, policy schedule.Policy) *shelf {
	return newShelf(t, &schedule.Policies{
		Default:  "p",
		Policies: map[string]schedule.Policy{"p": policy},
		Named:    namedLimits{leakOf("bulk", "bulk", 1_000_000, time.Second), leakOf("mail", "mail", 1_000_000, time.Second)},
	})
}

func ofType(typ string) func(*envelope.Envelope) {
	return func(e *envelope.Envelope) { e.Type = typ }
}

// types returns the types of the jobs that have started, in their order.
func (s *shelf) types() (types []string) {
	for _, start := range s.starts {
		types = append(types, start.Head.Env.Type)
	}
	return types
}

// Lanes of one user take turns when the user's own rules or concurrency keep all of them waiting, whichever of them was
// there first.
func TestLanesOfAUserTakeTurns(t *testing.T) {
	spaced := func(period time.Duration) schedule.Policy {
		return schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: period})}
	}
	for name, test := range map[string]struct {
		policy schedule.Policy
		period time.Duration // from one start to the next
	}{
		"spacing 1s":    {spaced(time.Second), time.Second},
		"spacing 5s":    {spaced(5 * time.Second), 5 * time.Second}, // Redis knows the bound of the lane without a label
		"concurrency 1": {schedule.Policy{UserConcurrency: schedule.Concurrency{Jobs: 1}}, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := onUserShelf(t, test.policy)
			for range 20 {
				s.put("t", "u", ofType("bulk"))
			}
			run := func(n int) { // what has started ends a period later
				ends := s.now + test.period.Microseconds()
				for until := len(s.starts) + n; len(s.starts) < until; s.now += 10_000 {
					before := len(s.starts)
					s.decide()
					if len(s.starts) > before {
						ends = s.now + test.period.Microseconds()
					} else if s.now >= ends {
						for _, start := range s.starts {
							s.s.Step(s.now, schedule.Ended{start.Claim})
						}
						ends = s.now + test.period.Microseconds()
					}
				}
			}
			run(3)
			s.put("t", "u", ofType("chat"))
			s.put("t", "u", ofType("chat"))
			s.put("t", "u", ofType("mail"))
			run(6)
			if got := s.types()[3:]; slices.Index(got, "chat") > 1 || slices.Index(got, "mail") > 2 || slices.Index(got, "mail") < 0 {
				t.Errorf("after three of bulk: %v, want the first chat and the mail within three starts", got)
			}
		})
	}
}

// A costly job is not passed over for ever by cheap ones in other lanes of its user: of another type or of a lower
// priority, in one lane or in a new one each time.
func TestLanesOfAUserWaitForACostlyJob(t *testing.T) {
	bucket := rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 5})
	low := func(e *envelope.Envelope) { e.Priority = envelope.Low }
	for name, cheap := range map[string]func(*envelope.Envelope){
		"of another type":     ofType("bulk"),
		"of a lower priority": low,
	} {
		t.Run(name, func(t *testing.T) {
			s := onUserShelf(t, schedule.Policy{User: bucket})
			for range 5 {
				s.put("t", "u", cheap)
			}
			s.decide()
			s.put("t", "u", func(e *envelope.Envelope) { e.Cost = 5 })
			n := 0
			s.after(3*time.Second, func() {
				if n++; n%50 == 0 { // 20 a second
					s.put("t", "u", cheap)
				}
			})
			at := slices.IndexFunc(s.starts, func(start schedule.Start) bool { return start.Head.Env.Cost == 5 })
			if at < 0 || at > 16 {
				t.Errorf("the costly job is start %d of %d, want one of the first 16", at, len(s.starts))
			}
			if len(s.starts) < 25 {
				t.Errorf("%d starts in three seconds: what comes after the costly job does not go on", len(s.starts))
			}
		})
	}
}

// Whoever waited for room for a costly job waits no more when that job leaves without a start.
func TestACostlyJobThatLeavesHoldsNobody(t *testing.T) {
	bucket := rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Second, Burst: 5})
	s := onUserShelf(t, schedule.Policy{User: bucket})
	for range 5 {
		s.put("t", "u", ofType("bulk"))
	}
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.Deadline = 5, s.now+2_000_000 })
	s.put("t", "u", ofType("bulk"))
	s.decide()
	begun := s.now
	s.after(3*time.Second, nil)
	if n := len(s.starts); n != 6 {
		t.Fatalf("%d starts, want the sixth of bulk", n)
	}
	if at := s.starts[5].Slot - begun; at > 2_100_000 {
		t.Errorf("the job behind the costly one starts after %d µs, want it to start when that one is too late, after two seconds", at)
	}
}
