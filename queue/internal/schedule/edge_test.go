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

// A shelf is a scheduler with the lanes that it decides about.
type shelf struct {
	t        *testing.T
	policies *schedule.Policies
	s        *schedule.Scheduler
	now      int64
	lanes    map[envelope.Lane][]*envelope.Envelope
	n        int
	starts   []schedule.Start
	drops    []schedule.Drop
	ahead    int64 // how far away the worker is, µs
	places   int
	rounds   int
	queue    string // what the queue's rules remember
	read     int    // how many times first jobs of lanes were read
	heads    int    // of how many lanes the first jobs were read at a time, at most
	span     int    // how many members of an index of lanes were asked for at a time, at most
	recalls  int    // how many times what rules remember was read
	bounds   map[envelope.Lane]int64
	parks    []schedule.Park
}

func newShelf(t *testing.T, p *schedule.Policies) *shelf {
	s := &shelf{
		t: t, policies: p, s: schedule.New(schedule.Settings{Policies: p}, ""), now: 1_763_600_000_000_000, lanes: map[envelope.Lane][]*envelope.Envelope{}, bounds: map[envelope.Lane]int64{}, places: 1000,
	}
	s.s.Step(s.now - 1_000_000) // it has been there for a second
	return s
}

// onShelf is a policy for everybody, and rules of the queue.
func onShelf(t *testing.T, queue *rules.Set, policy schedule.Policy) *shelf {
	return newShelf(t, &schedule.Policies{Queue: queue, Default: "p", Policies: map[string]schedule.Policy{"p": policy}})
}

