package queue

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// Policies assign limits to a queue, its tenants and their users. They live in Redis: a change
// holds at once for the whole fleet and for the jobs that wait already. The zero value limits
// nothing.
type Policies struct {
	Queue []throttle.Rule // rules for everything together

	// Concurrency is how many jobs of the queue run at once.
	Concurrency Concurrency

	Default  string            // the policy of tenants that Tenants does not name
	Policies map[string]Policy // by name
	Tenants  map[string]string // tenant → name of its policy
}

// A Policy is the set of rules of a tenant and of each of its users. The zero value
// limits nothing.
type Policy struct {
	Tenant []throttle.Rule // for the tenant as a whole
	User   []throttle.Rule // for each of its users

	// TenantConcurrency and UserConcurrency are how many jobs of the tenant, and of each of
	// its users, run at once.
	TenantConcurrency, UserConcurrency Concurrency

	// Capacity is how many waiting jobs the tenant's backlog holds. Jobs that are scheduled, or
	// back off, do not count. When their time comes they join the backlog even if it is full,
	// since they were accepted. 0 means no bound.
	Capacity int

	// Overflow says what a full backlog does. Defaults to DropNewest.
	Overflow Overflow

	// Weight is the tenant's share where places, or the queue's rules, are short: a tenant of
	// weight 4 gets four starts for one of a tenant of weight 1, if it asks for so many. From
	// 1 to 100; 0 counts as 1.
	Weight int

	// MaxWait is how long jobs without a StartBy may wait after their offer, or after their
	// NotBefore; then they are dropped. 0 means no bound.
	MaxWait time.Duration
}

// Overflow says what a full backlog does with one more job.
type Overflow string

const (
	DropNewest Overflow = "drop_newest" // refuse the new job
	DropOldest Overflow = "drop_oldest" // drop the job that has waited longest
)

// maxWeight is the largest weight of a policy.
const maxWeight = 100

var policyName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// Validate returns an error wrapping [ErrInvalidPolicies] that says where what is wrong
// and what would be right, or nil.
func (p Policies) Validate() error {
	if err := validateRules("queue", p.Queue); err != nil {
		return err
	}
	if err := p.Concurrency.validate("queue.concurrency"); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(p.Policies)) {
		if !policyName.MatchString(name) {
			return invalid("policies", "name %q; 1 to 64 letters, digits, dots, dashes or underscores", name)
		}
		if err := p.Policies[name].validate("policies." + name); err != nil {
			return err
		}
	}
	if err := p.knows("default", p.Default); err != nil && p.Default != "" {
		return err
	}
	for _, tenant := range slices.Sorted(maps.Keys(p.Tenants)) {
		if tenant == "" || len(tenant) > maxName {
			return invalid("tenants", "a tenant's name has 1 to %d bytes, not %d", maxName, len(tenant))
		}
		if err := p.knows(fmt.Sprintf("tenants.%s", tenant), p.Tenants[tenant]); err != nil {
			return err
		}
	}
	return nil
}

func (p Policies) knows(where, name string) error {
	if _, ok := p.Policies[name]; !ok {
		return invalid(where, "there is no policy %q; there are %q", name, slices.Sorted(maps.Keys(p.Policies)))
	}
	return nil
}

func (p Policy) validate(where string) error {
	if err := validateRules(where+".tenant", p.Tenant); err != nil {
		return err
	}
	if err := validateRules(where+".user", p.User); err != nil {
		return err
	}
	if err := p.TenantConcurrency.validate(where + ".tenant.concurrency"); err != nil {
		return err
	}
	if err := p.UserConcurrency.validate(where + ".user.concurrency"); err != nil {
		return err
	}
	switch {
	case p.Capacity < 0:
		return invalid(where+".tenant.capacity", "%d; a number of jobs, or 0 for no bound", p.Capacity)
	case p.Overflow != "" && p.Overflow != DropNewest && p.Overflow != DropOldest:
		return invalid(where+".tenant.overflow", "%q; %s or %s", p.Overflow, DropNewest, DropOldest)
	case p.Weight < 0 || p.Weight > maxWeight:
		return invalid(where+".weight", "%d; 1 to %d, or 0 for 1", p.Weight, maxWeight)
	case p.MaxWait < 0 || 0 < p.MaxWait && p.MaxWait < time.Millisecond:
		return invalid(where+".max_wait", "%v; a time such as 15m, at least 1ms, or 0 for no bound", p.MaxWait)
	}
	return nil
}

func validateRules(where string, rules []throttle.Rule) error {
	for i, r := range rules {
		if err := r.Validate(); err != nil {
			return fmt.Errorf("%w: %s.rules[%d]: %w", ErrInvalidPolicies, where, i, err)
		}
	}
	return nil
}

func invalid(where, format string, args ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalidPolicies, where, fmt.Sprintf(format, args...))
}
