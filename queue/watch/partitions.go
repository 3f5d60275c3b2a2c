package watch

import (
	"context"
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A look is at one partition of a queue. A queue that is not divided has one.
type look struct {
	store     *store.Store
	forecasts *forecast.Reader
}

// wrapped says what of a partition has failed; nil for nil.
func (l *look) wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s queue %q: %w", doing, l.store.Name(), err)
}

// What is about one tenant is asked in the partition of that tenant; all else in all of them at once. The charts are those of the whole
// queue, and lie where it keeps what its partitions have in common.

// of returns the look at the partition of a tenant.
func (w *Watcher) of(ctx context.Context, tenant string) (*look, error) {
	l, err := w.partitions.OfTenant(ctx, tenant)
	return l, w.wrapped("looking for the partitions of", err)
}

// each returns the look at each partition, in the order of their numbers.
func (w *Watcher) each(ctx context.Context) ([]*look, error) {
	all, err := w.partitions.All(ctx)
	return all, w.wrapped("looking for the partitions of", err)
}

// inEach looks at each partition at once, and returns what it sees in the order of the partitions. The error names those of which
// something has failed, and says what.
func inEach[T any](ctx context.Context, w *Watcher, doing string, do func(*look) (T, error)) ([]T, error) {
	all, err := w.each(ctx)
	if err != nil {
		return nil, err
	}
	return store.InEach(all, func(l *look) (T, error) {
		seen, err := do(l)
		return seen, l.wrapped(doing, err)
	})
}

// ofTenants looks at tenants, at those of all partitions at once, and returns what it sees of each tenant at the place of its name.
func ofTenants[T any](ctx context.Context, w *Watcher, doing string, tenants []string, do func(*look, []string) ([]T, error)) ([]T, error) {
	all := make([]T, len(tenants))
	_, err := inEach(ctx, w, doing, func(l *look) (struct{}, error) {
		var names []string
		var places []int
		for k, tenant := range tenants {
			if store.PartitionOf(tenant, l.store.Of) == l.store.Number {
				names, places = append(names, tenant), append(places, k)
			}
		}
		if len(names) == 0 {
			return struct{}{}, nil
		}
		seen, err := do(l, names)
		for k, one := range seen {
			all[places[k]] = one
		}
		return struct{}{}, err
	})
	return all, err
}

// tenants returns the state of tenants.
func (w *Watcher) tenants(ctx context.Context, names []string) ([]store.TenantView, error) {
	return ofTenants(ctx, w, "inspecting", names, func(l *look, names []string) ([]store.TenantView, error) { return l.store.Tenants(ctx, names) })
}

// due returns the tenants that are due first, about n, those of one partition after those of another.
func (w *Watcher) due(ctx context.Context, n int) ([]string, error) {
	names, err := inEach(ctx, w, "inspecting", func(l *look) ([]string, error) { return l.store.DuePage(ctx, 0, l.share(n)) })
	return slices.Concat(names...), err
}

// leastShare is how many of n things are looked at in each partition at least.
const leastShare = 5

// share returns how many of n things are looked at in this partition: as many as in each other one, so that a queue that is divided
// does not cost much more.
func (l *look) share(n int) int { return max(n/l.store.Of, min(n, leastShare)) }