// put puts a job at the end of a lane, as an offer does.
func (s *shelf) put(tenant, user string, change func(*envelope.Envelope)) {
	s.n++
	e := &envelope.Envelope{Stamp: fmt.Sprintf("%013x", s.now+int64(s.n)-1000), Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x"}
	if change != nil {
		change(e)
	}
	lane := envelope.Lane{Tenant: tenant, User: user, Priority: e.Priority}
	lane.Label = s.policies.Label(lane, e)
	if s.lanes[lane] = append(s.lanes[lane], e); len(s.lanes[lane]) == 1 {
		s.s.Step(s.now, schedule.First{Lane: lane, Head: schedule.Head{Entry: e.String(), Job: e.String(), Env: e}})
	}
}

// find returns what the scheduler needs.
func (s *shelf) find(needs schedule.Needs) (found schedule.Found) {
	s.heads = max(s.heads, len(needs.Heads))
	s.read += len(needs.Heads)
	tenants, users := map[string]int64{}, map[string]map[string]int64{}
	for lane, jobs := range s.lanes {
		if len(jobs) > 0 && needs.Tenants.N+len(needs.Lanes) > 0 {
			if users[index(lane)] == nil {
				users[index(lane)] = map[string]int64{}
			}
			tenants[lane.Tenant], users[index(lane)][lane.Member()] = 1, max(1, s.bounds[lane])
		}
	}
	found.Tenants = front(tenants, needs.Tenants)
	if len(needs.States) > 0 {
		s.recalls++
	}
	for _, need := range needs.Lanes {
		s.span = max(s.span, need.N)
		found.Fronts = append(found.Fronts, front(users[fmt.Sprint(need.Tenant, " ", need.Priority)], need.Span))
	}
	for _, lane := range needs.Heads {
		var heads []schedule.Head
		for _, e := range s.lanes[lane][:min(10, len(s.lanes[lane]))] {
			heads = append(heads, schedule.Head{Entry: e.String(), Job: e.String(), Env: e})
		}
		found.Heads = append(found.Heads, heads)
	}
	found.States, found.Waiting = make([]string, len(needs.States)), make([]int64, len(needs.States))
	return found
}

// learn writes a commit, and tells the scheduler what was read with it.
func (s *shelf) learn(c schedule.Commit) {
	for _, st := range c.States {
		if st.Scope == envelope.QueueScope {
			s.queue = st.Text
		}
	}
	for _, p := range c.Parks {
		s.bounds[p.Lane] = p.At
	}
	s.parks = append(s.parks, c.Parks...)
	s.s.Learn(c, s.find(c.Needs), s.now)
}

// decide decides all that there is to decide now.
func (s *shelf) decide() {
	s.t.Helper()
	var f fleet
	p := &schedule.Place{Worker: "w", Ahead: s.ahead}
	f.places = slices.Repeat([]*schedule.Place{p}, s.places)
	for range 2000 {
		s.rounds++
		c := s.s.Decide(s.now, &f, 100)
		s.starts, s.drops = append(s.starts, c.Plan.Starts...), append(s.drops, c.Plan.Drops...)
		for _, left := range c.Plan.Left {
			s.lanes[left.Lane] = s.lanes[left.Lane][1:]
		}
		s.learn(c)
		if c.Needs.Empty() && (c.Plan.Hungry || c.Plan.Next > s.now) {
			return
		}
	}
	s.t.Fatal("it decides without end")
}

// order are the users whose jobs have started, in that order.
func (s *shelf) order() string {
	var users []string
	for _, start := range s.starts {
		users = append(users, start.Lane.User)
	}
	return strings.Join(users, " ")
}

// The latest start is an instant at which a job may start; the end of a task is none.
func TestDeadlinesToTheMicrosecond(t *testing.T) {
	leak := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second})
	for name, test := range map[string]struct {
		change func(e *envelope.Envelope, slot int64)
		starts int
	}{
		"the slot is the latest start":  {func(e *envelope.Envelope, slot int64) { e.Deadline = slot }, 2},
		"the slot is after it":          {func(e *envelope.Envelope, slot int64) { e.Deadline = slot - 1 }, 1},
		"the slot is the task's end":    {func(e *envelope.Envelope, slot int64) { e.Until = slot }, 1},
		"the slot is before the end":    {func(e *envelope.Envelope, slot int64) { e.Until = slot + 1 }, 2},
		"the slot is far from both":     {func(e *envelope.Envelope, slot int64) { e.Deadline, e.Until = slot+1e6, slot+1e6 }, 2},
		"the slot is far behind either": {func(e *envelope.Envelope, slot int64) { e.Deadline, e.Until = slot-1e5, slot-1e5 }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := onShelf(t, nil, schedule.Policy{Tenant: leak})
			s.put("t", "first", nil)
			s.decide()
			slot := s.starts[0].Slot + 1_000_000
			s.put("t", "second", func(e *envelope.Envelope) { test.change(e, slot) })
			s.decide()
			s.now = slot - 1000
			s.decide()
			if len(s.starts) != test.starts || len(s.drops) != 2-test.starts {
				t.Errorf("%d starts, %d drops", len(s.starts), len(s.drops))
			}
		})
	}
}

// Of two lanes that are due, that of the higher priority comes first, also if its job has
// come this very instant.
func TestPriorityAtOneInstant(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.places = 0
	s.put("t", "low", func(e *envelope.Envelope) { e.Priority = 2 })
	s.decide()
	s.now += 100
	s.put("t", "high", func(e *envelope.Envelope) { e.Priority = 0 })
	s.places = 10
	s.decide()
	if got := s.order(); got != "high low" {
		t.Errorf("started: %s", got)
	}
}

// A new leader reads the first jobs of many lanes in portions: Redis and the tenants whose jobs
// are read first do not wait for all.
func TestManyLanesAreReadInPortions(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	const tenants, users = 40, 60
	for i := range tenants * users {
		s.put(fmt.Sprint("t", i%tenants), fmt.Sprint("u", i), nil)
	}
	s.s, s.places = schedule.New(schedule.Settings{Policies: &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}}}, ""), 100_000
	s.now += 1_000_000
	s.decide()
	if len(s.starts) != tenants*users || s.heads > 1500 {
		t.Errorf("%d starts, %d lanes read at a time", len(s.starts), s.heads)
	}
}

// Who has had nothing waiting for long gets its turn, and no more than that.
func TestAnIdleTenantSavesNothingUp(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.put("idle", "idle", nil)
	s.decide()
	for range 200 {
		s.put("busy", "busy", nil)
	}
	s.places = 1
	for range 100 {
		s.decide()
		s.now += 1000
	}
	s.starts = nil
	for range 50 {
		s.put("idle", "idle", nil)
	}
	for range 20 {
		s.decide()
		s.now += 1000
	}
	if n := strings.Count(s.order(), "idle"); n < 9 || n > 11 {
		t.Errorf("%d of 20 starts are of the tenant that was idle: %s", n, s.order())
	}
}

