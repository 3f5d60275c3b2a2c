package schedule_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A crowd is tenants that always have jobs waiting, each of its own cost.
type crowd struct {
	s     *schedule.Scheduler
	costs map[string]int // "tenant user" → what its jobs cost
	got   map[string]int // "tenant user" → the cost of what has started
	now   int64
}

func newCrowd(p *schedule.Policies, costs map[string]int) *crowd {
	return &crowd{
		s: schedule.New(schedule.Facts{Policies: p}), costs: costs, got: map[string]int{}, now: 1_763_600_000_000_000,
	}
}

func (c *crowd) answer(needs schedule.Needs) {
	tenants := map[string]int64{}
	users := map[string]map[string]int64{}
	for name := range c.costs {
		tenant, user, _ := strings.Cut(name, " ")
		if users[tenant] == nil {
			users[tenant] = map[string]int64{}
		}
		tenants[tenant], users[tenant][user] = 1, 1
	}
	if needs.Tenants {
		from, n := c.s.TenantsFront()
		c.s.LearnTenants(front(tenants, from, n))
	}
	for _, need := range needs.Lanes {
		var found []schedule.Bound
		if need.Priority == envelope.Normal {
			found = front(users[need.Tenant], need.From, need.N)
		}
		c.s.LearnLanes(need, found, c.now)
	}
	for _, lane := range needs.Heads {
		env := &envelope.Envelope{Stamp: "0643fc1fde259", Cost: c.costs[lane.Tenant+" "+lane.User], Priority: lane.Priority}
		head := schedule.Head{Entry: env.String(), Job: env.String(), Env: env}
		c.s.LearnHeads(lane, []schedule.Head{head, head, head}, c.now)
	}
	for _, scope := range needs.States {
		if tenant, user := envelope.ParseScope(scope); user != "" {
			c.s.LearnUserState(tenant, user, "", c.now)
		} else if tenant == "" {
			c.s.LearnQueueState("")
		} else {
			c.s.LearnTenantState(tenant, "", 0, c.now)
		}
	}
}

// run lets time pass, in which so many places are free every millisecond.
func (c *crowd) run(d time.Duration, places int) {
	for end := c.now + d.Microseconds(); c.now < end; c.now += 1000 {
		var f fleet
		p := &schedule.Place{Worker: "w"}
		for range places {
			f.places = append(f.places, p)
		}
		for range 50 {
			plan := c.s.Decide(c.now, &f, 100)
			c.s.States(c.now)
			for _, start := range plan.Starts {
				c.got[start.Lane.Tenant+" "+start.Lane.User] += start.Head.Env.Cost
			}
			needs := c.s.Needs()
			c.answer(needs)
			if needs.Empty() && (plan.Hungry || plan.Next > c.now) {
				break
			}
		}
	}
}

func policyOf(tenants map[string]int, queue *rules.Set) *schedule.Policies {
	p := &schedule.Policies{Queue: queue, Policies: map[string]schedule.Policy{}, Tenants: map[string]string{}}
	for tenant, weight := range tenants {
		p.Policies[tenant], p.Tenants[tenant] = schedule.Policy{Weight: weight}, tenant
	}
	return p
}

// Where places or a rule of the queue are scarce, tenants get shares by their weights,
// whatever their jobs cost.
func TestShares(t *testing.T) {
	queue := rules.Compile(0, rules.Rule{Kind: rules.TokenBucket, Limit: 1000, Period: time.Second, Burst: 20})
	for name, test := range map[string]struct {
		queue  *rules.Set
		places int
	}{"places": {nil, 1}, "a rule of the queue": {queue, 100}} {
		for _, weight := range []int{1, 4} {
			for _, cost := range []int{1, 5} {
				t.Run(fmt.Sprint(name, ", weight ", weight, ", cost ", cost), func(t *testing.T) {
					costs := map[string]int{}
					for i := range 30 {
						costs[fmt.Sprint("a u", i)], costs[fmt.Sprint("b u", i)] = 1, cost
					}
					c := newCrowd(policyOf(map[string]int{"a": 1, "b": weight}, test.queue), costs)
					c.run(4*time.Second, test.places)
					a, b := 0, 0
					for i := range 30 {
						a, b = a+c.got[fmt.Sprint("a u", i)], b+c.got[fmt.Sprint("b u", i)]
					}
					share := float64(b) / float64(a)
					if math.Abs(share-float64(weight)) > 0.05*float64(weight) {
						t.Errorf("b got %d, a %d: %.2f, want %d", b, a, share, weight)
					}
				})
			}
		}
	}
}

// A job of a high cost starts beside a flood of small ones, under every kind of rule, at
// every scope; and they start beside it.
func TestCostStarvesNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	for _, rule := range []rules.Rule{
		{Kind: rules.Window, Limit: 10, Period: time.Second}, {Kind: rules.FixedWindow, Limit: 10, Period: time.Second},
		{Kind: rules.SlidingCounter, Limit: 10, Period: time.Second, Buckets: 2},
		{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 10}, {Kind: rules.Leak, Limit: 10, Period: time.Second},
		{Kind: rules.Spacing, Limit: 1, Period: 100 * time.Millisecond},
	} {
		set := rules.Compile(schedule.Grace*time.Microsecond, rule)
		for scope, p := range map[string]*schedule.Policies{
			"queue":  {Queue: set},
			"tenant": {Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: set}}},
			"user":   {Default: "p", Policies: map[string]schedule.Policy{"p": {User: set}}},
		} {
			t.Run(fmt.Sprint(rule.Kind, " at the ", scope), func(t *testing.T) {
				costs := map[string]int{"b big": 5, "b small": 1, "c other": 1}
				for i := range 20 {
					costs[fmt.Sprint("a ", i)] = 1
				}
				c := newCrowd(p, costs)
				c.run(40*time.Second, 100)
				for name := range costs {
					if c.got[name] < 5 {
						t.Errorf("%s has got %d: %v", name, c.got[name], c.got)
					}
				}
			})
		}
	}
}
