package dashboard

import (
	"context"
	"math"

	"github.com/waterclock/waterclock/internal/pace"
	"github.com/waterclock/waterclock/queue"
)

// An allowance is how many starts a second rules allow in the long run.
type allowance struct {
	PerSecond float64 // infinite without rules
	Tenants   int     // how many tenants were looked at
	Guess     bool    // more tenants wait: theirs is taken to be the same
}

// Bounded reports whether any rule bounds the rate.
func (a allowance) Bounded() bool { return !math.IsInf(a.PerSecond, 1) }

// policyOf returns the policy of a tenant, and its name.
func policyOf(p queue.Policies, tenant string) (queue.Policy, string) {
	name, named := p.Tenants[tenant]
	if !named {
		name = p.Default
	}
	return p.Policies[name], name
}

// allowanceSample is how many tenants are looked at.
const allowanceSample = 200

// allowance returns what rules allow, as it was a moment ago.
func (w *watched) allowance(ctx context.Context, waiting int64) (allowance, error) {
	value, err := w.cache.get(ctx, reading{"what rules allow", policiesAge, func(ctx context.Context) (any, error) {
		return w.readAllowance(ctx, waiting)
	}})
	if err != nil {
		return allowance{}, err
	}
	a, _ := value.(allowance)
	return a, nil
}

// readAllowance returns what the rules of the queue and of the tenants that are due first allow.
func (w *watched) readAllowance(ctx context.Context, waiting int64) (allowance, error) {
	p, err := w.policies(ctx)
	if err != nil {
		return allowance{}, err
	}
	now, err := w.inspector.Now(ctx)
	if err != nil || waiting == 0 {
		return allowance{PerSecond: pace.Sustained(p.Policies.Queue, now)}, err
	}
	tenants, _, err := w.inspector.Tenants(ctx, 0, allowanceSample)
	if err != nil {
		return allowance{}, err
	}
	a := allowance{Tenants: len(tenants)}
	seen := int64(0)
	for _, t := range tenants {
		policy, _ := policyOf(p.Policies, t.Tenant)
		a.PerSecond += pace.Sustained(policy.Tenant, now)
		seen += t.Waiting
	}
	if len(tenants) == allowanceSample && seen < waiting {
		a.Guess = true
		a.PerSecond *= float64(waiting) / float64(max(1, seen))
	}
	a.PerSecond = min(a.PerSecond, pace.Sustained(p.Policies.Queue, now))
	return a, nil
}

// policies returns the policies in force, as they were a moment ago.
func (w *watched) policies(ctx context.Context) (queue.PolicyVersion, error) {
	value, err := w.cache.get(ctx, reading{"policies in force", policiesAge, func(ctx context.Context) (any, error) {
		return w.inspector.Policies(ctx)
	}})
	if err != nil {
		return queue.PolicyVersion{}, err
	}
	p, _ := value.(queue.PolicyVersion)
	return p, nil
}