// A costly job that waits for a rule of the queue is not overtaken for ever by tenants that
// come with a small job each, nor one that waits for its tenant's by the tenant's own.
func TestNewcomersDoNotStarveACostlyJob(t *testing.T) {
	window := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: time.Second})
	for name, test := range map[string]struct {
		shelf  *shelf
		tenant string // of small jobs
	}{
		"the queue's rule":  {onShelf(t, window, schedule.Policy{}), "new-%d"},
		"the tenant's rule": {onShelf(t, nil, schedule.Policy{Tenant: window}), "big"},
	} {
		t.Run(name, func(t *testing.T) {
			s := test.shelf
			for i := range 500 { // 12.5 a second
				if i == 50 {
					s.put("big", "big", func(e *envelope.Envelope) { e.Cost = 8 })
				}
				tenant := test.tenant
				if strings.Contains(tenant, "%") {
					tenant = fmt.Sprintf(tenant, i)
				}
				s.put(tenant, fmt.Sprint("small-", i), nil)
				for range 8 {
					s.decide()
					s.now += 10_000
				}
			}
			if at := slices.IndexFunc(s.starts, func(x schedule.Start) bool { return x.Lane.User == "big" }); at < 0 || at > 100 {
				t.Errorf("the costly job is start %d of %d", at, len(s.starts))
			}
		})
	}
}

// The room for a costly job that waits for a rule of the queue is held: others come later,
// also those whose turn it would be.
func TestRoomIsHeldForACostlyJob(t *testing.T) {
	s := onShelf(t, rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 10, Period: time.Second}), schedule.Policy{})
	for range 2 {
		s.put("big", "big", func(e *envelope.Envelope) { e.Cost = 8 })
	}
	s.decide()
	for i := range 100 {
		s.put(fmt.Sprint("new-", i), "small", nil)
	}
	for range 300 {
		s.decide()
		s.now += 10_000
	}
	if got := s.order(); !strings.HasPrefix(got, "big big small small small") || len(s.starts) < 20 {
		t.Errorf("%d started: %s", len(s.starts), got)
	}
}

// A rule that counts what it refuses refuses for longer.
func TestRefusedJobsCount(t *testing.T) {
	for counts, want := range map[bool]int{false: 2, true: 1} {
		s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{
			Kind: rules.Window, Limit: 1, Period: time.Second, Drop: true, Counts: counts,
		})})
		for range 3 {
			s.put("t", "u", nil)
			s.decide()
			s.now += 600_000
		}
		if len(s.starts) != want {
			t.Errorf("refused jobs count: %v; %d starts, want %d", counts, len(s.starts), want)
		}
	}
}

// A notice that is read again changes nothing.
func TestARepeatedNotice(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.places = 0
	s.put("t", "u", nil)
	s.decide()
	for lane, jobs := range s.lanes {
		s.s.Step(s.now, schedule.First{Lane: lane, Head: schedule.Head{Entry: jobs[0].String(), Job: jobs[0].String(), Env: jobs[0]}})
	}
	s.places = 10
	s.decide()
	if len(s.starts) != 1 {
		t.Errorf("%d starts of one job", len(s.starts))
	}
}

