package schedule_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// leakOf is a limit by name of jobs of a type, all of which it counts together; each costs what it costs.
func leakOf(name, typ string, n int, period time.Duration) namedLimit {
	return namedLimit{name: name, typ: typ, unit: "cost", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: n, Period: period})}}
}

func onNamedShelf(t *testing.T, weights map[string]int, limits ...namedLimit) *shelf {
	p := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}, Tenants: map[string]string{}, Named: namedLimits(limits)}
	for tenant, weight := range weights {
		p.Tenants[tenant], p.Policies[tenant] = tenant, schedule.Policy{Weight: weight}
	}
	return newShelf(t, p)
}

// after decides once a millisecond for a time.
func (s *shelf) after(d time.Duration, each func()) {
	for end := s.now + d.Microseconds(); s.now < end; s.now += 1000 {
		if each != nil {
			each()
		}
		s.decide()
	}
}

// startsOf counts the starts by tenant.
func (s *shelf) startsOf() map[string]int {
	n := make(map[string]int)
	for _, start := range s.starts {
		n[start.Lane.Tenant]++
	}
	return n
}

// In the line of a limit tenants take turns by their weights, whoever has more lanes in it, and came first.
func TestTenantsTakeTurnsInALine(t *testing.T) {
	s := onNamedShelf(t, map[string]int{"heavy": 4}, leakOf("all", "", 100, time.Second))
	for i := range 300 {
		s.put("big", fmt.Sprint("u", i), nil)
	}
	s.decide()
	s.after(100*time.Millisecond, nil)
	for i := range 100 {
		s.put("small", fmt.Sprint("u", i%3), nil)
		s.put("heavy", fmt.Sprint("u", i), nil)
	}
	s.decide()
	s.starts = nil
	s.after(time.Second, nil)
	n := s.startsOf()
	if total := n["big"] + n["small"] + n["heavy"]; total < 98 || total > 103 {
		t.Errorf("%d starts in a second, want 100", total)
	}
	for tenant, want := range map[string]int{"big": 17, "small": 17, "heavy": 66} {
		if got := n[tenant]; got < want-3 || got > want+3 {
			t.Errorf("%s had %d of a hundred turns, want %d: %v", tenant, got, want, n)
		}
	}
}

// Lanes of a tenant take turns in a line, the highest priority first, then in the order in which they came.
func TestLanesTakeTurnsInALine(t *testing.T) {
	s := onNamedShelf(t, nil, leakOf("all", "", 10, time.Second))
	for _, user := range []string{"a", "b", "c"} {
		s.put("t", user, nil)
		s.put("t", user, nil)
		s.decide()
		s.now++
	}
	s.put("t", "high", func(e *envelope.Envelope) { e.Priority = envelope.High })
	s.after(time.Second, nil)
	if got, want := s.order(), "a high a b c b c"; got != want {
		t.Errorf("started %s, want %s", got, want)
	}
}

// A job that costs much is not passed over for ever by newcomers that cost little.
func TestNewcomersDoNotPassABigJob(t *testing.T) {
	bucket := namedLimit{name: "all", unit: "cost", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 5})}}
	s := onNamedShelf(t, nil, bucket)
	for i := range 5 {
		s.put("t", fmt.Sprint("first", i), nil)
	}
	s.decide()
	s.put("big", "u", func(e *envelope.Envelope) { e.Cost = 5 })
	n := 0
	s.after(2*time.Second, func() {
		if n++; n%50 == 0 {
			s.put("t", fmt.Sprint("small", n), nil)
		}
	})
	if s.startsOf()["big"] != 1 {
		t.Errorf("the big job has not started in two seconds; %d others have", len(s.starts))
	}
}

