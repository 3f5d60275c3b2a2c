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
// wc:{q}: — the number of partitions in meta, and the policies with their history. Each partition has a copy of the policies in force.
//
// The number is fixed by whoever writes first: by policies that name it ([Store.SetPolicies]), or by anybody else, and then it is one.

// MostPartitions is how many partitions a queue has at most.
const MostPartitions = 64

// PartitionOf returns in which of so many partitions the jobs of a tenant are: the FNV-1a hash of its name, of 64 bits, modulo
// their number. It is part of what Redis holds, and never changes.
func PartitionOf(tenant string, of int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(tenant)) // never fails
	return int(h.Sum64() % uint64(of))
}

// Partition returns the store of a partition.
func (s *Store) Partition(number, of int) *Store {
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
	fields, err := s.client.HMGet(ctx, s.key.Meta(), "schema", "partitions").Result()
	if err != nil {
		return 0, false, asBroken(err, s.key.Meta(), "hash")
	}
	texts := textsOf(fields)
	if err := checkSchema(texts[0]); err != nil {
		return 0, false, err
	}
	return max(1, int(number(texts[1]))), texts[0] != "", nil
}

// Partitions are the partitions of a queue: itself, if it is not divided. The zero value is of no use.
type Partitions struct {
	Root *Store // what they have in common

	mu    sync.Mutex
	fixed []*Store // when their number is known for good
}

// NewPartitions returns the partitions of a queue. It asks Redis nothing.
func NewPartitions(root *Store) *Partitions { return &Partitions{Root: root} }

// All returns the store of each partition, in the order of their numbers. It takes a round trip, until their number is fixed.
func (p *Partitions) All(ctx context.Context) ([]*Store, error) {
	p.mu.Lock()
	known := p.fixed
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	n, fixed, err := p.Root.divided(ctx)
	if err != nil {
		return nil, err
	}
	all := []*Store{p.Root}
	if n > 1 {
		all = nil
		for k := range n {
			all = append(all, p.Root.Partition(k, n))
		}
	}
	if fixed {
		p.mu.Lock()
		p.fixed = all
		p.mu.Unlock()
	}
	return all, nil
}

// OfTenant returns the store of the partition in which the jobs of a tenant are.
func (p *Partitions) OfTenant(ctx context.Context, tenant string) (*Store, error) {
	all, err := p.All(ctx)
	if err != nil {
		return nil, err
	}
	return all[PartitionOf(tenant, len(all))], nil
}

// ErrDivided is returned where policies name a number of partitions that the queue does not have.
var ErrDivided = errors.New("the number is fixed when a queue is used first")

// CopyPolicies puts policies of the whole queue in force in a partition, under their version, unless that or a newer one is in force
// there. It takes two round trips, and two more if it changes something.
func (s *Store) CopyPolicies(ctx context.Context, p PolicyVersion) error {
	for {
		view, err := s.Look(ctx, nil)
		if err != nil {
			return err
		}
		_, old, err := s.Policies(ctx)
		if err != nil || max(old, view.Policies) >= p.Version {
			return err
		}
		done, err := s.putInForce(ctx, old, p, 0)
		if err != nil || done {
			return err
		}
	}
}
