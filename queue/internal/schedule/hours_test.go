package schedule_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// opens is when the hours of the tests open; the shelf's clock begins at 02:13:20 UTC that day.
var opens = time.Date(2025, 11, 20, 8, 0, 0, 0, time.UTC).UnixMicro()

func dayHours() *rules.Set {
	return rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Hours, Hours: "08:00-21:00", Zone: "UTC"})
}

// everyJob is a limit by name that counts all jobs of a user.
type everyJob struct{ set *rules.Set }

func (e everyJob) Lane(l envelope.Lane) []schedule.Use {
	scope := envelope.ScopeOfLimit("all", []string{l.Tenant, l.User})
	return []schedule.Use{{Limit: schedule.Limit{Scope: scope, Rules: e.set}, Name: "all", Cost: 1, OfUser: true}}
}

func (e everyJob) Job(uses []schedule.Use, l envelope.Lane, _ *envelope.Envelope) ([]schedule.Use, string, error) {
	return append(uses, e.Lane(l)...), "all", nil
}
func (e everyJob) Scope(string) (schedule.Limit, bool) { return schedule.Limit{Rules: e.set}, true }
func (e everyJob) Counts() bool                        { return false }

// onNightShelf has hours of each user, and a leak of the tenant.
func onNightShelf(t *testing.T, limit bool) *shelf {
	p := &schedule.Policies{
		Hours: true, Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second})}},
	}
	if limit {
		p.Named = everyJob{dayHours()}
	} else {
		own := p.Policies["p"]
		own.User = dayHours()
		p.Policies["p"] = own
	}
	return newShelf(t, p)
}

// Lanes that wait for hours cost nothing at night: they are looked at when they come, and when the hours open. Then the leak holds.
func TestLanesWaitForHours(t *testing.T) {
	for _, limit := range []bool{false, true} {
		t.Run(fmt.Sprintf("limit by name %v", limit), func(t *testing.T) {
			s := onNightShelf(t, limit)
			const lanes = 300
			for i := range lanes {
				s.put("t", fmt.Sprint("u", i), nil)
			}
			s.decide()
			if s.rounds = 0; len(s.starts) > 0 {
				t.Fatalf("%d start at night", len(s.starts))
			}
			for s.now = s.now / 1_000_000 * 1_000_000; s.now < opens-1_000_000; s.now += 600_000_000 {
				s.decide()
			}
			if len(s.starts) > 0 || s.rounds > 80 {
				t.Errorf("%d start at night, in %d rounds", len(s.starts), s.rounds)
			}
			s.rounds = 0
			for s.now = opens; s.now < opens+4_000_000; s.now += 10_000 {
				s.decide()
			}
			if len(s.starts) != lanes {
				t.Errorf("%d have started, want %d", len(s.starts), lanes)
			}
			for i, start := range s.starts {
				if want := opens + int64(i)*10_000; start.Slot != want {
					t.Fatalf("slot %d lies %d µs behind the opening, want %d", i, start.Slot-opens, want-opens)
				}
			}
		})
	}
}

// A slot that has to lie ahead, since the worker is far away, may lie behind the closing: then nothing is claimed overnight.
func TestNothingIsClaimedOvernight(t *testing.T) {
	for _, limit := range []bool{false, true} {
		s := onNightShelf(t, limit)
		s.now, s.ahead = opens+13*3600*1_000_000-20_000, 50_000
		s.put("t", "u", nil)
		s.decide()
		if len(s.starts) > 0 {
			t.Errorf("claimed for %d s later", (s.starts[0].Slot-s.now)/1_000_000)
		}
		s.now = opens + 24*3600*1_000_000
		s.decide()
		if len(s.starts) != 1 || s.starts[0].Slot != s.now+s.ahead {
			t.Errorf("in the morning %+v", s.starts)
		}
	}
}

// What a job has waited for hours is no wait for a place.
func TestWaitsForHoursAreTold(t *testing.T) {
	s := onNightShelf(t, false)
	s.now = opens + 12*3600*1_000_000 // an hour before they close
	s.places = 0
	s.put("t", "u", nil)
	s.decide()
	s.now = opens + 24*3600*1_000_000
	s.decide()
	s.places = 10
	s.decide()
	if len(s.starts) != 1 {
		t.Fatalf("%d starts", len(s.starts))
	}
	w := s.starts[0].Wait
	if hours := func(µs int64) int64 { return µs / 3_600_000_000 }; hours(w.Rules) != 11 || hours(w.Places+1) != 1 || w.Blame.Rule != "hours 08:00-21:00 UTC" {
		t.Errorf("it has waited %d µs for rules, %d for places, and %+v is to blame", w.Rules, w.Places, w.Blame)
	}
}

