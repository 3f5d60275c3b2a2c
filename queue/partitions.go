package queue

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A parts has an inspector of each partition of a queue. What is about one tenant is asked in the partition of that tenant; all else
// in all of them at once.
type parts struct {
	partitions *store.Partitions

	mu  sync.Mutex
	all map[*store.Store]*Inspector
}

// at returns an inspector of a partition that notes with its acts who did them.
func (p *parts) at(rdb redis.UniversalClient, s *store.Store, n Note) *Inspector {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := p.all[s]
	if known == nil {
		known = &Inspector{rdb: rdb, store: s, forecasts: forecast.NewReader(rdb, s), parts: p}
		p.all[s] = known
	}
	i := *known
	i.note, i.one = n, true
	return &i
}

// of returns an inspector of the partition of a tenant.
func (i *Inspector) of(ctx context.Context, tenant string) (*Inspector, error) {
	if i.one {
		return i, nil
	}
	s, err := i.parts.partitions.OfTenant(ctx, tenant)
	if err != nil {
		return nil, i.failed("looking for the partitions of", err)
	}
	return i.parts.at(i.rdb, s, i.note), nil
}

// each returns an inspector of each partition.
func (i *Inspector) each(ctx context.Context) (all []*Inspector, err error) {
	if i.one {
		return []*Inspector{i}, nil
	}
	stores, err := i.parts.partitions.All(ctx)
	if err != nil {
		return nil, i.failed("looking for the partitions of", err)
	}
	for _, s := range stores {
		all = append(all, i.parts.at(i.rdb, s, i.note))
	}
	return all, nil
}

// inEach does something in each partition at once, and returns what comes of it in the order of the partitions. If it fails in some of
// them it is done in the others, and the error names those.
func inEach[T any](ctx context.Context, i *Inspector, do func(*Inspector) (T, error)) ([]T, error) {
	all, err := i.each(ctx)
	if err != nil {
		return nil, err
	}
	if len(all) == 1 {
		one, err := do(all[0])
		return []T{one}, err
	}
	results, failed := make([]T, len(all)), make([]error, len(all))
	var group sync.WaitGroup
	for k, p := range all {
		group.Go(func() { results[k], failed[k] = do(p) })
	}
	group.Wait()
	return results, errors.Join(failed...)
}

// doEach is inEach for what has no result.
func doEach(ctx context.Context, i *Inspector, do func(*Inspector) error) error {
	_, err := inEach(ctx, i, func(p *Inspector) (struct{}, error) { return struct{}{}, do(p) })
	return err
}

// page returns a page of a list that the partitions have in common, in an order, and whether others may follow. To read the page from
// a place on takes as many items of each partition as lie before it.
func page[T any](ctx context.Context, i *Inspector, from, n int, read func(p *Inspector, from, n int) ([]T, error), order func(a, b T) int) (all []T, more bool, err error) {
	lists, err := inEach(ctx, i, func(p *Inspector) ([]T, error) {
		if p.store.Of == 1 {
			return read(p, from, n)
		}
		return read(p, 0, from+n)
	})
	if err != nil {
		return nil, false, err
	}
	if len(lists) == 1 {
		return lists[0], len(lists[0]) == n, nil
	}
	all = slices.Concat(lists...)
	slices.SortStableFunc(all, order)
	all = all[min(from, len(all)):]
	return all[:min(n, len(all))], len(all) >= n, nil
}
