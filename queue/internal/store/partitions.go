package store

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"sync"
)

// A queue has one partition, as a rule: all its keys begin with wc:{q}: and lie in one hash slot, which one node of a cluster has. A
// queue that is divided has several. Each has the keys of a queue of its own, wc:{q/0}: to wc:{q/<n-1>}:, and with them a hash slot, a
// leader and commits of its own. All jobs of a tenant are in one partition, see [PartitionOf]. What holds for all of them stands under
// wc:{q}: — the policies with their history, and the number of partitions beside them. Each partition has a copy of the policies in
// force.
//
// The number is fixed by whoever writes first: by policies that name it ([Store.SetPolicies]), or by anybody else, and then it is one.

// PartitionOf returns in which of so many partitions the jobs of a tenant are: the FNV-1a hash of its name, of 64 bits, modulo
// their number. It is part of what Redis holds, and never changes.
func PartitionOf(tenant string, of int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tenant)) // never fails
	return int(h.Sum64() % uint64(of))
}

// Partition returns the store of a partition; of the only one there is, the store itself.
func (s *Store) Partition(number, of int) *Store {
	if of == 1 {
		return s
	}
	p := *s
	p.key, p.Number, p.Of = NewKeys(s.Queue+"/"+strconv.Itoa(number)), number, of
	return &p
}

// Name returns the name of the queue or, of a partition, that with its number: push/3.
func (s *Store) Name() string {
	if s.Of == 1 {
		return s.Queue
	}
	return s.Queue + "/" + strconv.Itoa(s.Number)
}

// whole returns the store of what the partitions have in common.
func (s *Store) whole() *Store {
	w := *s
	w.key, w.Number, w.Of = NewKeys(s.Queue), 0, 1
	return &w
}

// divided returns how many partitions a queue has, and whether that is fixed. The store is that of the whole queue.
func (s *Store) divided(ctx context.Context) (n int, fixed bool, err error) {
	pipe := s.client.Pipeline()
	schema, policies := pipe.HMGet(ctx, s.key.Meta(), "schema"), pipe.HMGet(ctx, s.key.Policies(), "partitions", "version")
	err = errors.Join(ask(ctx, pipe), asBroken(schema.Err(), s.key.Meta(), "hash"), asBroken(policies.Err(), s.key.Policies(), "hash"))
	if err != nil {
		return 0, false, err
	}
	used, known := textsOf(schema.Val())[0], textsOf(policies.Val())
	if err := checkSchema(used); err != nil {
		return 0, false, err
	}
	return max(1, int(number(known[0]))), used != "" || known[1] != "", nil
}

// Partitions are the partitions of a queue, each with what somebody has of it: its store, or what works with that. A queue that is not
// divided has one. It is safe for concurrent use.
type Partitions[P any] struct {
	Root *Store // what they have in common

	with func(*Store) P

	mu    sync.Mutex
	known []P
	fixed bool // there will not be others
}

// NewPartitions returns the partitions of a queue. It asks Redis nothing, and makes what somebody has of each when it is asked for
// first.
func NewPartitions[P any](root *Store, with func(*Store) P) *Partitions[P] {
	return &Partitions[P]{Root: root, with: with}
}

// All returns the partitions in the order of their numbers. It takes a round trip, until their number is fixed.
func (p *Partitions[P]) All(ctx context.Context) ([]P, error) {
	p.mu.Lock()
	known, fixed := p.known, p.fixed
	p.mu.Unlock()
	if fixed {
		return known, nil
	}
	n, fixed, err := p.Root.divided(ctx)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fixed {
		return p.known, nil
	}
	if p.fixed = fixed; len(p.known) != n {
		p.known = make([]P, n)
		for k := range p.known {
			p.known[k] = p.with(p.Root.Partition(k, n))
		}
	}
	return p.known, nil
}

// OfTenant returns the partition in which the jobs of a tenant are.
func (p *Partitions[P]) OfTenant(ctx context.Context, tenant string) (one P, err error) {
	all, err := p.All(ctx)
	if err != nil {
		return one, err
	}
	return all[PartitionOf(tenant, len(all))], nil
}

// InEach does something in each of some partitions at once, and returns what comes of it in their order. Where it fails in one it is
// done in the others, and the error has those of all.
func InEach[P, T any](all []P, do func(P) (T, error)) ([]T, error) {
	results, failed := make([]T, len(all)), make([]error, len(all))
	if len(all) == 1 {
		results[0], failed[0] = do(all[0])
		return results, failed[0]
	}
	var group sync.WaitGroup
	for k, p := range all {
		group.Go(func() { results[k], failed[k] = do(p) })
	}
	group.Wait()
	return results, errors.Join(failed...)
}

// ErrDivided is returned where policies name a number of partitions that the queue does not have.
var ErrDivided = errors.New("the number is fixed when a queue is used first")

// CopyPolicies puts policies of a queue with so many partitions in force in one of them, or in what they have in common, under their
// version, unless that or a newer one is in force there. It takes two round trips, and two more if it changes something.
func (s *Store) CopyPolicies(ctx context.Context, p PolicyVersion, partitions int) error {
	for {
		view, err := s.Look(ctx, nil)
		if err != nil {
			return err
		}
		_, old, err := s.Policies(ctx)
		if err != nil || old >= p.Version || view.Policies > p.Version {
			return err
		}
		done, err := s.putInForce(ctx, old, p, partitions, false)
		if err != nil || done {
			return err
		}
	}
}
