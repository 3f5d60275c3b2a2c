package schedule_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A root is where a shared limit is decided in these tests: it answers some milliseconds after it was asked.
type root struct {
	set      *rules.Set
	state    rules.State
	rng      *rand.Rand
	under    map[string]answer   // on its way, by scope
	given    map[rules.Grant]int // and not used
	granted  int
	returned int
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
			r.given[g]++
			s.s.Step(s.now, schedule.Granted{Scope: scope, Grant: g})
		}
	}
	wants, missed := s.s.Wants(s.now, s.places)
	for _, m := range missed {
		r.returned++
		if r.given[m.Grant]--; r.given[m.Grant] < 0 {
			s.t.Fatalf("%+v comes back, and was not there", m)
		}
		r.set.Refund(&r.state, rules.At(m.At), int(m.Cost), false)
	}
	for _, want := range wants {
		if _, asked := r.under[want.Scope]; asked {
			continue
		}
		a := answer{at: s.now + 500 + r.rng.Int64N(1000)}
		after := s.now + max(2000, want.Ahead)
		for i, cost := range want.Costs {
			at, _ := r.set.Earliest(&r.state, after, cost)
			if at > after+3000 && !(i == 0 && at < after+1_000_000) {
				break
			}
			r.set.Spend(&r.state, rules.At(at), cost, true)
			a.grants = append(a.grants, rules.Grant{At: at, Cost: int64(cost)})
			r.granted++
		}
		r.under[want.Scope] = a
	}
}

// used checks that each start has a grant of its own.
func (r *root) used(s *shelf, shared func(schedule.Start) bool) (n int) {
	for _, start := range s.starts {
		if !shared(start) {
			continue
		}
		n++
		g := rules.Grant{At: start.Slot, Cost: int64(start.Head.Env.Cost)}
		if r.given[g]--; r.given[g] < 0 {
			s.t.Errorf("%s of %v starts at %d, for which there is no grant", start.Stamp, start.Lane, start.Slot)
		}
	}
	s.starts = nil
	return n
}

// Jobs under a shared limit start at the instants that were granted, each of them used once. Nearly all that the limit lets start
// starts, whatever else the jobs wait for, and nearly nothing is asked for in vain.
func TestGrants(t *testing.T) {
	rng := sample.Rand(t, sample.SeedOf(t))
	leak := func(n int) *rules.Set {
		return rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: n, Period: time.Second})
	}
	for name, test := range map[string]struct {
		queue, tenant  *rules.Set
		user, other    *rules.Set
		places, costs  int
		ahead, late    int64 // of the places; of one job in ten
		tenants, users int
		limit          *rules.Set
		least          int // starts within 10 s
	}{
		"nothing else": {tenants: 3, users: 10, limit: leak(200), least: 1960},
		"one lane":     {tenants: 1, users: 1, limit: leak(200), least: 1960},
		"a window":     {tenants: 3, users: 10, limit: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 100, Period: time.Second}), least: 990},
		"tenants":      {tenants: 5, users: 10, tenant: leak(60), limit: leak(200), least: 1950},
		"users":        {tenants: 3, users: 40, user: leak(3), limit: leak(200), least: 1950},
		"slow queue":   {tenants: 3, users: 10, queue: leak(50), limit: leak(200), least: 490},
		"queue window": {tenants: 3, users: 10, queue: rules.Compile(0, rules.Rule{Kind: rules.Window, Limit: 20, Period: time.Second}), limit: leak(20_000), least: 200},
		"slow tenants": {tenants: 3, users: 10, tenant: leak(20), limit: leak(200), least: 590},
		"slow users":   {tenants: 3, users: 10, user: leak(1), limit: leak(200), least: 300},
		"costs":        {tenants: 3, users: 10, costs: 3, limit: leak(400), least: 1900},
		"one place":    {tenants: 3, users: 10, places: 1, limit: leak(200), least: 1960},
		"far places":   {tenants: 3, users: 10, ahead: 60_000, limit: leak(200), least: 1940},
		"late jobs":    {tenants: 3, users: 10, late: 300_000, limit: leak(200), least: 1900},
		"late users":   {tenants: 3, users: 40, user: leak(3), late: 300_000, limit: leak(200), least: 1900},
		"late tenants": {tenants: 5, users: 10, tenant: leak(60), late: 300_000, limit: leak(200), least: 1900},
		"another":      {tenants: 3, users: 10, other: leak(100), limit: leak(200), least: 980},
	} {
		t.Run(name, func(t *testing.T) {
			account := namedLimit{name: "account", unit: "cost", bounds: bounds{set: test.limit, shared: true}}
			all := namedLimits{account}
			if test.other != nil {
				all = append(all, namedLimit{name: "other", unit: "jobs", bounds: bounds{set: test.other}})
			}
			s := newShelf(t, &schedule.Policies{Queue: test.queue, Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: test.tenant, User: test.user}}, Named: all})
			s.ahead = test.ahead
			r := &root{set: test.limit, rng: rng, under: map[string]answer{}, given: map[rules.Grant]int{}}
			if test.places > 0 {
				s.places = test.places
			}
			for i := range 6000 {
				s.put(fmt.Sprint("t", i%test.tenants), fmt.Sprint("u", i/test.tenants%test.users), func(e *envelope.Envelope) {
					e.Cost = 1 + rng.IntN(max(1, test.costs))
					if i%10 == 3 {
						e.Late = test.late
					}
				})
			}
			started := 0
			for end := s.now + 10_000_000; s.now < end; s.now += 200 {
				r.serve(s)
				s.decide()
				r.serve(s)
				started += r.used(s, func(schedule.Start) bool { return true })
			}
			t.Logf("%d started, %d granted, %d of them given back", started, r.granted, r.returned)
			if started < test.least {
				t.Errorf("%d have started, want at least %d", started, test.least)
			}
			if r.returned > r.granted/50+10 {
				t.Errorf("%d of %d grants were given back", r.returned, r.granted)
			}
		})
	}
}
