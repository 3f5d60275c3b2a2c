package schedule_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// The lanes of a tenant are to be read again (a purge, a revive, a sweep after new policies) while a
// commit that reads a later part of their index is under way: what it brings is not all that there is.
func TestLanesReadAgainWhileTheirIndexIs(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		s := onShelf(t, nil, schedule.Policy{})
		const users = 70 // more than are read at a time
		index := map[string]int64{}
		for i := range users {
			user := fmt.Sprint("u", 1000+i)
			e := &envelope.Envelope{Stamp: fmt.Sprintf("%013x", s.now-5_000_000+int64(i)), Cost: 1, MaxAttempts: 3, Priority: 1, Type: "x"}
			lane := envelope.Lane{Tenant: "t", User: user, Priority: 1}
			second := *e
			second.Stamp = fmt.Sprintf("%013x", s.now-4_000_000+int64(i))
			s.lanes[lane] = append(s.lanes[lane], e, &second)
			index[user] = s.now - 5_000_000 + int64(i)
		}
		find := func(needs schedule.Needs) schedule.Found {
			found := s.find(needs)
			found.Tenants = front(map[string]int64{"t": s.now - 5_000_000}, needs.Tenants)
			for i, need := range needs.Lanes {
				if found.Fronts[i] = nil; need.Priority == 1 {
					found.Fronts[i] = front(index, need.Span)
				}
			}
			return found
		}
		p := &schedule.Place{Worker: "w"}
		started, forgot := 0, false
		for range 500 {
			f := fleet{places: slices.Repeat([]*schedule.Place{p}, 1000)}
			commit := s.s.Decide(s.now, &f, 64)
			started += len(commit.Plan.Starts)
			for _, left := range commit.Plan.Left {
				s.lanes[left.Lane] = s.lanes[left.Lane][1:]
				if len(s.lanes[left.Lane]) == 0 {
					delete(index, left.Lane.User)
				}
			}
			if needs := commit.Needs; forgets && !forgot && len(needs.Lanes) > 0 && needs.Lanes[0].From > 0 {
				s.s.Step(s.now, schedule.Replaced{Tenant: "t"}) // a notice (!tenant), or the sweep: the round takes it in before it lands the commit
				forgot = true
			}
			s.s.Learn(commit, find(commit.Needs), s.now)
			s.now += 20_000
		}
		if started != 2*users {
			t.Errorf("forgets %v: %d of %d jobs have started after 10 s with nothing in their way", forgets, started, 2*users)
		}
	}
}

// A refund comes while the first jobs of the user's lane are being read: the next job has the slot.
func TestARefundWhileALaneIsRead(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour})})
	s.decide()
	s.put("t", "u", nil)
	s.put("t", "u", nil) // the scheduler knows of the first one only
	f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
	var claim envelope.Claim
	for range 10 {
		commit := s.s.Decide(s.now, &f, 10)
		for _, left := range commit.Plan.Left {
			s.lanes[left.Lane] = s.lanes[left.Lane][1:]
		}
		if starts := commit.Plan.Starts; len(starts) > 0 {
			claim = starts[0].Claim
			// The commit is under way, which brings the rest of the lane. The job's slot is given back:
			// its handler was quick, or its commit was refused.
			s.s.Step(s.now, schedule.Refunded{Claim: claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
			s.learn(commit)
			break
		}
		s.learn(commit)
	}
	s.decide()
	if claim.Stamp == "" || len(s.starts) != 1 {
		t.Errorf("claim %v; %d starts: the second job waits, and the slot of the first was given back", claim, len(s.starts))
	}
}

// A lane whose next job may not start for long is not kept in memory, once Redis knows its bound: when that comes, the
// lane is read.
func TestALaneThatWaitsForLongIsForgotten(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})})
	s.put("t", "u", nil)
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 1 {
		t.Fatalf("%d starts, want 1", len(s.starts))
	}
	s.now += time.Hour.Microseconds()
	f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
	if c := s.s.Decide(s.now, &f, 100); len(c.Plan.Starts) > 0 || c.Needs.Empty() {
		t.Errorf("%d starts without a look at Redis: the lane was kept in memory for an hour", len(c.Plan.Starts))
	} else {
		s.learn(c)
	}
	s.decide()
	if len(s.starts) != 2 {
		t.Errorf("%d starts in the end, want 2", len(s.starts))
	}
}

// A late notice of a job that has started lets its lane be looked at once more. Redis goes on to know until when the next
// job waits.
func TestALateNoticeLeavesTheBound(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})})
	s.put("t", "u", nil)
	s.put("t", "u", nil)
	s.decide()
	first := s.starts[0]
	bound := s.bounds[first.Lane]
	s.now += 1000
	s.s.Step(s.now, schedule.First{Lane: first.Lane, Head: first.Head})
	s.decide()
	if got := s.bounds[first.Lane]; got != bound || bound < s.now+time.Minute.Microseconds() {
		t.Errorf("Redis knows the bound %d µs from now, and knew %d", got-s.now, bound-s.now)
	}
}

// A new scheduler opens the notice of a costly job that left before it began. The user's other lanes do not wait for that.
func TestANoticeOfACostlyJobThatLeftBefore(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 3, Period: time.Hour})})
	gone := &envelope.Envelope{Stamp: envelope.Stamp(s.now - 2_000_000), Cost: 3, MaxAttempts: 3, Priority: envelope.High, Type: "x"}
	s.now += 2000
	s.put("t", "u", nil)
	s.decide()
	s.s.Step(s.now, schedule.First{Lane: envelope.Lane{Tenant: "t", User: "u"}, Head: schedule.Head{Entry: gone.String(), Job: gone.String(), Env: gone}})
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 2 {
		t.Errorf("%d starts, want 2: the costly job was gone", len(s.starts))
	}
}

// A thousand lanes have one bound: their hours have opened, or a sweep has lowered all of them. They are read in parts, and each has its
// turn before one has its second.
func TestLanesOfOneBoundAreReadInParts(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	const users = 1000
	s.places = 2 * users
	for i := range users {
		lane := envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: envelope.Normal}
		for k := range int64(2) {
			stamp := envelope.Stamp(s.now - 5_000_000 + k*users + int64(i))
			s.lanes[lane] = append(s.lanes[lane], &envelope.Envelope{Stamp: stamp, Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x"})
		}
		s.bounds[lane] = s.now
	}
	s.decide()
	if s.span > 64 {
		t.Errorf("%d lanes were read at a time", s.span)
	}
	if len(s.starts) != 2*users {
		t.Fatalf("%d starts, want %d", len(s.starts), 2*users)
	}
	served := map[string]int{}
	for i, start := range s.starts {
		if served[start.Lane.User]++; served[start.Lane.User] != 1+i/users {
			t.Fatalf("start %d is number %d of its lane", i, served[start.Lane.User])
		}
	}
}
