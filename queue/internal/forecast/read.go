package forecast

import (
	"cmp"
	"context"
	"math"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// A Reader reads forecasts of a queue. It is safe for concurrent use.
type Reader struct {
	Store    *store.Store
	Policies *PolicyCache
	limiter  *throttle.Limiter // decides about shared limits
}

// NewReader returns a reader of a queue, and of the shared limits in the same Redis.
func NewReader(rdb redis.UniversalClient, s *store.Store) *Reader {
	return &Reader{s, NewPolicyCache(s), throttle.New(throttle.NewRedisStore(rdb, limits.SharedKeys))}
}

// Of reads when jobs of a user may start. The lanes are those that somebody asks about: their labels say
// which limits by name there are.
func (r *Reader) Of(ctx context.Context, tenant, user string, lanes ...store.Lane) (*Forecast, error) {
	for range 2 { // the policies that were known may not be those in force
		policies := r.Policies.Known()
		scopes := Scopes(tenant, user)
		if policies.OfUsers() {
			scopes = append(scopes, envelope.PersonScope(tenant, user))
		}
		for _, lane := range lanes {
			for _, use := range policies.Uses(lane, nil)[len(Scopes("", "")):] {
				scopes = append(scopes, use.Scope)
			}
		}
		slices.Sort(scopes)
		p, err := r.read(ctx, slices.Compact(scopes), []string{tenant})
		if err != nil || p.Policies == policies || len(lanes) == 0 && !p.Policies.OfUsers() {
			return p, err
		}
	}
	return r.read(ctx, Scopes(tenant, user), []string{tenant})
}

// OfAll reads when jobs of users may start, each of the tenant at the same place.
func (r *Reader) OfAll(ctx context.Context, tenants, users []string) (*Forecast, error) {
	var all []string
	for k, tenant := range tenants {
		all = append(all, Scopes(tenant, users[k])...)
		if r.Policies.Known().OfUsers() {
			all = append(all, envelope.PersonScope(tenant, users[k]))
		}
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
	policies, err := r.Policies.At(ctx, view.Policies, view.Now)
	var running *Census
	if err == nil && slices.ContainsFunc(tenants, policies.CountsFor) {
		running, err = Take(ctx, r.Store, policies, view.Now)
	}
	if err != nil {
		return nil, err
	}
	return r.forecast(ctx, policies, view, scopes, running), nil
}

// A First is the first job of a lane.
type First struct {
	Lane store.Lane
	Job  *envelope.Envelope
}

// Next returns that of the first jobs of a user's lanes which may start first; of those that may start at one instant, the
// first one.
func (p *Forecast) Next(firsts []First) (next First) {
	soonest := int64(math.MaxInt64)
	for _, first := range firsts {
		at, known := p.Start(first.Lane, first.Job)
		if !known {
			at = p.Now
		}
		if next.Job == nil || max(at, p.Now) < soonest {
			next, soonest = first, max(at, p.Now)
		}
	}
	return next
}

// OfFirsts reads when the first jobs of a user's lanes may start, how many jobs of the user wait, and which are the first ones.
func (r *Reader) OfFirsts(ctx context.Context, tenant, user string) (p *Forecast, waiting int, firsts []First, err error) {
	if p, err = r.Of(ctx, tenant, user); err != nil {
		return nil, 0, nil, err
	}
	if waiting, firsts, err = r.firsts(ctx, tenant, user); err != nil {
		return nil, 0, nil, err
	}
	var labelled []store.Lane
	for _, first := range firsts {
		if first.Lane.Label != "" {
			labelled = append(labelled, first.Lane)
		}
	}
	if len(labelled) > 0 {
		p, err = r.Of(ctx, tenant, user, labelled...)
	}
	return p, waiting, firsts, err
}

// firsts returns how many jobs of a user wait, and the first of each lane, that which is served first before the others.
func (r *Reader) firsts(ctx context.Context, tenant, user string) (waiting int, firsts []First, err error) {
	lanes, err := r.Lanes(ctx, tenant, user)
	if err != nil {
		return 0, nil, err
	}
	lengths, err := r.Store.Lengths(ctx, lanes)
	if err != nil {
		return 0, nil, err
	}
	for _, n := range lengths {
		waiting += int(n)
	}
	entries, err := r.Store.Entries(ctx, store.FirstPages(lanes, 1))
	for _, entry := range entries {
		if job, _ := envelope.Open(entry.Job); job != nil {
			firsts = append(firsts, First{entry.Lane, job})
		}
	}
	return waiting, firsts, err
}

// Lanes returns the lanes of a user, those that are served first before the others: one for each priority, and those
// in which jobs wait that are subject to limits by name.
func (r *Reader) Lanes(ctx context.Context, tenant, user string) ([]store.Lane, error) {
	lanes := plainLanes(tenant, user)
	if r.Policies.Known() == nil {
		if err := r.Policies.Reload(ctx); err != nil {
			return nil, err
		}
	}
	if known := r.Policies.Known(); known == nil || known.Named == nil { // there are no labels, or not for long
		return lanes, nil
	}
	labelled, err := r.Store.LabelledLanes(ctx, tenant, user)
	lanes = append(lanes, labelled...)
	slices.SortStableFunc(lanes, func(a, b store.Lane) int { return cmp.Compare(a.Priority, b.Priority) })
	return lanes, err
}

// Scopes returns the scopes that limit or pause every job of a user: the queue, the tenant, the user.
func Scopes(tenant, user string) (all []string) {
	for _, limit := range (*schedule.Policies)(nil).Uses(store.Lane{Tenant: tenant, User: user}, nil) {
		all = append(all, limit.Scope)
	}
	return all
}

// plainLanes returns the lanes of a user without limits by name.
func plainLanes(tenant, user string) []store.Lane {
	return []store.Lane{{Tenant: tenant, User: user, Priority: envelope.High},
		{Tenant: tenant, User: user, Priority: envelope.Normal}, {Tenant: tenant, User: user, Priority: envelope.Low}}
}
