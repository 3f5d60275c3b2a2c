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

// Room is kept for the costly job of the highest priority, also if another one of a lower priority has waited before.
func TestRoomIsKeptForTheHigherPriority(t *testing.T) {
	s := onUserShelf(t, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 5})})
	for range 5 {
		s.put("t", "u", nil)
	}
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.Priority = 3, envelope.Low })
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.Priority = 5, envelope.High })
	n := 0
	s.after(3*time.Second, func() {
		if n++; n%50 == 0 {
			s.put("t", "u", nil)
		}
	})
	if s.starts[5].Lane.Priority != envelope.High {
		t.Errorf("start 5 is of priority %d, want the costly job of the high one", s.starts[5].Lane.Priority)
	}
}

// A lane of a user that is new has its turn after those that wait: a new lane each time does not keep an old one waiting.
func TestNewLanesOfAUserTakeTheLastTurn(t *testing.T) {
	domain := namedLimit{name: "domain", key: "domain", unit: "jobs", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1000, Period: time.Second})}}
	s := newShelf(t, &schedule.Policies{
		Default:  "p",
		Policies: map[string]schedule.Policy{"p": {User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Second})}},
		Named:    namedLimits{domain},
	})
	to := func(domain string) func(*envelope.Envelope) {
		return func(e *envelope.Envelope) { e.Keys = map[string]string{"domain": domain} }
	}
	s.put("t", "u", to("old"))
	s.decide()
	s.put("t", "u", to("old"))
	s.decide()
	n := 0
	s.after(10*time.Second, func() {
		if n++; n%100 == 0 && n < 5000 { // ten a second: each in a lane that is due with the old one
			s.put("t", "u", to(fmt.Sprint("new-", n)))
		}
	})
	at := slices.IndexFunc(s.starts[1:], func(start schedule.Start) bool { return start.Head.Env.Keys["domain"] == "old" })
	if at != 0 {
		t.Errorf("the second job of the old lane is start %d after its first, want the next", at)
	}
}

// A start that is undone was no turn: its lane is the next again.
func TestAnUndoneStartIsNoTurn(t *testing.T) {
	s := onUserShelf(t, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Second})})
	for _, typ := range []string{"bulk", "bulk", "chat", "chat"} {
		s.put("t", "u", ofType(typ))
	}
	s.decide() // bulk
	s.now += 1_000_000
	f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
	c := s.s.Decide(s.now, &f, 100)
	if len(c.Plan.Starts) != 1 || c.Plan.Starts[0].Head.Env.Type != "chat" {
		t.Fatalf("started %v, want chat", c.Plan.Starts)
	}
	s.s.Undo([]schedule.Commit{c}, s.now)
	s.decide()
	if got := strings.Join(s.types(), " "); got != "bulk chat" {
		t.Errorf("started %s, want bulk chat", got)
	}
}

// Whoever waited for room for a costly job waits no more when that job leaves without a start.
func TestACostlyJobThatLeavesHoldsNobody(t *testing.T) {
	s := onUserShelf(t, slowBucket)
	for range 5 {
		s.put("t", "u", ofType("bulk"))
	}
	s.decide()
	begun := s.now
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.ID = 5, "big" })
	s.put("t", "u", ofType("mail"))
	s.after(2*time.Second, nil)
	s.s.Step(s.now, schedule.IDCancelled{ID: "big"}, schedule.Changed{Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}})
	s.after(time.Second, nil)
	if n := len(s.starts); n != 6 {
		t.Fatalf("%d starts, want those of bulk and the mail", n)
	}
	if at := s.starts[5].Slot - begun; at < 2_000_000 || at > 2_010_000 {
		t.Errorf("the mail starts after %d µs, want two seconds: when the costly job is cancelled", at)
	}
}