// The time in which hours are closed is no lateness, unless the policy says so.
func TestLateness(t *testing.T) {
	for _, counts := range []bool{false, true} {
		s := onNightShelf(t, true)
		own := s.policies.Policies["p"]
		own.MaxWait, own.ClosedCounts = 3600*1_000_000, counts
		s.policies.Policies["p"] = own
		s = newShelf(t, s.policies)
		s.places = 0
		s.put("t", "u", nil)
		s.decide()
		for ; s.now < opens+3600*1_000_000-2_000_000; s.now += 300_000_000 {
			s.decide()
			if len(s.drops) > 0 && !counts {
				t.Fatalf("dropped %d s behind the opening", (s.now-opens)/1_000_000)
			}
		}
		if counts != (len(s.drops) == 1) {
			t.Errorf("closed time counts: %v; dropped: %d", counts, len(s.drops))
		}
		s.now = opens + 3600*1_000_000 + 1
		s.decide()
		if len(s.drops) != 1 || s.drops[0].Reason != schedule.Expired {
			t.Errorf("an hour behind the opening: %+v", s.drops)
		}
	}
}

// lettersByDay counts the jobs of type "letter" of a user, by day.
type lettersByDay struct{ everyJob }

func (e lettersByDay) Job(uses []schedule.Use, l envelope.Lane, env *envelope.Envelope) ([]schedule.Use, string, error) {
	if env.Type != "letter" {
		return uses, "", nil
	}
	return e.everyJob.Job(uses, l, env)
}

func (e lettersByDay) Lane(l envelope.Lane) []schedule.Use {
	if l.Label == "" {
		return nil
	}
	return e.everyJob.Lane(l)
}

// A costly job for which room was kept in its user's rules waits for hours by now: nothing waits with it.
func TestACostlyJobThatWaitsForHoursKeepsNoRoom(t *testing.T) {
	spacing := rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 3 * time.Second})
	s := newShelf(t, &schedule.Policies{
		Hours: true, Named: lettersByDay{everyJob{dayHours()}}, Default: "p", Policies: map[string]schedule.Policy{"p": {User: spacing}},
	})
	s.put("t", "u", nil)
	s.decide()
	s.put("t", "u", func(e *envelope.Envelope) { e.Type, e.Cost, e.Priority = "letter", 2, envelope.High })
	s.put("t", "u", nil)
	s.decide()
	s.s.Step(s.now, schedule.Refunded{Claim: s.starts[0].Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
	s.decide()
	if len(s.starts) != 2 || s.starts[1].Lane.Priority != envelope.Normal {
		t.Errorf("%d starts, want the second one when the user's slot is given back", len(s.starts))
	}
}

// More lanes wait for hours of a limit by name than limits are remembered. What the limit remembers of those users is read for many
// lanes together when they open.
func TestManyUsersOfALimitWithHours(t *testing.T) {
	for _, window := range []bool{false, true} {
		s := onNightShelf(t, true)
		if window {
			s.policies.Named = everyJob{rules.Compile(schedule.Grace*time.Microsecond,
				rules.Rule{Kind: rules.Hours, Hours: "08:00-21:00", Zone: "UTC"}, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Hour})}
			s = newShelf(t, s.policies)
		}
		const lanes, starts = 11_000, 400
		for i := range lanes {
			if s.put("t", fmt.Sprint("u", i), nil); i%1000 == 999 {
				s.decide()
			}
		}
		s.recalls = 0
		for s.now = opens; len(s.starts) < starts; s.now += 20_000 {
			s.decide()
		}
		if s.recalls > starts/20 {
			t.Errorf("a window: %v; what rules remember was read %d times for %d starts", window, s.recalls, starts)
		}
	}
}

// Hours that drop close while a job is on its way to a worker that is far away: it does not start within them.
func TestHoursThatDropCloseBeforeAFarWorkerIsReached(t *testing.T) {
	day := rules.Rule{Kind: rules.Hours, Hours: "08:00-21:00", Zone: "UTC", Drop: true}
	s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(schedule.Grace*time.Microsecond, day)})
	s.now, s.ahead = opens-11*3_600_000_000-50_000, 60_000 // 50 ms before 21:00 of the day before
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 0 || len(s.drops) != 1 || s.drops[0].Reason != schedule.Refused {
		t.Errorf("%d starts, drops %v; want none, and the job refused", len(s.starts), s.drops)
	}
}
