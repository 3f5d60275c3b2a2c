package forecast

import (
	"context"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Reader reads forecasts of a queue. It is safe for concurrent use.
type Reader struct {
	Store    *store.Store
	Policies *PolicyCache
}

// NewReader returns a reader of a queue.
func NewReader(s *store.Store) *Reader { return &Reader{s, NewPolicyCache(s)} }

// Of reads when jobs of a user may start.
func (r *Reader) Of(ctx context.Context, tenant, user string) (*Forecast, error) {
	return r.read(ctx, Scopes(tenant, user), []string{tenant})
}

// OfAll reads when jobs of users may start, each of the tenant at the same place.
func (r *Reader) OfAll(ctx context.Context, tenants, users []string) (*Forecast, error) {
	var all []string
	for k, tenant := range tenants {
		all = append(all, Scopes(tenant, users[k])...)
	}
	slices.Sort(all)
	return r.read(ctx, slices.Compact(all), tenants)
}

// read reads when jobs of some tenants may start, as far as scopes say it.
func (r *Reader) read(ctx context.Context, scopes, tenants []string) (*Forecast, error) {
	view, err := r.Store.Look(ctx, scopes)
	if err != nil {
		return nil, err
	}
	policies, err := r.Policies.At(ctx, view.Policies)
	var running *Census
	if err == nil && slices.ContainsFunc(tenants, policies.CountsFor) {
		running, err = Take(ctx, r.Store, view.Now)
	}
	return New(policies, view, running), err
}

// Next returns how many jobs of a user wait, and the next; nil if none does.
func (r *Reader) Next(ctx context.Context, tenant, user string) (int, *envelope.Envelope, error) {
	lanes, all := Lanes(tenant, user), 0
	lengths, err := r.Store.Lengths(ctx, lanes)
	if err != nil {
		return 0, nil, err
	}
	var pages []store.Page
	for k, lane := range lanes {
		all += int(lengths[k])
		pages = append(pages, store.Page{Lane: lane, N: 1})
	}
	firsts, err := r.Store.Entries(ctx, pages)
	for _, first := range firsts {
		if next, _ := envelope.Open(first.Job); next != nil {
			return all, next, err
		}
	}
	return all, nil, err
}

// Scopes returns the scopes that limit or pause a user: the queue, the tenant, the user.
func Scopes(tenant, user string) (all []string) {
	for _, limit := range (*schedule.Policies)(nil).Limits(tenant, user) {
		all = append(all, limit.Scope)
	}
	return all
}

// Lanes returns the lanes of a user, that which is served first before the others.
func Lanes(tenant, user string) []store.Lane {
	return []store.Lane{{Tenant: tenant, User: user, Priority: envelope.High},
		{Tenant: tenant, User: user, Priority: envelope.Normal}, {Tenant: tenant, User: user, Priority: envelope.Low}}
}
