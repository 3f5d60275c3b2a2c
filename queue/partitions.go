package queue

import (
	"context"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// What is about one tenant is asked in the partition of that tenant; all else in all of them at once.

// of returns an inspector of the partition of a tenant.
func (i *Inspector) of(ctx context.Context, tenant string) (*Inspector, error) {
	if i.partitions == nil {
		return i, nil
	}
	one, err := i.partitions.OfTenant(ctx, tenant)
	if err != nil {
		return nil, i.failed("looking for the partitions of", err)
	}
	return one.As(i.note), nil
}

// each returns an inspector of each partition.
func (i *Inspector) each(ctx context.Context) (all []*Inspector, err error) {
	if i.partitions == nil {
		return []*Inspector{i}, nil
	}
	known, err := i.partitions.All(ctx)
	if err != nil {
		return nil, i.failed("looking for the partitions of", err)
	}
	for _, one := range known {
		all = append(all, one.As(i.note))
	}
	return all, nil
}

// inEach does something in each partition, as [store.InEach] does.
func inEach[T any](ctx context.Context, i *Inspector, do func(*Inspector) (T, error)) ([]T, error) {
	all, err := i.each(ctx)
	if err != nil {
		return nil, err
	}
	return store.InEach(all, do)
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