// Who has waited since before this leader came goes before who has just come.
func TestTheIndexComesFirst(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.places = 1
	for i := range 300 {
		lane := envelope.Lane{Tenant: fmt.Sprint("t", i), User: "old", Priority: envelope.Normal}
		s.lanes[lane] = []*envelope.Envelope{{Stamp: fmt.Sprintf("%013x", s.now-1000), Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x"}}
	}
	s.put("newcomer", "new", nil)
	s.decide()
	if got := s.order(); got != "old" {
		t.Errorf("the first to start: %s", got)
	}
}

// A job that was given a slot far ahead and came back gets one at once from a worker nearby.
func TestAReturnedJobStartsAtOnce(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{User: rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Millisecond})})
	s.ahead = 500_000
	s.put("t", "u", nil)
	s.decide()
	start := s.starts[0]
	if start.Slot < s.now+s.ahead {
		t.Fatalf("the slot lies %d µs ahead", start.Slot-s.now)
	}
	s.ahead = 0
	s.now += 10_000
	s.lanes[start.Lane] = append([]*envelope.Envelope{start.Head.Env}, s.lanes[start.Lane]...)
	s.s.Step(s.now, schedule.Refunded{Claim: start.Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
	s.s.Step(s.now, schedule.Returned{Lane: start.Lane})
	s.decide()
	if len(s.starts) != 2 || s.starts[1].Slot > s.now {
		t.Errorf("%d starts, the last in %d µs", len(s.starts), s.starts[len(s.starts)-1].Slot-s.now)
	}
}

// A slot of the same user that is given back lets nothing overtake a job of the lane whose slot lies far ahead.
func TestARefundLetsNobodyOvertake(t *testing.T) {
	s := onShelf(t, nil, schedule.Policy{})
	s.put("t", "u", nil)
	s.decide()
	s.now += 10_000
	s.ahead = 500_000
	s.put("t", "u", nil)
	s.decide()
	s.ahead = 0
	s.now += 10_000
	s.s.Step(s.now, schedule.Refunded{Claim: s.starts[0].Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}})
	s.put("t", "u", nil)
	s.decide()
	if len(s.starts) != 3 || s.starts[2].Slot < s.starts[1].Slot {
		t.Errorf("%d starts; the last has a slot %d µs before that of the one before it", len(s.starts), s.starts[1].Slot-s.starts[len(s.starts)-1].Slot)
	}
}

// More lanes, or tenants, of one bound than are read at a time are read all the same.
func TestManyOfOneBound(t *testing.T) {
	const many = 700
	for _, which := range []string{"lanes", "tenants"} {
		t.Run(which, func(t *testing.T) {
			s := onShelf(t, nil, schedule.Policy{})
			for i := range many {
				lane := envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: envelope.Normal}
				if which == "tenants" {
					lane = envelope.Lane{Tenant: fmt.Sprint("t", i), User: "u", Priority: envelope.Normal}
				}
				s.lanes[lane] = []*envelope.Envelope{{Stamp: fmt.Sprintf("%013x", s.now+int64(i)-1000), Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x"}}
			}
			s.decide()
			if len(s.starts) != many {
				t.Errorf("%d of %d started", len(s.starts), many)
			}
		})
	}
}

// A rule that was lifted for a while has not counted what started meanwhile: when it is in
// force again, and such a job is returned, it gives nothing back.
func TestALiftedRuleGivesBackNothingThatItHasNotCounted(t *testing.T) {
	window := rules.Compile(0, rules.Rule{Kind: rules.FixedWindow, Limit: 2, Period: time.Second})
	s := onShelf(t, window, schedule.Policy{})
	under := func(set *rules.Set) {
		s.s = schedule.New(schedule.Settings{Policies: &schedule.Policies{Queue: set}}, s.queue)
	}
	started := func(user string) (n int) {
		s.put("t", user, nil)
		s.decide()
		for _, start := range s.starts {
			if start.Lane.User == user && start.Slot <= s.now+1000 {
				n++
			}
		}
		return n
	}
	s.now += 100_000
	if started("a") != 1 {
		t.Fatal("the first does not start")
	}
	under(rules.Compile(0))
	s.now += 10_000
	if started("b") != 1 {
		t.Fatal("the second does not start without a rule")
	}
	missed := s.starts[len(s.starts)-1]
	under(window)
	s.now += 10_000
	for range 10 {
		if s.s.Knows(missed.Lane, nil) {
			break
		}
		s.learn(s.s.Amend(s.now))
	}
	s.s.Step(s.now, schedule.Refunded{Claim: missed.Claim, Env: &envelope.Envelope{Type: "x", Cost: 1}, All: true})
	if started("c") != 1 {
		t.Fatal("the third does not start")
	}
	s.now += 10_000
	if started("d") != 0 {
		t.Error("three start in a second that the rule has counted, and it allows two")
	}
}
