package queue

import (
	"math/bits"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A picture is what says, at one instant, when jobs may start.
type picture struct {
	now      int64
	policies *schedule.Policies
	pauses   map[string]int64
	states   map[string]string
	subjects map[string]*subject
	census   *census // nil where no concurrency limit counts
}

// A subject is a scope as it was then.
type subject struct {
	set    *rules.Set
	state  rules.State
	known  bool // its state can be read
	paused int64
	says   []int64 // since when each rule allows a job, see soonest
}

func newPicture(policies *schedule.Policies, v store.View) *picture {
	return &picture{now: v.Now, policies: policies, pauses: v.Pauses, states: v.States, subjects: make(map[string]*subject)}
}

// subjectsOf returns the queue, a tenant and a user of it.
func (p *picture) subjectsOf(tenant, user string) (all [3]*subject) {
	for i, limit := range limits(p.policies, tenant, user) {
		if p.subjects[limit.scope] == nil {
			s := &subject{set: limit.set, paused: p.pauses[limit.scope]}
			s.known = s.state.Decode(p.states[limit.scope]) == nil
			p.subjects[limit.scope] = s
		}
		all[i] = p.subjects[limit.scope]
	}
	return all
}

// passes bounds how often subjects are asked again because another has moved the instant.
const passes = 100

// earliest returns the first instant at which pauses and rules let a job of a user start.
// It is false where that is not known.
func (p *picture) earliest(tenant, user string, cost int) (int64, bool) {
	return p.earliestFrom(p.now, tenant, user, cost)
}

// earliestFrom returns the first instant from one on, which may have passed: for how long a
// job could have started is counted from there.
func (p *picture) earliestFrom(at int64, tenant, user string, cost int) (int64, bool) {
	subjects := p.subjectsOf(tenant, user)
	for _, s := range subjects {
		at = max(at, s.paused)
	}
	for range passes {
		before := at
		for _, s := range subjects {
			if !s.known {
				return 0, false
			}
			at, _ = s.set.Earliest(&s.state, at, cost)
		}
		if at == before {
			break
		}
	}
	return at, true
}

// ahead is how many jobs stand before one.
type ahead struct{ tenant, user int }

// estimate says when a job of a user may start that has so many before it.
func (p *picture) estimate(tenant, user string, before ahead) Estimate {
	limit := p.crowded(tenant, user, before)
	return Estimate{Start: instant(p.turn(tenant, user, before)), AtEarliest: limit != "", Limit: limit}
}

// turn computes when the rules let a job of a user start if no job with an earlier turn is added.
// A subject whose state cannot be read counts as one without: so it does for the leader.
func (p *picture) turn(tenant, user string, before ahead) int64 {
	s := p.subjectsOf(tenant, user)
	open := max(p.now, s[0].paused, s[1].paused)
	at := max(open, s[2].paused)
	for i, k := range [3]int{0, before.tenant, before.user} {
		from := open
		if i == 2 {
			from = max(p.now, s[2].paused)
		}
		if s[i].known {
			at = max(at, s[i].after(from, int64(max(0, k))))
		}
	}
	return at
}

// after guesses when the subject lets a job start that has k before it: what each rule
// says now, and its period for every Limit jobs.
func (s *subject) after(from, k int64) int64 {
	if s.says == nil {
		s.says = s.soonest(from)
	}
	at := from
	for i, since := range s.says {
		if rule := s.set.Rule(i); !rule.Drop && !rule.Shadow {
			at = max(at, min(since+takes(rule, k), rules.Never))
		}
	}
	return at
}

// soonest returns when each rule allows a job of cost 1.
func (s *subject) soonest(from int64) []int64 {
	says := make([]int64, s.set.Len())
	for i := range says {
		says[i] = s.set.When(&s.state, i, from, 1)
	}
	return says
}

// takes returns how long a rule takes for k jobs of cost 1, in microseconds.
func takes(rule rules.Rule, k int64) int64 {
	period, n := uint64(rule.Period.Microseconds()), uint64(rule.Limit)
	if rule.Kind == rules.Window || rule.Kind == rules.Spacing {
		period += uint64(Grace.Microseconds()) // see Grace
	}
	if rule.Kind != rules.Leak { // n at once
		k -= k % int64(n)
	}
	high, low := bits.Mul64(uint64(k), period)
	if high >= n {
		return rules.Never
	}
	took, _ := bits.Div64(high, low, n)
	return int64(min(took, uint64(rules.Never)))
}
