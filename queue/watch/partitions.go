package watch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

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

// looks are at the partitions of a queue. What is about one tenant is asked in the partition of that tenant; all else in all of them at
// once. The charts are those of the whole queue, and lie where it keeps what its partitions have in common.
type looks struct {
	rdb        redis.UniversalClient
	partitions *store.Partitions

	mu  sync.Mutex
	all map[*store.Store]*look
}

func newLooks(rdb redis.UniversalClient, root *store.Store) *looks {
	return &looks{rdb: rdb, partitions: store.NewPartitions(root), all: make(map[*store.Store]*look)}
}

// at returns the look at a partition.
func (a *looks) at(s *store.Store) *look {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all[s] == nil {
		a.all[s] = &look{s, forecast.NewReader(a.rdb, s)}
	}
	return a.all[s]
}

// of returns the look at the partition of a tenant.
func (w *Watcher) of(ctx context.Context, tenant string) (*look, error) {
	s, err := w.looks.partitions.OfTenant(ctx, tenant)
	if err != nil {
		return nil, w.failed("looking for the partitions of", err)
	}
	return w.looks.at(s), nil
}

// each returns the look at each partition, in the order of their numbers.
func (w *Watcher) each(ctx context.Context) (all []*look, err error) {
	stores, err := w.looks.partitions.All(ctx)
	if err != nil {
		return nil, w.failed("looking for the partitions of", err)
	}
	for _, s := range stores {
		all = append(all, w.looks.at(s))
	}
	return all, nil
}

// inEach looks at each partition at once, and returns what it sees in the order of the partitions. The error names those of which
// something has failed, and says what.
func inEach[T any](ctx context.Context, w *Watcher, doing string, do func(*look) (T, error)) ([]T, error) {
	all, err := w.each(ctx)
	if err != nil {
		return nil, err
	}
	seen, failed := make([]T, len(all)), make([]error, len(all))
	at := func(k int) {
		seen[k], failed[k] = do(all[k])
		failed[k] = all[k].wrapped(doing, failed[k])
	}
	if len(all) == 1 {
		at(0)
		return seen, failed[0]
	}
	var group sync.WaitGroup
	for k := range all {
		group.Go(func() { at(k) })
	}
	group.Wait()
	return seen, errors.Join(failed...)
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
