package schedule

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Limit is what limits one scope of a job: its rules, how much of it runs at once, and how much waits.
type Limit struct {
	Scope       string // as package envelope writes it
	Rules       *rules.Set
	Concurrency Concurrency
	Capacity    int     // waiting jobs; 0 for no bound
	Shared      *Shared // the rules count what other queues and callers do, too; nil if they do not
	Leased      bool    // the concurrency limit counts jobs of other partitions, too: its places are leased
}

// Uses returns what limits the jobs of a lane: the queue's limit, its tenant's and its user's, and then the limits by
// name. Of the job nil the latter are those of the lane's label, and what it costs them is not known. It works on nil, which
// limits nothing.
func (p *Policies) Uses(lane envelope.Lane, env *envelope.Envelope) []Use {
	if env == nil && p != nil && p.Named != nil {
		return slices.Concat(p.common(lane, env), p.Named.Lane(lane))
	}
	uses, _, _ := p.Job(lane, env)
	return uses
}

// Job returns what limits a job of a user, as [Policies.Uses] does, and the label of the lane in which it waits. The error says
// why the job is invalid: it lacks what a limit needs, or too many limits are about it. It works on nil.
func (p *Policies) Job(lane envelope.Lane, env *envelope.Envelope) (uses []Use, label string, invalid error) {
	uses = p.common(lane, env)
	if p == nil || p.Named == nil || env == nil {
		return uses, "", nil
	}
	all, label, invalid := p.Named.Job(uses, lane, env)
	if label != "" && all[2].Capacity > 0 {
		label = envelope.CountedUser + "&" + label
	}
	return all, label, invalid
}

// commonLimits is how many limits every job has: those of the queue, of its tenant, of its user. They come before those by name.
const commonLimits = 3

// usualNamed is for how many limits by name there is room beside them.
const usualNamed = 3

// common returns the limits that every job has.
func (p *Policies) common(lane envelope.Lane, env *envelope.Envelope) []Use {
	policy, cost := p.Of(lane.Tenant), 1
	user := policy.OfUser(lane.User)
	if env != nil {
		cost = env.Cost
	}
	room := commonLimits
	if p != nil && p.Named != nil {
		room += usualNamed
	}
	all := append(make([]Use, 0, room), []Use{
		{Name: queueLimit, Cost: cost, Limit: Limit{Scope: envelope.QueueScope}},
		{Name: "tenant", Cost: cost, Limit: Limit{Scope: envelope.TenantScope(lane.Tenant), Rules: policy.Tenant, Concurrency: policy.TenantConcurrency, Capacity: policy.Capacity}},
		{Name: "user", Cost: cost, Limit: Limit{Scope: envelope.UserScope(lane.Tenant, lane.User), Rules: user.Rules, Concurrency: user.Concurrency, Capacity: user.Capacity}, OfUser: true},
	}...)
	if p == nil {
		return all
	}
	all[0].Rules, all[0].Concurrency = p.Queue, p.QueueConcurrency
	return all
}

// RuleName returns the name of a rule of a limit, by its number, as it stands in drops and counters: "window 10/1m", or
// "marketing: window 5/24h" of a limit by name.
func (l Limit) RuleName(rule int) string {
	name, _, named := envelope.ParseLimitScope(l.Scope)
	if !named {
		name = ""
	}
	return nameOf(name, l.Rules.Name(rule))
}

// queueLimit is the name of the queue's limit, also where the partitions of a queue share it as a limit by name.
const queueLimit = "queue"

// nameOf returns the name of a rule or a concurrency limit of a limit by name, or of one that everybody has ("").
func nameOf(limit, rule string) string {
	if limit == "" || limit == queueLimit {
		return rule
	}
	return limit + ": " + rule
}

// Limit returns the limit by name of a scope; false if there is none. It works on nil.
func (p *Policies) Limit(scope string) (Limit, bool) {
	if p == nil || p.Named == nil {
		return Limit{}, false
	}
	return p.Named.Scope(scope)
}

// Label returns the label of the lane in which a job of a user waits. It works on nil.
func (p *Policies) Label(lane envelope.Lane, env *envelope.Envelope) string {
	if p == nil || p.Named == nil {
		return ""
	}
	_, label, _ := p.Job(lane, env)
	return label
}

// CapacityName returns the name of the capacity of a user or of a limit by name, as it stands in receipts and drops:
// "capacity of user ann", or "capacity of limit domain (gmail.com)".
func (l Limit) CapacityName() string {
	name, values, named := envelope.ParseLimitScope(l.Scope)
	switch {
	case !named:
		_, user := envelope.ParseScope(l.Scope)
		return "capacity of user " + user
	case len(values) == 0:
		return "capacity of limit " + name
	}
	return "capacity of limit " + name + " (" + strings.Join(values, ",") + ")"
}

// CountsFor reports whether a concurrency limit counts the jobs of a tenant. It works on nil.
func (p *Policies) CountsFor(tenant string) bool {
	if p == nil {
		return false
	}
	return p.QueueConcurrency.Limits() || p.Of(tenant).counts() || p.Named != nil && p.Named.Counts()
}

// InForce returns the version of the policies, 0 for nil.
func (p *Policies) InForce() int64 {
	if p == nil {
		return 0
	}
	return p.Version
}

// Remembered are the rules of a scope, what they remember, and what a job costs under them.
type Remembered struct {
	Rules *rules.Set
	State *rules.State
	Cost  int
}

// Earliest returns the first instant from `at` on at which the rules of all scopes let a job
// start. They are asked again as long as one of them moves the instant: into the guarded
// end of another one's period, perhaps.
func Earliest(all []Remembered, at int64) int64 {
	for range passes {
		before := at
		for _, r := range all {
			at, _ = r.Rules.Earliest(r.State, at, r.Cost)
		}
		if at == before {
			break
		}
	}
	return at
}

// Admitted returns the first instant from `at` on at which the rules of all scopes let a job start. Rules that drop move it by no more
// than `reach`, which is how far ahead slots may lie, or to their newest slot ([rules.Set.Soon]).
func Admitted(all []Remembered, at, reach int64) int64 {
	slot := Earliest(all, at)
	by := slot + reach
	for range passes {
		before := slot
		for _, r := range all {
			slot = r.Rules.Soon(r.State, slot, by, r.Cost)
		}
		if slot == before {
			break
		}
		slot = Earliest(all, slot)
	}
	return slot
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
