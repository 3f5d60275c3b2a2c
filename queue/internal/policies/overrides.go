package policies

import (
	"maps"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// override lets overrides of the queue, of tenants and of users count. Those of limits by name are values of these limits by
// now ([limits.Compile]).
func override(p *schedule.Policies, f policyfile.File) {
	o := overriding{p, make(map[string]bool)}
	for _, by := range f.Overrides {
		switch by.Limit {
		case limits.Queue:
			b := compileBounds(by.Over(policyfile.Bounds{Limits: f.Queue}))
			p.Queue, p.QueueConcurrency = b.rules, b.concurrency
		case limits.Tenant:
			of := f.Of(by.Values[0])
			b := compileBounds(by.Over(policyfile.Bounds{Limits: of.Tenant, Capacity: of.Capacity}))
			o.tenant(by.Values[0], func(own *schedule.Policy) {
				own.Tenant, own.TenantConcurrency, own.Capacity = b.rules, b.concurrency, b.capacity
			})
		case limits.User:
			of := f.Of(by.Values[0])
			b := compileBounds(by.Over(policyfile.Bounds{Limits: of.User, Capacity: of.UserCapacity}))
			o.tenant(by.Values[0], func(own *schedule.Policy) {
				own.Users[by.Values[1]] = schedule.UserLimit{Rules: b.rules, Concurrency: b.concurrency, Capacity: b.capacity}
			})
		}
	}
}

// A tenant with overrides has a policy of its own: that which it has by the file, changed. It keeps the name.
type overriding struct {
	*schedule.Policies
	own map[string]bool // tenants that have one by now
}

func (o overriding) tenant(name string, change func(*schedule.Policy)) {
	policy := o.Of(name)
	key := " " + name // no policy of a file has a space in its name
	if !o.own[name] {
		if len(o.own) == 0 {
			if o.Tenants = maps.Clone(o.Tenants); o.Tenants == nil {
				o.Tenants = make(map[string]string)
			}
		}
		o.own[name], o.Tenants[name] = true, key
		policy.Users = make(map[string]schedule.UserLimit)
	}
	change(&policy)
	o.Policies.Policies[key] = policy
}
