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

// turns hands out a place far away and one nearby by turns.
type turns struct{ n int }

func (t *turns) Next() *schedule.Place {
	p := &schedule.Place{Worker: "near"}
	if t.n%2 == 0 {
		p.Worker, p.Ahead = "far", 10_000
	}
	t.n++
	return p
}

func (t *turns) Free(*schedule.Place) { t.n-- }
func (t *turns) Reach() int64         { return 10_000 }

// TestNoOvertaking gives the jobs of a lane to workers far and near by turns: none gets an
// earlier slot than the one before it.
func TestNoOvertaking(t *testing.T) {
	c := newCrowd(&schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}}, map[string]int{"t u": 1})
	var starts []schedule.Start
	places := &turns{}
	for range 20 {
		commit := c.s.Decide(c.now, places, 100)
		starts = append(starts, commit.Plan.Starts...)
		c.s.Learn(commit, c.find(commit.Needs), c.now)
	}
	if len(starts) < 10 {
		t.Fatalf("%d starts", len(starts))
	}
	for i := 1; i < len(starts); i++ {
		if starts[i].Slot < starts[i-1].Slot {
			t.Errorf("start %d at %s has a slot %d µs before that of the one before it", i, starts[i].Worker, starts[i-1].Slot-starts[i].Slot)
		}
	}
}

// Users whose first jobs come at the same instant start in the order in which they came.
func TestUsersOfOneInstant(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.put("t", "first", nil)
	s.decide() // the leader knows by now that nobody else waits
	want := []string{"first"}
	for i := range 100 {
		user := fmt.Sprint("u", i*37%100)
		want = append(want, user)
		s.put("t", user, nil)
	}
	s.decide()
	var got []string
	for _, start := range s.starts {
		got = append(got, start.Lane.User)
	}
	if !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// Lanes of which the leader is told together start in the order of their offers, also where one of
// them is read again.
func TestLanesToldOfTogether(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second})})
	s.put("t", "first", nil)
	s.decide()
	want := []string{"a", "b", "c"}
	for _, user := range want {
		s.put("t", user, nil)
	}
	s.s.Step(s.now, schedule.Changed{Lane: envelope.Lane{Tenant: "t", User: "a", Priority: envelope.Normal}})
	s.decide()
	var got []string
	for range want {
		s.now += 1_000_000
		s.decide()
		got = append(got, s.starts[len(s.starts)-1].Lane.User)
	}
	if !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// A notice about a job that had left its lane before the notice was read keeps nobody
// waiting: what was read since knows better, and what is being read will.
func TestALateNotice(t *testing.T) {
	for _, read := range []bool{false, true} {
		s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(0, rules.Rule{Kind: rules.FixedWindow, Limit: 3, Period: time.Hour})})
		s.put("t", "u", nil)
		s.decide()
		gone := &envelope.Envelope{Stamp: fmt.Sprintf("%013x", s.now), Cost: 3, MaxAttempts: 3, Priority: envelope.High, Type: "x"}
		s.now += 1000
		s.s.Step(s.now, schedule.Changed{Lane: envelope.Lane{Tenant: "t", User: "v", Priority: envelope.Normal}})
		if read {
			s.decide()
		}
		s.s.Step(s.now, schedule.First{Lane: envelope.Lane{Tenant: "t", User: "v", Priority: envelope.High}, Head: schedule.Head{Entry: gone.String(), Job: gone.String(), Env: gone}})
		s.put("t", "w", nil)
		s.decide()
		if len(s.starts) != 2 {
			t.Errorf("read before: %v; %d starts, want 2: nothing waits for a job that is gone", read, len(s.starts))
		}
	}
}

// A job that came late to its worker, and comes back, has its next slot so far ahead.
func TestALateJobGoesFurther(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.put("t", "u", func(e *envelope.Envelope) { e.Late = 30_000 })
	s.put("t", "v", nil)
	s.decide()
	if len(s.starts) != 2 {
		t.Fatalf("%d starts", len(s.starts))
	}
	for _, start := range s.starts {
		if want := s.now + start.Head.Env.Late; start.Slot != want {
			t.Errorf("the slot of %s is %d µs ahead, want %d", start.Lane.User, start.Slot-s.now, want-s.now)
		}
	}
}

