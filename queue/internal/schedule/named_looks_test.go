package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// one is a limit by name of all jobs.
type one struct{ set *rules.Set }

func (o one) Lane(envelope.Lane) []Use {
	return []Use{{Limit: Limit{Scope: "l:all", Rules: o.set}, Name: "all", Cost: 1}}
}
func (o one) Job(uses []Use, lane envelope.Lane, _ *envelope.Envelope) ([]Use, string, error) {
	return append(uses, o.Lane(lane)...), "all", nil
}
func (o one) Scope(string) (Limit, bool) { return Limit{Rules: o.set}, true }
func (o one) Counts() bool               { return false }

// enough has as many places as are asked for.
type enough struct{}

func (enough) Next() *Place { return &Place{Worker: "w"} }
func (enough) Reach() int64 { return 0 }
func (enough) Free(*Place)  {}

// Lanes of several tenants wait for one limit, and one tenant may start one job a second. How often lanes get other bounds
// does not grow with how many lanes that tenant has: they are not called while it may start nothing.
func TestLanesOfClosedTenantsAreNotLookedAt(t *testing.T) {
	perStart := map[int]float64{}
	for _, lanes := range []int{100, 1000} {
		s := New(Settings{Policies: &Policies{
			Policies: map[string]Policy{"slow": {Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 1, Period: time.Second})}},
			Tenants:  map[string]string{"t0": "slow"},
			Named:    one{rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 50, Period: time.Second})},
		}}, "")
		now, waiting := int64(1_763_600_000_000_000), map[envelope.Lane][]Head{}
		moved := func() (n uint64) {
			for _, t := range s.tenants {
				n += t.lanes[envelope.Normal].due.sets
			}
			return n
		}
		run := func(d time.Duration) (starts int) {
			for end := now + d.Microseconds(); now < end; now += 1000 {
				for {
					c := s.Decide(now, enough{}, 100)
					for _, left := range c.Plan.Left {
						waiting[left.Lane] = nil
					}
					starts += len(c.Plan.Starts)
					found := Found{States: make([]string, len(c.Needs.States)), Waiting: make([]int64, len(c.Needs.States))}
					for range c.Needs.Lanes {
						found.Fronts = append(found.Fronts, nil)
					}
					for _, lane := range c.Needs.Heads {
						found.Heads = append(found.Heads, waiting[lane])
					}
					s.Learn(c, found, now)
					if c.Needs.Empty() && c.Plan.Next > now {
						break
					}
				}
			}
			return starts
		}
		run(time.Millisecond) // it knows by then that nothing waits
		for i := range 4 * lanes {
			env := &envelope.Envelope{Stamp: envelope.Stamp(now + int64(i)), Cost: 1, MaxAttempts: 1, Type: "x"}
			lane := envelope.Lane{Tenant: fmt.Sprint("t", i%4), User: fmt.Sprint("u", i), Priority: envelope.Normal, Label: "all"}
			waiting[lane] = []Head{{Entry: env.String(), Job: env.String(), Env: env}}
			s.Step(now, First{lane, waiting[lane][0]})
		}
		run(2 * time.Second)
		before := moved()
		starts := run(2 * time.Second)
		if starts < 98 || starts > 102 {
			t.Fatalf("%d starts in two seconds of a limit of 50/s", starts)
		}
		perStart[lanes] = float64(moved()-before) / float64(starts)
	}
	t.Logf("bounds of lanes that move for each start: %.1f with 100 lanes a tenant, %.1f with 1000", perStart[100], perStart[1000])
	if perStart[1000] > 1.5*perStart[100] {
		t.Error("they grow with the lanes")
	}
}

// Nothing is read and nothing is written for the keys of a limit that can only be paused.
func TestALimitWithoutRulesCostsNothing(t *testing.T) {
	s := New(Settings{Policies: &Policies{Named: one{}}}, "")
	const users = 100
	now, starts, waiting := int64(1_763_600_000_000_000), 0, map[envelope.Lane][]Head{}
	round := func() {
		now += 1000
		c := s.Decide(now, enough{}, users)
		starts += len(c.Plan.Starts)
		if slices.Contains(c.Needs.States, "l:all") || slices.ContainsFunc(c.States, func(of State) bool { return of.Scope == "l:all" }) {
			t.Fatal("its state is read or written")
		}
		for _, left := range c.Plan.Left {
			waiting[left.Lane] = nil
		}
		found := Found{States: make([]string, len(c.Needs.States)), Waiting: make([]int64, len(c.Needs.States))}
		for range c.Needs.Lanes {
			found.Fronts = append(found.Fronts, nil)
		}
		for _, lane := range c.Needs.Heads {
			found.Heads = append(found.Heads, waiting[lane])
		}
		s.Learn(c, found, now)
	}
	round() // it knows by then that nothing waits
	for i := range users {
		env := &envelope.Envelope{Stamp: envelope.Stamp(now + int64(i)), Cost: 1, MaxAttempts: 1, Type: "x"}
		lane := envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: envelope.Normal, Label: "all"}
		waiting[lane] = []Head{{Entry: env.String(), Job: env.String(), Env: env}}
		s.Step(now, First{lane, waiting[lane][0]})
	}
	for range 10 {
		round()
	}
	if starts != users {
		t.Errorf("%d of %d started", starts, users)
	}
}
