package schedule

import "github.com/waterclock/waterclock/internal/rules"

// Policies say what limits whom, compiled. They are immutable: other policies are another value, by whose address the
// scheduler knows that they have changed.
type Policies struct {
	Version          int64
	Queue            *rules.Set
	QueueConcurrency Concurrency
	Default          string            // name of the policy of tenants that Tenants does not name
	Policies         map[string]Policy // by name
	Tenants          map[string]string // tenant → name of its policy
}

// A Policy is what limits a tenant and each of its users. The zero value limits nothing.
type Policy struct {
	Name                               string
	Tenant, User                       *rules.Set
	TenantConcurrency, UserConcurrency Concurrency
	Capacity                           int   // of the backlog; 0 for no bound
	DropOldest                         bool  // a full backlog drops its oldest job rather than a new one
	Weight                             int   // of its share under overload; 0 counts as 1
	MaxWait                            int64 // µs from when a job may start until it is too late; 0 for no bound
}

// Of returns the policy of a tenant. It works on nil, which limits nothing.
func (p *Policies) Of(tenant string) Policy {
	if p == nil {
		return Policy{}
	}
	name, named := p.Tenants[tenant]
	if !named {
		name = p.Default
	}
	return p.Policies[name]
}

// Counts reports whether the policies limit how much runs at once. It works on nil.
func (p *Policies) Counts() bool {
	if p == nil {
		return false
	}
	if p.QueueConcurrency.Limits() {
		return true
	}
	for _, policy := range p.Policies {
		if policy.TenantConcurrency.Limits() || policy.UserConcurrency.Limits() {
			return true
		}
	}
	return false
}

// Deadline returns the latest start of a job, 0 for none: its own, or so long after the
// instant from which it may start as its policy says.
func (p Policy) Deadline(own, since int64) int64 {
	if own == 0 && p.MaxWait > 0 {
		return since + p.MaxWait
	}
	return own
}