// A lane that waits for long is known to Redis with its bound, and to nobody else: whether its
// jobs were found in its index, or a notice told of the first of them, or of one that came later.
// The end of a pause is no such bound: the pause may end before.
func TestALaneThatWaitsIsParked(t *testing.T) {
	for name, test := range map[string]struct {
		offer func(s *shelf)
		want  bool
	}{
		"found in its index": {func(s *shelf) { s.put("t", "u", nil); s.put("t", "u", nil) }, true},
		"told by a notice":   {func(s *shelf) { s.decide(); s.put("t", "u", nil); s.put("t", "u", nil) }, true},
		"one by one":         {func(s *shelf) { s.put("t", "u", nil); s.decide(); s.put("t", "u", nil) }, true},
		"paused": {func(s *shelf) {
			s.put("t", "u", nil)
			s.s.Step(s.now, schedule.Paused{Scope: envelope.UserScope("t", "u"), Until: s.now + time.Hour.Microseconds()})
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour})})
			test.offer(s)
			s.decide()
			if parked := len(s.parks) == 1 && s.parks[0].At >= s.now+time.Hour.Microseconds()-1_000_000; parked != test.want {
				t.Errorf("%d starts, parked: %+v", len(s.starts), s.parks)
			}
		})
	}
}

// A lane whose slot was given back while its bound was on its way to Redis starts its next job
// at once.
func TestAParkedLaneGetsItsSlotBack(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour})})
	s.put("t", "u", nil)
	s.put("t", "u", nil)
	f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
	for range 10 {
		c := s.s.Decide(s.now, &f, 100)
		s.starts = append(s.starts, c.Plan.Starts...)
		for _, left := range c.Plan.Left {
			s.lanes[left.Lane] = s.lanes[left.Lane][1:]
		}
		if len(c.Parks) > 0 { // its reply is on its way
			s.s.Step(s.now, schedule.Refunded{Claim: s.starts[0].Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
		}
		s.learn(c)
	}
	if len(s.parks) == 0 || len(s.starts) != 2 {
		t.Errorf("%d lanes parked, %d starts", len(s.parks), len(s.starts))
	}
}

// Redis knows the bound of a costly job. When that job is cancelled, the cheap one behind it is due before: the next leader
// finds it in time.
func TestAParkedLaneWhoseFirstJobIsGone(t *testing.T) {
	policies := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {
		User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Minute}),
	}}}
	s := newShelf(t, policies)
	lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
	for range 2 {
		s.put("t", "u", func(e *envelope.Envelope) { e.Priority = envelope.High })
		s.decide()
		s.now += 10_000_000
	}
	s.put("t", "u", func(e *envelope.Envelope) { e.ID, e.Cost = "costly", 2 })
	s.put("t", "u", nil)
	s.decide()
	if in := s.bounds[lane] - s.now; len(s.starts) != 2 || in != 50_000_000 {
		t.Fatalf("%d starts, and the costly job is due in %d µs", len(s.starts), in)
	}
	s.now += 39_500_000
	s.s.Step(s.now, schedule.IDCancelled{ID: "costly"})
	s.s.Step(s.now, schedule.Changed{Lane: lane})
	s.decide()
	if len(s.drops) != 1 {
		t.Fatalf("drops: %+v", s.drops)
	}
	s.s = schedule.New(schedule.Settings{Policies: policies}, "")
	s.now += 500_000
	s.decide()
	if len(s.starts) != 3 {
		t.Errorf("%d starts, and Redis says that the lane is due in %d µs", len(s.starts), s.bounds[lane]-s.now)
	}
}

