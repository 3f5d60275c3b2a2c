package dashboard

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/queue"
)

// A tenantView is the page of a tenant.
type tenantView struct {
	Now     time.Time
	Stats   queue.TenantStats
	Policy  queue.Policy
	Name    string  // of the policy
	Rate    float64 // of starts, lately; negative if nobody knows
	Allowed float64 // a second, by its rules
	Bounded bool
	Drains  time.Duration // if nothing comes
	Why     string
	Because queue.Explanation
	First   string // the user that is due first
	Users   []queue.UserStats
	Looked  int // among how many users
	Pauses  []queue.Pause
	Dead    bool
	Span    string
	Spans   []string
	Charts  []chart // of the tenants with most waiting
}

// userSample is how many users are looked at to find those that have most waiting.
const userSample, usersShown = 200, 20

func readTenant(ctx context.Context, w *watched, q url.Values) (any, error) {
	name := q.Get("t")
	if name == "" {
		return nil, notFound("Which tenant?")
	}
	stats, err := w.inspector.Tenant(ctx, name)
	if err != nil {
		return nil, err
	}
	v := tenantView{Stats: stats, Rate: w.rates.of(name, stats.Started), Spans: tenantSpans, Span: q.Get("span")}
	if !slices.Contains(v.Spans, v.Span) {
		v.Span = v.Spans[0]
	}
	policies, err := w.policies(ctx)
	if err != nil {
		return nil, err
	}
	v.Policy, v.Name = policyOf(policies.Policies, name)
	v.Allowed = min(sustained(v.Policy.Tenant), sustained(policies.Policies.Queue))
	v.Bounded = !math.IsInf(v.Allowed, 1)
	if v.Users, err = w.inspector.Users(ctx, name, 0, userSample); err != nil {
		return nil, err
	}
	v.Looked = len(v.Users)
	if v.Looked > 0 {
		v.First = v.Users[0].User
	}
	if v.Because, err = w.inspector.Explain(ctx, name, v.First); err != nil {
		return nil, err
	}
	v.Now = v.Because.Now
	if v.First != "" {
		v.Why = human.Why(v.Because, name, v.First)
	}
	slices.SortStableFunc(v.Users, func(a, b queue.UserStats) int { return cmp.Compare(b.Waiting, a.Waiting) })
	v.Users = v.Users[:min(usersShown, len(v.Users))]
	if v.Pauses, err = w.pausesOf(ctx, name, ""); err != nil {
		return nil, err
	}
	v.Drains = v.longest()
	return v, w.chartsOfTenant(ctx, &v)
}

// longest returns how long the backlog takes, by the tenant's rules and by those of its users, when
// the pauses have ended; 0 if nobody knows.
func (v tenantView) longest() time.Duration {
	takes, _ := drains(v.Stats.Waiting, v.Allowed)
	each := sustained(v.Policy.User)
	for _, u := range v.Users {
		if d, ok := drains(int64(u.Waiting), each); ok {
			takes = max(takes, d)
		}
	}
	if takes == 0 {
		return 0
	}
	held := time.Duration(0)
	for _, p := range v.Pauses {
		held = max(held, p.Until.Sub(v.Now))
	}
	return held + takes
}

// pausesOf returns the pauses that hold a tenant, or a user of it, back.
func (w *watched) pausesOf(ctx context.Context, tenant, user string) ([]queue.Pause, error) {
	all, err := w.inspector.Pauses(ctx)
	return slices.DeleteFunc(all, func(p queue.Pause) bool {
		switch p.Scope {
		case queue.ScopeTenant:
			return p.Tenant != tenant
		case queue.ScopeUser:
			return p.Tenant != tenant || p.User != user
		}
		return p.Scope == queue.ScopeLimit // of some jobs only
	}), err
}
