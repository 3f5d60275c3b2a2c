// Package policies turns the YAML that Redis keeps into the form that jobs are scheduled by.
package policies

import (
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/throttle"
)

// Compile reads policies as Redis keeps them, with their version, and returns them as jobs are
// scheduled by them at an instant: with the overrides that count then. Version 0 means that there are none.
func Compile(queue, source string, version, now int64) (*schedule.Policies, error) {
	if version == 0 {
		return nil, nil
	}
	f, err := policyfile.ParseKept("policies of queue "+queue, []byte(source))
	if err != nil {
		return nil, err
	}
	return at(f.Across(queue), version, now), nil
}

// at returns policies as they hold at an instant.
func at(f policyfile.File, version, now int64) *schedule.Policies {
	kept := f
	var ends, ended int64
	f.Overrides, ends, ended = f.At(now)
	p := compile(f, version)
	p.Ends, p.Ended = ends, ended
	override(p, f)
	if ends > 0 {
		p.At = func(now int64) *schedule.Policies { return at(kept, version, now) }
	}
	return p
}

// compile returns the policies as jobs are scheduled by them. Distances are widened by the grace,
// so that the starts, which may come that much after their slots, keep them.
func compile(f policyfile.File, version int64) *schedule.Policies {
	c := &schedule.Policies{
		Version: version, Queue: compileRules(f.Queue.Rules), QueueConcurrency: schedule.Concurrency(f.Queue.Concurrency), Default: f.Default, Tenants: f.Tenants,
		Policies: make(map[string]schedule.Policy, len(f.Policies)), Named: compileNamed(f), Partitions: max(1, f.Partitions),
	}
	goesBy(c, f.Queue.Rules)
	for name, p := range f.Policies {
		goesBy(c, p.Tenant.Rules, p.User.Rules)
		c.Personal = c.Personal || p.Digest.Zone == rules.OfUser
		c.Policies[name] = schedule.Policy{
			Name: name, Tenant: compileRules(p.Tenant.Rules), User: compileRules(p.User.Rules),
			Capacity: p.Capacity, UserCapacity: p.UserCapacity, DropOldest: p.DropOldest, MaxWait: p.MaxWait.Microseconds(), ClosedCounts: p.ClosedCounts, Person: personOf(p),
			Digest: digestOf(p.Digest),
			Weight: p.Weight, TenantConcurrency: schedule.Concurrency(p.Tenant.Concurrency), UserConcurrency: schedule.Concurrency(p.User.Concurrency),
		}
	}
	for _, l := range f.Limits {
		goesBy(c, l.Rules)
		for _, b := range l.Each {
			goesBy(c, b.Rules)
		}
	}
	for _, o := range f.Overrides {
		goesBy(c, o.Rules)
	}
	return c
}

// goesBy notes what some of the rules of policies are that cost something where there are any.
func goesBy(p *schedule.Policies, all ...[]throttle.Rule) {
	for _, r := range slices.Concat(all...) {
		p.Hours = p.Hours || r.Kind() == throttle.KindHours
		p.Personal = p.Personal || r.Zone() == rules.OfUser
		p.Zoned = p.Zoned || r.Zone() != "" && r.Zone() != "UTC"
	}
}

func compileRules(from []throttle.Rule) *rules.Set {
	compiled := make([]rules.Rule, len(from))
	for i, r := range from {
		hours, days, holidays := r.Hours()
		from, windows := r.Warmup()
		compiled[i] = rules.Rule{
			Kind: rules.Kind(r.Kind()), Limit: r.Limit(), Period: r.Period(), Burst: r.Burst(), Buckets: r.Buckets(),
			Drop: r.Drops(), Shadow: r.Shadows(), Counts: r.CountsDropped(), Ramp: r.Ramp(),
			Unit: wallclock.Unit(r.Unit()), Zone: r.Zone(), Hours: hours, Days: days, Holidays: holidays, Within: r.Within(),
			From: from, Windows: windows,
		}
	}
	return rules.Compile(schedule.Grace*time.Microsecond, compiled...)
}

// digestOf returns what a policy says of digests. In files UTC is the usual zone.
func digestOf(d policyfile.Digest) schedule.Digest {
	of := schedule.Digest{Max: d.Max, Wait: d.Wait.Microseconds(), Idle: d.Idle.Microseconds()}
	if d.At == "" {
		return of
	}
	bell, err := wallclock.ParseBell(d.At, d.Days)
	if err != nil { // a file with such a time is refused
		return of
	}
	of.At = &bell
	if d.Zone != rules.OfUser {
		of.Zone = time.UTC
		if zone, err := wallclock.Zone(d.Zone); err == nil && d.Zone != "" {
			of.Zone = zone
		}
	}
	return of
}

// personOf returns the clock of users that have set none; nil if the policy has no such default.
func personOf(p policyfile.Policy) *wallclock.Person {
	if p.Zone == "" && p.Quiet == "" {
		return nil
	}
	person, err := wallclock.NewPerson(p.Zone, p.Quiet)
	if err != nil {
		return nil
	}
	return &person
}