// A user whose job runs is remembered with it, however many others come and go: a limit of one at
// a time holds.
func TestARunningJobIsNotForgotten(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{UserConcurrency: schedule.Concurrency{Jobs: 1}})
	s.put("t", "busy", nil)
	s.decide()
	s.places = 1_000_000
	for from := range 11 {
		for i := range 1000 {
			s.put("t", fmt.Sprint("u", from*1000+i), nil)
		}
		started := len(s.starts)
		s.decide()
		for _, start := range s.starts[started:] {
			s.s.Step(s.now, schedule.Ended{start.Claim})
		}
	}
	started := len(s.starts)
	s.put("t", "busy", nil)
	s.decide()
	if started != 11_001 || len(s.starts) != started {
		t.Errorf("%d starts, then %d of a user whose only place is taken", started, len(s.starts)-started)
	}
}

// A user's second job, which comes while its lane is read, starts after the first jobs of others that were
// offered before it, also where the leader hears of these later.
func TestASecondJobWaitsForTheFirstOfOthers(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second})})
	s.decide()
	s.put("t", "many", nil)
	at, f := s.now, fleet{}
	f.places = slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)
	var last schedule.Commit
	for len(s.starts) == 0 {
		c := s.s.Decide(s.now, &f, 1)
		if s.starts = append(s.starts, c.Plan.Starts...); len(s.starts) > 0 {
			s.lanes[c.Plan.Left[0].Lane] = nil
			last = c
			break
		}
		s.learn(c)
	}
	stamped := func(at int64) func(*envelope.Envelope) {
		return func(e *envelope.Envelope) { e.Stamp = fmt.Sprintf("%013x", at) }
	}
	s.now += 200
	s.put("t", "many", stamped(at+100))
	s.learn(last) // the lane is read
	s.decide()
	s.now += 1000
	want := []string{"many"}
	for i := range int64(3) {
		user := fmt.Sprint("u", i)
		s.put("t", user, stamped(at+1+i))
		want = append(want, user)
	}
	want = append(want, "many")
	for range 5 {
		s.now += 1_000_000
		s.decide()
	}
	if got := strings.Fields(s.order()); !slices.Equal(got, want) {
		t.Errorf("started %v, want %v", got, want)
	}
}

// A job that comes back without having started is next again: lanes that stood behind it do not go first.
func TestAReturnedJobHasItsTurn(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second})})
	for _, user := range []string{"u", "u", "v", "v"} {
		s.put("t", user, nil)
	}
	s.decide()
	s.now += 1_000_000
	s.decide()
	if got := s.order(); got != "u v" {
		t.Fatalf("started %s", got)
	}
	s.now += 500_000
	s.putBack(s.starts[1])
	for range 3 {
		s.now += 1_000_000
		s.decide()
	}
	if got := s.order(); got != "u v v u v" {
		t.Errorf("started %s, of which the first v has come back", got)
	}
}

// A job that comes back without having started does not count as one of its tenant's turns.
func TestAReturnedJobIsNoTurnOfItsTenant(t *testing.T) {
	s := onShelf(t, rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second}), schedule.Policy{})
	for i := range 100 {
		s.put("late", fmt.Sprint("u", i), nil)
		s.put("good", fmt.Sprint("u", i), nil)
	}
	started, returned := map[string]int{}, map[string]bool{}
	for range 120 {
		s.now += 1_000_000
		before := len(s.starts)
		s.decide()
		for _, start := range s.starts[before:] {
			if stamp := start.Head.Env.Stamp; start.Lane.Tenant == "late" && !returned[stamp] {
				returned[stamp] = true
				s.putBack(start)
				continue
			}
			started[start.Lane.Tenant]++
		}
	}
	if late, good := started["late"], started["good"]; late < 35 || late < good-5 || late > good+5 {
		t.Errorf("%d jobs of the tenant have started whose jobs come back once, and %d of the other", late, good)
	}
}

// putBack puts the job of a start back to the front of its lane, unstarted.
func (s *shelf) putBack(start schedule.Start) {
	s.lanes[start.Lane] = append([]*envelope.Envelope{start.Head.Env}, s.lanes[start.Lane]...)
	s.s.Step(s.now, schedule.Refunded{Claim: start.Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
	s.s.Step(s.now, schedule.Returned{Lane: start.Lane, Since: start.Head.Env.Since()})
	s.learn(s.s.Amend(s.now))
}
