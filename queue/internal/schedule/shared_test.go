package schedule_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A root is where shared limits are decided in these tests: it answers some milliseconds after it was asked.
type root struct {
	limits   namedLimits
	states   map[string]*rules.State // by scope
	rng      *rand.Rand
	under    map[string]answer      // on its way, by scope
	given    map[rules.Grant][]cost // and not used, by what it was spent of
	starts   []schedule.Start
	granted  int
	returned int
	others   int64 // queues that want as much take their turns at the limits; it grants only half a turn before its own would begin
	next     int64 // no turn before
	together int64 // how long a turn is, µs
	inTurn   bool  // the scheduler knows that
}

// A cost is what a grant was spent of.
type cost struct {
	scope string
	of    int
}

// An answer is what the root says, and when it comes.
type answer struct {
	at     int64
	grants []rules.Grant
}

// serve lets the scheduler ask the root, and hear from it.
func (r *root) serve(s *shelf) {
	for scope, a := range r.under {
		if a.at > s.now {
			continue
		}
		delete(r.under, scope)
		for _, g := range a.grants {
			s.s.Step(s.now, schedule.Granted{Scope: scope, Grant: g})
		}
	}
	wants, missed := s.s.Wants(s.now)
	for _, m := range missed {
		r.returned++
		if r.given[m.Grant] == nil {
			s.t.Fatalf("%+v comes back, and was not there", m)
		}
		for _, c := range r.given[m.Grant] {
			r.rules(c.scope).Refund(r.state(c.scope), rules.At(m.At), c.of, false)
		}
		delete(r.given, m.Grant)
	}
	for _, want := range wants {
		if _, asked := r.under[want.Scope]; asked {
			continue
		}
		a := answer{at: s.now + 500 + r.rng.Int64N(1000)}
		after := max(s.now+2000+want.Ahead, want.From)
		inTurn := r.inTurn || r.others == 0 && r.rng.IntN(3) == 0
		for i, c := range s.s.Costs(want, s.now, s.places, inTurn) {
			near := int64(3000)
			if r.others > 0 {
				if s.now < r.next {
					break
				}
				after, near = max(after, s.now+25_000), r.together
			}
			first := after
			if n := len(a.grants); n > 0 {
				first = max(first, a.grants[n-1].At+c.Gap)
			}
			at := r.earliest(want.Parts, c.Of, first)
			if at > after+near && !(i == 0 && len(want.Parts) == 1 && at < after+1_000_000) {
				if i == 0 { // it is no use to ask before it is near
					a.at = max(a.at, s.now+min(at-3000-after, 1_000_000))
				}
				break
			}
			g := rules.Grant{At: at, Cost: c.Name}
			for k, part := range want.Parts {
				r.rules(part.Scope).Spend(r.state(part.Scope), rules.At(at), c.Of[k], true)
				r.given[g] = append(r.given[g], cost{part.Scope, c.Of[k]})
			}
			a.grants = append(a.grants, g)
			r.granted++
		}
		if len(a.grants) > 0 {
			r.next = s.now + int64(len(a.grants))*(a.grants[len(a.grants)-1].At-after)*r.others/int64(max(1, len(a.grants)-1))
		}
		r.under[want.Scope] = a
	}
}

func (r *root) rules(scope string) *rules.Set {
	limit, _ := r.limits.Scope(scope)
	return limit.Rules
}

func (r *root) state(scope string) *rules.State {
	if r.states[scope] == nil {
		r.states[scope] = &rules.State{}
	}
	return r.states[scope]
}

// earliest returns the first instant from one on at which all parts let a job start.
func (r *root) earliest(parts []schedule.Part, costs []int, from int64) int64 {
	var all []schedule.Remembered
	for k, part := range parts {
		all = append(all, schedule.Remembered{Rules: r.rules(part.Scope), State: r.state(part.Scope), Cost: costs[k]})
	}
	return schedule.Earliest(all, from)
}

// judge checks that the jobs that have started keep all shared limits. It knows nothing of grants.
func (r *root) judge(t *testing.T) {
	slices.SortStableFunc(r.starts, func(a, b schedule.Start) int { return cmp.Compare(a.Slot, b.Slot) })
	states := make(map[string]*rules.State)
	for _, start := range r.starts {
		for _, l := range r.limits {
			scope, cost := l.of(start.Lane, start.Head.Env)
			if cost == 0 {
				continue
			}
			if states[scope] == nil {
				states[scope] = &rules.State{}
			}
			limit, _ := r.limits.Scope(scope)
			if at, _ := limit.Rules.Earliest(states[scope], start.Slot, int(cost)); at > start.Slot {
				t.Errorf("%s of %v starts at %d, and %s lets it start at %d", start.Stamp, start.Lane, start.Slot, scope, at)
			}
			limit.Rules.Spend(states[scope], rules.At(start.Slot), int(cost), true)
		}
	}
}

