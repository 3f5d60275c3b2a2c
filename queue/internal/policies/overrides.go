package policies

import (
	"maps"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// override lets overrides of the queue, of tenants and of users count, and says of all of them whom they name. Those of limits
// by name are values of these limits by now ([limits.Compile]).
func override(p *schedule.Policies, f policyfile.File) {
	o := overriding{p, make(map[string]bool)}
	p.Overrides = make(map[string]schedule.Override, len(f.Overrides))
	for _, by := range f.Overrides {
		p.Overrides[scopeOf(f, by)] = schedule.Override{
			Until: by.Until, Author: by.Author, Reason: by.Reason,
			Rules: len(by.Rules) > 0, Concurrency: by.Concurrency != (policyfile.Concurrency{}), Capacity: by.Capacity > 0,
		}
		switch by.Limit {
		case limits.Queue:
			if _, across := f.Limits[limits.Queue]; across { // only hours are left here, which the override replaces
				if len(by.Rules) > 0 {
					p.Queue = compileRules(nil)
				}
				continue
			}
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

// scopeOf returns the scope of whom an override names.
func scopeOf(f policyfile.File, o policyfile.Override) string {
	switch o.Limit {
	case limits.Queue:
		if _, across := f.Limits[limits.Queue]; !across {
			return envelope.QueueScope
		}
	case limits.Tenant:
		return envelope.TenantScope(o.Values[0])
	case limits.User:
		return envelope.UserScope(o.Values[0], o.Values[1])
	}
	return envelope.ScopeOfLimit(o.Limit, o.Values)
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
