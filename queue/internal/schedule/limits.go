package schedule

import (
	"math"
	"strconv"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Limit is what limits one scope of a job: its rules, and how much of it runs at once.
type Limit struct {
	Scope       string // as package envelope writes it
	Rules       *rules.Set
	Concurrency Concurrency
}

// Limits returns what limits the jobs of a user: the queue's limit, its tenant's and its own. It
// works on nil, which limits nothing.
func (p *Policies) Limits(tenant, user string) [3]Limit {
	policy := p.Of(tenant)
	all := [3]Limit{
		{Scope: envelope.QueueScope},
		{envelope.TenantScope(tenant), policy.Tenant, policy.TenantConcurrency},
		{envelope.UserScope(tenant, user), policy.User, policy.UserConcurrency},
	}
	if p != nil {
		all[0].Rules, all[0].Concurrency = p.Queue, p.QueueConcurrency
	}
	return all
}

// CountsFor reports whether a concurrency limit counts the jobs of a tenant. It works on nil.
func (p *Policies) CountsFor(tenant string) bool {
	for _, limit := range p.Limits(tenant, "") {
		if limit.Concurrency.Limits() {
			return true
		}
	}
	return false
}

// InForce returns the version of the policies, 0 for nil.
func (p *Policies) InForce() int64 {
	if p == nil {
		return 0
	}
	return p.Version
}

// Remembered are the rules of a scope, and what they remember.
type Remembered struct {
	Rules *rules.Set
	State *rules.State
}

// Earliest returns the first instant from `at` on at which the rules of all three scopes let a job
// of a cost start. They are asked again as long as one of them moves the instant: into the guarded
// end of another one's period, perhaps.
func Earliest(all [3]Remembered, at int64, cost int) int64 {
	for range passes {
		before := at
		for _, r := range all {
			at, _ = r.Rules.Earliest(r.State, at, cost)
		}
		if at == before {
			break
		}
	}
	return at
}

// passes bounds how often all rules are asked.
const passes = 100

// A Concurrency is how many jobs of a subject may run at once: a number, or a share of the
// places of the fleet, at least 1. The zero value is no limit.
//
// Rules say from when a job may start. A concurrency limit cannot: a place is free when a
// job has ended, and nobody knows when that is. What it blocks has no bound until then.
type Concurrency struct{ Jobs, Percent int }

// Limits reports whether there is a limit.
func (c Concurrency) Limits() bool { return c.Jobs > 0 || c.Percent > 0 }

// Most returns how many jobs may run at once if the fleet has so many places.
func (c Concurrency) Most(places int) int {
	switch {
	case c.Jobs > 0:
		return c.Jobs
	case c.Percent > 0:
		return max(1, places*c.Percent/100)
	}
	return math.MaxInt
}

// String returns the limit's name: "concurrency 20", "concurrency 25%", or "" for none.
func (c Concurrency) String() string {
	switch {
	case c.Jobs > 0:
		return "concurrency " + strconv.Itoa(c.Jobs)
	case c.Percent == 0:
		return ""
	}
	return "concurrency " + strconv.Itoa(c.Percent) + "%"
}
