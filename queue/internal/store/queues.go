package store

import (
	"context"
	"errors"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Queues share nothing but this list of their names. It lies in a hash slot of its own, so no script touches it
// together with keys of a queue. It is for people: a queue that is missing in it works.

// Registry is the sorted set of all queues: name → when a worker or its policies were heard
// of last, in µs.
const Registry = "wc:queues"

// Register notes that there is the queue, and when it was heard of, in two round trips.
func (s *Store) Register(ctx context.Context) error {
	reading, err := s.Clock(ctx)
	if err != nil {
		return err
	}
	return s.client.ZAdd(ctx, Registry, redis.Z{Score: float64(reading.Now), Member: s.Queue}).Err()
}

// Queues returns the names of all queues that were registered, in alphabetical order.
func Queues(ctx context.Context, client redis.UniversalClient) ([]string, error) {
	names, err := client.ZRange(ctx, Registry, 0, -1).Result()
	slices.Sort(names)
	return names, err
}

// Known reports whether anybody has used the queue: it has its own record, or stands in the list. It takes up to two
// round trips.
func (s *Store) Known(ctx context.Context) (bool, error) {
	n, err := s.client.Exists(ctx, s.key.Meta()).Result()
	if err != nil || n > 0 {
		return n > 0, err
	}
	_, err = s.client.ZScore(ctx, Registry, s.Queue).Result()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}
