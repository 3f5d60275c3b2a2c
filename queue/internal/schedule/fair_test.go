package schedule_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
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
		s: schedule.New(schedule.Settings{Policies: p}, ""), costs: costs, got: map[string]int{}, now: 1_763_600_000_000_000,
	}
}

// find returns what the scheduler needs.
func (c *crowd) find(needs schedule.Needs) (found schedule.Found) {
	tenants := map[string]int64{}
	users := map[string]map[string]int64{}
	for name := range c.costs {
		tenant, user, _ := strings.Cut(name, " ")
		if users[tenant] == nil {
			users[tenant] = map[string]int64{}
		}
		tenants[tenant], users[tenant][user] = 1, 1
	}
	found.Tenants = front(tenants, needs.Tenants)
	for _, need := range needs.Lanes {
		var lanes []schedule.Bound
		if need.Priority == envelope.Normal {
			lanes = front(users[need.Tenant], need.Span)
		}
		found.Fronts = append(found.Fronts, lanes)
	}
	for _, lane := range needs.Heads {
		env := &envelope.Envelope{Stamp: "0643fc1fde259", Cost: c.costs[lane.Tenant+" "+lane.User], Priority: lane.Priority}
		head := schedule.Head{Entry: env.String(), Job: env.String(), Env: env}
		found.Heads = append(found.Heads, []schedule.Head{head, head, head})
	}
	found.States, found.Waiting = make([]string, len(needs.States)), make([]int64, len(needs.States))
	return found
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
			commit := c.s.Decide(c.now, &f, 100)
			for _, start := range commit.Plan.Starts {
				c.got[start.Lane.Tenant+" "+start.Lane.User] += start.Head.Env.Cost
			}
			c.s.Learn(commit, c.find(commit.Needs), c.now)
			if commit.Needs.Empty() && (commit.Plan.Hungry || commit.Plan.Next > c.now) {
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

// While the first jobs of a tenant's only lane are being read, others have the places. The tenant gets them back, up to its
// share.
func TestSharesOfATenantThatIsRead(t *testing.T) {
	for _, places := range []int{1, 2, 3} {
		costs := map[string]int{"b u": 1}
		for i := range 30 {
			costs[fmt.Sprint("a u", i)] = 1
		}
		c := newCrowd(policyOf(map[string]int{"a": 1, "b": 2}, nil), costs)
		c.run(2*time.Second, places)
		a, b := 0, c.got["b u"]
		for i := range 30 {
			a += c.got[fmt.Sprint("a u", i)]
		}
		if share := float64(b) / float64(a); math.Abs(share-2) > 0.02 {
			t.Errorf("%d places: b got %d, a %d: %.2f, want 2", places, b, a, share)
		}
	}
}

// A job of a high cost starts beside a flood of small ones, under every kind of rule, at
// every scope; and they start beside it.
func TestCostStarvesNobody(t *testing.T) {
	t.Parallel()
	for _, rule := range sample.Draw(t, []rules.Rule{
		{Kind: rules.Window, Limit: 10, Period: time.Second}, {Kind: rules.FixedWindow, Limit: 10, Period: time.Second},
		{Kind: rules.SlidingCounter, Limit: 10, Period: time.Second, Buckets: 2},
		{Kind: rules.TokenBucket, Limit: 10, Period: time.Second, Burst: 10}, {Kind: rules.Leak, Limit: 10, Period: time.Second},
		{Kind: rules.Spacing, Limit: 1, Period: 100 * time.Millisecond},
	}, 0, 2) {
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
