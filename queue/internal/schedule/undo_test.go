package schedule_test

import (
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A start is refused, since its job is gone. The user's other lane was judged by that start, and does
// not wait for what has not happened.
func TestAnotherLaneAfterARefusedStart(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})})
	s.decide()
	s.put("t", "u", nil)
	s.put("t", "u", func(e *envelope.Envelope) { e.Priority = envelope.Low })
	var refused []schedule.Commit
	for range 10 {
		f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
		commit := s.s.Decide(s.now, &f, 100)
		if len(commit.Plan.Starts) > 0 || len(refused) > 0 {
			refused = append(refused, commit)
			continue
		}
		s.learn(commit)
	}
	if len(refused) == 0 || refused[0].Plan.Starts[0].Lane.Priority != envelope.Normal {
		t.Fatalf("%v was decided; want the start of the job of normal priority", refused)
	}
	delete(s.lanes, refused[0].Plan.Starts[0].Lane)
	s.s.Undo(refused, s.now)
	s.decide()
	if len(s.starts) != 1 || s.starts[0].Lane.Priority != envelope.Low {
		t.Errorf("%v have started; want the job of low priority", s.starts)
	}
}

// A job waits behind the slot of one that was to start far away, under a rule that drops. That one does not start, and its slot is given
// back: the other one waits for it no longer.
func TestARefundUnderARuleThatDrops(t *testing.T) {
	two := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Hour, Drop: true})
	for name, test := range map[string]struct {
		shelf  *shelf
		second string // tenant of the job that waits
	}{
		"of a tenant":        {onShelf(t, nil, schedule.Policy{Tenant: two}), "t"},
		"of a limit by name": {onNamedShelf(t, nil, namedLimit{name: "all", unit: "cost", bounds: bounds{set: two}}), "other"},
	} {
		t.Run(name, func(t *testing.T) { refundUnderARuleThatDrops(t, test.shelf, test.second) })
	}
}

func refundUnderARuleThatDrops(t *testing.T, s *shelf, second string) {
	decide := func(ahead int64) (starts []schedule.Start) {
		far, place := &schedule.Place{Worker: "far", Ahead: 100_000}, &schedule.Place{Worker: "w", Ahead: ahead}
		for range 10 {
			commit := s.s.Decide(s.now, &fleet{places: []*schedule.Place{place, place}, all: []*schedule.Place{far}}, 100)
			if starts = append(starts, commit.Plan.Starts...); len(commit.Plan.Drops) > 0 {
				t.Errorf("%v are dropped", commit.Plan.Drops)
			}
			for _, start := range commit.Plan.Starts {
				delete(s.lanes, start.Lane)
			}
			s.learn(commit)
		}
		return starts
	}
	s.put("t", "u", nil)
	first := decide(100_000)
	s.put(second, "v", nil)
	if then := decide(0); len(first) != 1 || first[0].Slot != s.now+100_000 || len(then) != 0 {
		t.Fatalf("%v and then %v have started; want one that lies ahead, and one that waits behind it", first, then)
	}
	s.s.Step(s.now, schedule.Refunded{Claim: first[0].Claim, Env: first[0].Head.Env, All: true})
	if starts := decide(0); len(starts) != 1 || starts[0].Lane.User != "v" || starts[0].Slot != s.now {
		t.Errorf("%v have started; want the job of v, now", starts)
	}
}

// What was read of a lane before a job left it brings that job once more. The commit that starts it
// again is refused; the job runs all the same, and counts.
func TestAStartThatIsDecidedTwiceCountsOnce(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.decide()
	s.put("t", "u", nil)
	again := func() schedule.Commit { // with what Redis held before the first start
		var commit schedule.Commit
		for range 10 {
			f := fleet{places: slices.Repeat([]*schedule.Place{{Worker: "w"}}, 100)}
			commit = s.s.Decide(s.now, &f, 100)
			s.learn(commit)
			if len(commit.Plan.Starts) > 0 {
				break
			}
		}
		return commit
	}
	first := again()
	second := again()
	if len(first.Plan.Starts) != 1 || len(second.Plan.Starts) != 1 || first.Plan.Starts[0].Claim != second.Plan.Starts[0].Claim || s.s.Held("w") != 1 {
		t.Fatalf("%v and %v start, and %d jobs are held", first.Plan.Starts, second.Plan.Starts, s.s.Held("w"))
	}
	s.s.Undo([]schedule.Commit{second}, s.now)
	if n := s.s.Held("w"); n != 1 {
		t.Errorf("%d jobs are held after the second start was refused, want 1", n)
	}
}

// A claim that is taken back counts no more. It counts again if the commit that was to end it is refused.
func TestAClaimThatIsTakenBack(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{UserConcurrency: schedule.Concurrency{Jobs: 1}})
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 1 || s.s.Held("w") != 1 {
		t.Fatalf("%d starts, %d held", len(s.starts), s.s.Held("w"))
	}
	if frees := s.s.Step(s.now, schedule.TakenBack{Claim: s.starts[0].Claim}); !frees || s.s.Held("w") != 0 {
		t.Errorf("frees a place: %v; %d held", frees, s.s.Held("w"))
	}
	refused := s.s.Amend(s.now)
	s.s.Undo([]schedule.Commit{refused}, s.now)
	if n := s.s.Held("w"); n != 1 {
		t.Errorf("%d held after the commit was refused, want 1", n)
	}
}