// Two limits are used up by jobs of their own. A job that is subject to both starts nevertheless.
func TestAJobOfTwoLimitsThatAreUsedUp(t *testing.T) {
	t.Parallel()
	for name, periods := range map[string][2]time.Duration{
		"alike": {time.Second, time.Second}, "one is faster": {100 * time.Millisecond, time.Second}, "the other is faster": {time.Second, 70 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			one, other := leakOf("a", "", 1, periods[0]), leakOf("b", "", 1, periods[1])
			one.key, other.key = "domain", "domain" // a job has the keys that it is counted by
			both := pairOf{one, other}
			p := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}, Named: both}
			s := newShelf(t, p)
			for i := range 100 {
				s.put("as", fmt.Sprint("a", i), func(e *envelope.Envelope) { e.Type = "a" })
			}
			s.decide()
			s.now += periods[0].Microseconds() / 2 // the limits let jobs start at different instants
			for i := range 100 {
				s.put("bs", fmt.Sprint("b", i), func(e *envelope.Envelope) { e.Type = "b" })
			}
			s.decide()
			for range 3 {
				s.put("both", "u", func(e *envelope.Envelope) { e.Type = "ab" })
			}
			s.after(15*time.Second, nil)
			n := s.startsOf()
			if n["both"] != 3 {
				t.Errorf("%d of 3 jobs of both limits have started in 15 s: %v", n["both"], n)
			}
			if all := n["as"] + n["both"]; all < min(103, int(15*time.Second/periods[0])/2) {
				t.Errorf("%d starts by the first limit: %v", all, n)
			}
			if all := n["bs"] + n["both"]; all < min(103, int(15*time.Second/periods[1])/2) {
				t.Errorf("%d starts by the second limit: %v", all, n)
			}
		})
	}
}

// A lane that waits for a slow limit does not keep a fast one waiting: others start by that at its pace.
func TestASlowLimitDoesNotSlowAFastOne(t *testing.T) {
	fast, slow := leakOf("a", "", 1, 100*time.Millisecond), leakOf("b", "", 1, 2*time.Second)
	s := newShelf(t, &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}, Named: pairOf{fast, slow}})
	for i := range 100 {
		s.put("as", fmt.Sprint("a", i), func(e *envelope.Envelope) { e.Type = "a" })
	}
	for i := range 10 {
		s.put("both", fmt.Sprint("u", i), func(e *envelope.Envelope) { e.Type = "ab" })
	}
	s.after(6*time.Second, nil)
	n := s.startsOf()
	if all := n["as"] + n["both"]; all < 57 || n["both"] < 3 {
		t.Errorf("%d starts in 6 s by a limit of 10 a second, and %d by one of 1 in 2 seconds: %v", all, n["both"], n)
	}
}

// A pairOf counts jobs whose type names a limit.
type pairOf [2]namedLimit

func (p pairOf) Job(uses []schedule.Use, _ envelope.Lane, env *envelope.Envelope) (all []schedule.Use, label string, invalid error) {
	for _, n := range p {
		if strings.Contains(env.Type, n.name) {
			uses = append(uses, n.use("l:"+n.name, env.Cost))
		}
	}
	return uses, env.Type, nil
}

func (p pairOf) Lane(lane envelope.Lane) []schedule.Use {
	uses, _, _ := p.Job(nil, lane, &envelope.Envelope{Type: lane.Label})
	return uses
}

func (p pairOf) Scope(scope string) (schedule.Limit, bool) {
	for _, n := range p {
		if scope == "l:"+n.name {
			return schedule.Limit{Scope: scope, Rules: n.set}, true
		}
	}
	return schedule.Limit{}, false
}
func (p pairOf) Counts() bool { return false }

// A job was offered before there was a limit that counts it. When it runs, it counts for that limit under the next leader, too,
// which knows of it by its claim alone.
func TestAClaimCountsForALimitThatCameAfterItsOffer(t *testing.T) {
	s := newShelf(t, &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}})
	s.put("t", "u", nil)
	s.put("t", "u", nil)
	one := namedLimit{name: "one", unit: "jobs", bounds: bounds{concurrency: schedule.Concurrency{Jobs: 1}}}
	s.policies = &schedule.Policies{Version: 1, Default: "p", Policies: s.policies.Policies, Named: namedLimits{one}}
	s.s.Step(s.now, schedule.Settings{Policies: s.policies})
	s.decide()
	if len(s.starts) != 1 {
		t.Fatalf("%d starts", len(s.starts))
	}
	first := s.starts[0]
	s.s = schedule.New(schedule.Settings{Policies: s.policies}, "")
	s.s.Step(s.now, schedule.Running{{Worker: "w", Claim: first.Claim}})
	s.decide()
	if len(s.starts) != 1 {
		t.Errorf("%d run at once, and one may", len(s.starts))
	}
	s.s.Step(s.now, schedule.Ended{first.Claim})
	s.decide()
	if len(s.starts) != 2 {
		t.Errorf("%d starts after the end of the first", len(s.starts))
	}
}