// A costly job waits for the user's rules, and is dropped when another user has taken what the tenant's rules had left for it. The
// next job of its lane has its turn before jobs of a lower priority.
func TestTheNextJobAfterACostlyOneThatIsDropped(t *testing.T) {
	bucket := func(n int, period time.Duration, burst int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: n, Period: period, Burst: burst})
	}
	s := onUserShelf(t, schedule.Policy{Tenant: bucket(1, 3*time.Second, 8), User: bucket(10, 50*time.Millisecond, 4)})
	s.put("t", "u", nil)
	s.put("t", "u", nil)
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.Deadline = 3, s.now+15_000 })
	s.put("t", "u", nil)
	s.put("t", "u", func(e *envelope.Envelope) { e.Priority = envelope.Low })
	s.put("t", "v", func(e *envelope.Envelope) { e.Cost = 4 })
	s.decide()
	if len(s.drops) != 1 || s.drops[0].Reason != schedule.Expired || len(s.starts) != 5 {
		t.Fatalf("%d drops and %d starts; want the job of cost 3 dropped, and 5 starts", len(s.drops), len(s.starts))
	}
	if s.starts[3].Lane.Priority != envelope.Normal || s.starts[4].Lane.Priority != envelope.Low {
		t.Errorf("priority %d before %d", s.starts[3].Lane.Priority, s.starts[4].Lane.Priority)
	}
}

// slowBucket lets a user have five at once, and then one a second.
var slowBucket = schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Second, Burst: 5})}

// Nor when it waits for something else by now.
func TestACostlyJobThatWaitsForAnotherLimitHoldsNobody(t *testing.T) {
	s := onUserShelf(t, slowBucket)
	for range 5 {
		s.put("t", "u", ofType("bulk"))
	}
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost, e.Type = 5, "mail" })
	s.put("t", "u", ofType("chat"))
	s.decide()
	lifted := *s.policies
	lifted.Policies = map[string]schedule.Policy{"p": {}}
	s.s.Step(s.now, schedule.Settings{Policies: &lifted, Paused: map[string]int64{"l:mail": s.now + 3_600_000_000}})
	s.decide()
	if types := s.types(); len(types) != 6 || types[5] != "chat" {
		t.Errorf("started %v, want chat at once: the user has no rules, and the mail waits for the end of a pause", types)
	}
}

// A lane whose turn comes before that of the costly job does not wait for it.
func TestALaneBeforeACostlyJobDoesNotWait(t *testing.T) {
	s := onUserShelf(t, slowBucket)
	for range 5 {
		s.put("t", "u", ofType("bulk"))
	}
	s.decide()
	begun := s.now
	s.put("t", "u", ofType("mail"))
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost = 5 })
	s.after(2*time.Second, nil)
	if len(s.starts) != 6 || s.starts[5].Slot != begun+1_000_000 {
		t.Errorf("started %v, want the mail after a second", s.types())
	}
}

// What is behind a costly job is decided with it, where both may start within the lead.
func TestLanesOfAUserBehindACostlyJobThatStarts(t *testing.T) {
	s := onUserShelf(t, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: 2 * time.Millisecond, Burst: 2})})
	s.put("t", "u", ofType("bulk"))
	s.put("t", "u", ofType("bulk"))
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Cost = 2 })
	s.put("t", "u", ofType("mail"))
	s.decide()
	if types := s.types(); len(types) != 4 || types[3] != "mail" || s.starts[3].Slot != s.now+6000 {
		t.Errorf("%v have started, want the costly job after 4 ms and the mail after 6", types)
	}
}

// Nor when it is purged, or replaced by another one, while only Redis remembers its lane.
func TestACostlyJobThatIsPurgedHoldsNobody(t *testing.T) {
	lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
	for name, fact := range map[string]schedule.Fact{
		"its tenant's lanes are others": schedule.Replaced{Tenant: "t"},
		"its lane has changed":          schedule.Changed{Lane: lane},
	} {
		t.Run(name, func(t *testing.T) {
			s := onUserShelf(t, slowBucket)
			for range 5 {
				s.put("t", "u", ofType("bulk"))
			}
			s.decide()
			begun := s.now
			s.put("t", "u", func(e *envelope.Envelope) { e.Cost = 5 })
			s.put("t", "u", ofType("mail"))
			s.after(500*time.Millisecond, nil)
			if len(s.parks) == 0 {
				t.Fatal("Redis was not told of the bound of the costly job's lane")
			}
			delete(s.lanes, lane)
			s.s.Step(s.now, fact)
			s.after(2*time.Second, nil)
			if types := s.types(); len(types) != 6 || s.starts[5].Slot != begun+1_000_000 {
				t.Errorf("%v have started, want the mail a second after the others", types)
			}
		})
	}
}
