package dashboard

import (
	"cmp"
	"context"
	"math"
	"net/url"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/pace"
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
	Oldest  time.Time     // when the oldest job was offered
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

// usersShown is how many users are shown, those with most waiting.
const usersShown = 20

func readTenant(ctx context.Context, w *watched, q url.Values) (any, error) {
	name := q.Get("t")
	if name == "" {
		return nil, notFound("Which tenant?")
	}
	stats, err := w.inspector.Tenant(ctx, name)
	if err != nil {
		return nil, err
	}
	backlog, err := w.inspector.Backlog(ctx, name)
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
	v.Allowed = min(pace.Sustained(v.Policy.Tenant, backlog.Now), pace.Sustained(policies.Policies.Queue, backlog.Now))
	v.Bounded = !math.IsInf(v.Allowed, 1)
	v.Users, v.Looked, v.Drains, v.Oldest = backlog.Users, backlog.Looked, backlog.Drains, backlog.Oldest
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
	return v, w.chartsOfTenant(ctx, &v)
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