// Jobs under a shared limit start at the instants that were granted, each of them used once. Nearly all that the limit lets start
// starts, whatever else the jobs wait for, and nearly nothing is asked for in vain.
func TestGrants(t *testing.T) {
	seed := sample.SeedOf(t)
	leak := func(n int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: n, Period: time.Second})
	}
	window := func(n int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: n, Period: time.Second})
	}
	more := func(key, unit string, set *rules.Set) namedLimit {
		return namedLimit{name: "second", key: key, unit: unit, bounds: bounds{set: set, shared: true}}
	}
	slow := more("tenant", "jobs", leak(100)) // but one tenant's
	slow.own = map[string]bounds{"l:second:t0": {set: leak(1), shared: true}}
	for name, test := range map[string]struct {
		queue, tenant  *rules.Set
		user, other    *rules.Set
		second         namedLimit // another one that is shared
		places, costs  int
		lanes          int   // of each user; 1 if it is 0
		ahead, late    int64 // of the places; of one job in ten
		tenants, users int
		limit          *rules.Set
		least          int // starts within 10 s
		back           int // so many of a hundred grants may be given back; 2 if it is 0
	}{
		"nothing else":      {tenants: 3, users: 10, limit: leak(200), least: 1960},
		"one lane":          {tenants: 1, users: 1, limit: leak(200), least: 1960},
		"a window":          {tenants: 3, users: 10, limit: window(100), least: 990},
		"tenants":           {tenants: 5, users: 10, tenant: leak(60), limit: leak(200), least: 1950},
		"users":             {tenants: 3, users: 40, user: leak(3), limit: leak(200), least: 1950},
		"lanes of users":    {tenants: 3, users: 4, lanes: 2, user: leak(50), limit: leak(400), least: 3960},
		"lanes, another":    {tenants: 3, users: 4, lanes: 2, user: leak(50), limit: leak(20_000), other: leak(400), least: 3960},
		"lanes, slow queue": {tenants: 3, users: 4, lanes: 2, user: leak(50), limit: leak(20_000), queue: leak(400), least: 3960},
		"lanes, windows":    {tenants: 2, users: 6, lanes: 2, user: window(50), limit: leak(400), least: 3960},
		"many lanes":        {tenants: 2, users: 60, lanes: 2, user: leak(5), limit: leak(400), least: 3960},
		"slow queue":        {tenants: 3, users: 10, queue: leak(50), limit: leak(200), least: 490},
		"queue window":      {tenants: 3, users: 10, queue: window(20), limit: leak(20_000), least: 200},
		"slow tenants":      {tenants: 3, users: 10, tenant: leak(20), limit: leak(200), least: 590},
		"slow users":        {tenants: 3, users: 10, user: leak(1), limit: leak(200), least: 300},
		"costs":             {tenants: 3, users: 10, costs: 3, limit: leak(400), least: 1900},
		"one place":         {tenants: 3, users: 10, places: 1, limit: leak(200), least: 1960},
		"far places":        {tenants: 3, users: 10, ahead: 60_000, limit: leak(200), least: 1940},
		"late jobs":         {tenants: 3, users: 10, late: 300_000, limit: leak(200), least: 1900},
		"late users":        {tenants: 3, users: 40, user: leak(3), late: 300_000, limit: leak(200), least: 1900},
		"late tenants":      {tenants: 5, users: 10, tenant: leak(60), late: 300_000, limit: leak(200), least: 1900},
		"two":               {tenants: 3, users: 10, limit: leak(200), second: more("", "jobs", window(100)), least: 990},
		"two with costs":    {tenants: 3, users: 40, user: leak(5), costs: 3, late: 15_000, limit: leak(400), second: more("", "jobs", leak(150)), least: 1200, back: 10},
		"two keys":          {tenants: 3, users: 10, limit: leak(200), second: more("tenant", "jobs", leak(50)), least: 1450},
		"a slow key":        {tenants: 3, users: 10, limit: leak(200), second: more("tenant", "jobs", leak(2)), least: 57},
		"one slow key":      {tenants: 30, users: 10, limit: leak(200), second: slow, least: 1940},
		"another":           {tenants: 3, users: 10, other: leak(100), limit: leak(200), least: 980},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rng := sample.Rand(t, seed)
			account := namedLimit{name: "account", unit: "cost", bounds: bounds{set: test.limit, shared: true}}
			all := namedLimits{account}
			if test.second.set != nil {
				all = append(all, test.second)
			}
			if test.other != nil {
				all = append(all, namedLimit{name: "other", unit: "jobs", bounds: bounds{set: test.other}})
			}
			s := newShelf(t, &schedule.Policies{Queue: test.queue, Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: test.tenant, User: test.user}}, Named: all})
			s.ahead = test.ahead
			r := &root{limits: all, states: map[string]*rules.State{}, rng: rng, under: map[string]answer{}, given: map[rules.Grant][]cost{}}
			if test.places > 0 {
				s.places = test.places
			}
			for i := range 6000 {
				s.put(fmt.Sprint("t", i%test.tenants), fmt.Sprint("u", i/test.tenants%test.users), func(e *envelope.Envelope) {
					e.Cost = 1 + rng.IntN(max(1, test.costs))
					e.Priority = envelope.Normal + rng.IntN(max(1, test.lanes))
					if i%10 == 3 {
						e.Late = test.late
					}
				})
			}
			for end := s.now + 10_000_000; s.now < end; s.now += 200 {
				r.serve(s)
				s.decide()
				r.serve(s)
				r.starts, s.starts = append(r.starts, s.starts...), nil
			}
			started := len(r.starts)
			r.judge(t)
			t.Logf("%d started, %d granted, %d of them given back", started, r.granted, r.returned)
			if started < test.least {
				t.Errorf("%d have started, want at least %d", started, test.least)
			}
			if r.returned > r.granted*cmp.Or(test.back, 2)/100+10 {
				t.Errorf("%d of %d grants were given back", r.returned, r.granted)
			}
		})
	}
}