// A limit lets a cheap job start, and not the costly one behind it. The pause of the cheap job's user ends within the lead: it
// gets a slot there, and is not sent back to the line of the limit again and again.
func TestALaneThatIsDueWithinTheLeadDoesNotGoRound(t *testing.T) {
	limit := namedLimit{name: "n", unit: "cost", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Second, Burst: 3})}}
	s := onNamedShelf(t, nil, limit)
	s.put("t", "first", func(e *envelope.Envelope) { e.Cost = 3 })
	s.decide()
	s.put("t", "cheap", nil)
	s.put("t", "costly", func(e *envelope.Envelope) { e.Cost = 3 })
	s.decide()
	if len(s.starts) != 1 {
		t.Fatalf("%d starts", len(s.starts))
	}
	s.now += 1_000_000
	until := s.now + schedule.Lead/2
	s.s.Step(s.now, schedule.Paused{Scope: envelope.UserScope("t", "cheap"), Until: until})
	s.decide()
	if len(s.starts) != 2 || s.starts[1].Slot != until {
		t.Errorf("%d starts, want a second one when the pause ends", len(s.starts))
	}
}

// The first jobs of lanes are found with the index of a tenant, before the notices of them are opened. Lanes whose jobs have
// started by then wait for nothing.
func TestNoticesOfJobsThatHaveStarted(t *testing.T) {
	s := onNamedShelf(t, nil, namedLimit{name: "four", unit: "jobs", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 4, Period: time.Hour})}})
	var notices []schedule.Fact
	for i := range 7 {
		env := &envelope.Envelope{Stamp: envelope.Stamp(s.now + int64(i)), Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x"}
		lane := envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: envelope.Normal, Label: "l/four"}
		s.lanes[lane] = []*envelope.Envelope{env}
		notices = append(notices, schedule.First{Lane: lane, Head: schedule.Head{Entry: env.String(), Job: env.String(), Env: env}})
	}
	s.s.Step(s.now, schedule.Changed{Lane: envelope.Lane{Tenant: "t", User: "v", Priority: envelope.Normal}}) // the tenant comes into memory
	s.decide()
	if len(s.starts) != 4 {
		t.Fatalf("%d starts, want 4", len(s.starts))
	}
	s.s.Step(s.now+1000, notices...)
	s.decide()
	if n := s.s.InLine()["four"]; n != 3 {
		t.Fatalf("%d lanes wait for the limit, want the 3 with jobs", n)
	}
	s.now += 2 * time.Hour.Microseconds()
	s.decide()
	if len(s.starts) != 7 {
		t.Errorf("%d starts, want 7", len(s.starts))
	}
}

// A limit that binds for some microseconds makes no lane wait in its line: its first jobs are read once. Nor are those of a
// lane that waits there for some time.
func TestALooseLimitCostsNoReading(t *testing.T) {
	for _, waits := range []bool{false, true} {
		t.Run(fmt.Sprint("waits: ", waits), func(t *testing.T) {
			s := onNamedShelf(t, nil, leakOf("loose", "", 200_000, time.Second))
			for _, user := range []string{"ann", "bob"} {
				for range 10 {
					s.put("t", user, nil)
				}
			}
			if waits {
				s.s.Step(s.now, schedule.Paused{Scope: "l:loose", Until: s.now + time.Second.Microseconds()})
				s.decide()
				s.now += time.Second.Microseconds()
			}
			s.read = 0
			s.decide()
			if len(s.starts) != 20 || s.read > 4 {
				t.Errorf("%d of 20 started; first jobs were read %d times, want no more than twice for each lane", len(s.starts), s.read)
			}
		})
	}
}

// Jobs that were late again and again get slots that lie ahead: at one instant, and not each behind the one before, with
// everybody else who is counted by a leak that they share.
func TestLateJobsGoAheadTogether(t *testing.T) {
	s := onNamedShelf(t, nil, leakOf("all", "", 200_000, time.Second))
	const late = 50_000
	for i := range 600 {
		s.put(fmt.Sprint("t", i%20), fmt.Sprint("u", i), func(e *envelope.Envelope) {
			if i%20 == 0 {
				e.Late = late
			}
		})
	}
	begin := s.now
	s.after(200*time.Millisecond, nil)
	last := int64(0)
	for _, start := range s.starts {
		last = max(last, start.Slot-begin)
	}
	if len(s.starts) != 600 || last > 2*late {
		t.Errorf("%d of 600 have started, the last after %d µs; want all within %d", len(s.starts), last, 2*late)
	}
}