// A job that comes back and has not started gives its grant back, which nothing else uses, also if several shared limits count it. What a
// refused commit has used is used.
func TestAJobThatComesBackGivesItsGrantBack(t *testing.T) {
	limit := func(name string) namedLimit {
		return namedLimit{name: name, unit: "jobs", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second}), shared: true}}
	}
	for _, limits := range []namedLimits{{limit("account")}, {limit("account"), limit("other")}} {
		s := newShelf(t, &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {}}, Named: limits})
		for range 2 {
			s.put("t", "u", nil)
		}
		s.decide()
		wants, _ := s.s.Wants(s.now)
		scope, cost := wants[0].Scope, s.s.Costs(wants[0], s.now, 10, false)[0].Name
		grants := []rules.Grant{{At: s.now + 3000, Cost: cost}, {At: s.now + 4000, Cost: cost}}
		for _, g := range grants {
			s.s.Step(s.now, schedule.Granted{Scope: scope, Grant: g})
		}
		s.decide()
		if len(s.starts) != 2 {
			t.Fatalf("%d jobs have started with two grants", len(s.starts))
		}
		if wants, missed := s.s.Wants(s.now); len(wants)+len(missed) > 0 {
			t.Errorf("%+v and %+v, and nothing waits", wants, missed)
		}
		for range 2 {
			if s.s.Knows(s.starts[1].Lane, s.starts[1].Head.Env) {
				break
			}
			s.learn(s.s.Amend(s.now))
		}
		if !s.s.Knows(s.starts[1].Lane, s.starts[1].Head.Env) {
			t.Errorf("%d limits: what they remember is not known", len(limits))
		}
		s.putBack(s.starts[1])
		if _, missed := s.s.Wants(s.now); len(missed) != 1 || missed[0] != (schedule.Missed{Scope: scope, Grant: grants[1], Returned: true}) {
			t.Errorf("%d limits: given back: %+v, want %+v", len(limits), missed, grants[1])
		}
		s.decide()
		if len(s.starts) != 2 {
			t.Errorf("%d jobs have started with two grants, one of which was given back", len(s.starts))
		}
		s.s.Step(s.now, schedule.Granted{Scope: scope, Grant: rules.Grant{At: s.now + 5000, Cost: cost}})
		s.s.Undo([]schedule.Commit{s.s.Decide(s.now, &fleet{places: []*schedule.Place{{Worker: "w"}}}, 100)}, s.now)
		if _, missed := s.s.Wants(s.now + 10_000); len(missed) != 0 {
			t.Errorf("given back: %+v, want nothing: the job may have started", missed)
		}
	}
}

// What a shared limit refuses is counted by the rules of tenants that count what was dropped, as what they refuse themselves is.
func TestRefusalsAreCounted(t *testing.T) {
	account := namedLimit{name: "account", unit: "jobs", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second}), shared: true}}
	tenant := rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Minute, Drop: true, Counts: true})
	s := newShelf(t, &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: tenant}}, Named: namedLimits{account}})
	for range 3 {
		s.put("t", "u", nil)
	}
	s.decide()
	wants, _ := s.s.Wants(s.now)
	refused := rules.Grant{At: s.now + 2000, Cost: 1, Refused: "window 5/1s"}
	s.s.Step(s.now, schedule.Granted{Scope: wants[0].Scope, Grant: refused})
	s.decide()
	s.s.Step(s.now, schedule.Granted{Scope: wants[0].Scope, Grant: rules.Grant{At: s.now + 3000, Cost: 1}})
	s.decide()
	var by []string
	for _, d := range s.drops {
		by = append(by, d.Rule)
	}
	if want := []string{refused.Refused, refused.Refused, "window 2/1m"}; !slices.Equal(by, want) || len(s.starts) > 0 {
		t.Errorf("dropped by %q, and %d have started; want %q", by, len(s.starts), want)
	}
}

// Where another limit is tighter than a shared one, the queue asks for as many instants as that lets start soon, as far from each other. Of a
// tenant it asks for one.
func TestGrantsThatAreApart(t *testing.T) {
	leak := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 400, Period: time.Second})
	for name, test := range map[string]struct {
		queue, other, tenant *rules.Set
		want                 int
		gap                  int64
	}{
		"the queue": {queue: leak, want: 5, gap: 2501}, "another limit": {other: leak, want: 5, gap: 2501}, "a tenant": {tenant: leak, want: 1, gap: 2501}, "none": {want: 40},
	} {
		all := namedLimits{{name: "account", unit: "jobs", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 500, Period: time.Second}), shared: true}}}
		if test.other != nil {
			all = append(all, namedLimit{name: "other", unit: "jobs", bounds: bounds{set: test.other}})
		}
		s := newShelf(t, &schedule.Policies{Queue: test.queue, Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: test.tenant}}, Named: all})
		for k := range 40 {
			s.put("t", fmt.Sprint("u", k%4), nil)
		}
		s.decide()
		wants, _ := s.s.Wants(s.now)
		costs := s.s.Costs(wants[0], s.now, 1000, false)
		if len(costs) < test.want || test.want == 1 && len(costs) > 1 || len(costs) > 0 && costs[len(costs)-1].Gap != test.gap {
			t.Errorf("%s: %d are asked for, want %d, %d µs apart: %+v", name, len(costs), test.want, test.gap, costs)
		}
	}
}

// Where others want the instants of a limit, too, a queue gets several that are close together, and then none for a while. None of them is
// left unused because the tenant whose turn it is may not start so many so soon. Tenants get what their weights say, if no more are asked for
// than come in turn; otherwise about as much.
func TestGrantsThatComeTogether(t *testing.T) {
	for name, test := range map[string]struct {
		together int64
		inTurn   bool
		weighs   float64 // how much more a tenant of weight 4 gets
	}{"few in turn": {4000, true, 4}, "many in turn": {8000, true, 4}, "few": {4000, false, 2}, "many": {8000, false, 1}} {
		t.Run(name, func(t *testing.T) {
			account := namedLimit{name: "account", unit: "cost", bounds: bounds{set: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 2000, Period: time.Second}), shared: true}}
			own := rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 100, Period: time.Second})
			user := rules.Compile(0, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 50 * time.Millisecond})
			s := newShelf(t, &schedule.Policies{
				Default: "one", Named: namedLimits{account}, Tenants: map[string]string{"t0": "four", "t2": "four", "t4": "four", "t6": "four", "t8": "four", "t10": "four"},
				Policies: map[string]schedule.Policy{"one": {Tenant: own, User: user}, "four": {Tenant: own, User: user, Weight: 4}},
			})
			r := &root{limits: namedLimits{account}, states: map[string]*rules.State{}, rng: sample.Rand(t, 1), under: map[string]answer{}, given: map[rules.Grant][]cost{}}
			r.others, r.together, r.inTurn = 15, test.together, test.inTurn
			for i := range 12_000 {
				s.put(fmt.Sprint("t", i%12), fmt.Sprint("u", i/12%20), func(*envelope.Envelope) {})
			}
			for end := s.now + 20_000_000; s.now < end; s.now += 200 {
				r.serve(s)
				s.decide()
				r.serve(s)
				r.starts, s.starts = append(r.starts, s.starts...), nil
			}
			r.judge(t)
			counts, heavy, light := make(map[string]int), 0, 0
			for _, start := range r.starts {
				counts[start.Lane.Tenant]++
			}
			for k := range 12 {
				if n := counts[fmt.Sprint("t", k)]; k%2 == 0 {
					heavy += n
				} else {
					light += n
				}
			}
			weighs := float64(heavy) / float64(light)
			t.Logf("%d started, %d granted, %d of them given back, weight 4 gets %.2f times as much: %v", len(r.starts), r.granted, r.returned, weighs, counts)
			if r.returned > r.granted/50 || r.granted < 1000 {
				t.Errorf("%d of %d grants were given back", r.returned, r.granted)
			}
			if weighs < test.weighs*0.95 || weighs > test.weighs*1.05 {
				t.Errorf("weight 4 gets %.2f times as much, want %v", weighs, test.weighs)
			}
		})
	}
}
