// Package doctor examines the keys of a queue, and mends what should not be there.
//
// Workers keep a queue sound. What comes from elsewhere, a key of another type or a Redis that was
// restored from an old copy, is found by [Doctor.Examine] and mended, as far as that is safe while
// the queue runs, by [Doctor.Repair].
package doctor

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/examine"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Doctor examines and mends a queue. It is safe for concurrent use.
type Doctor struct {
	rdb   redis.UniversalClient
	queue *store.Store
}

// New returns the doctor of a queue. The error wraps [queue.ErrInvalidArgument].
func New(rdb redis.UniversalClient, name string) (*Doctor, error) {
	if _, err := queue.NewInspector(rdb, name); err != nil {
		return nil, err
	}
	s, err := store.New(rdb, name)
	return &Doctor{rdb, s}, err
}

// examiner returns the examiner of the queue, or of a partition of it.
func (d *Doctor) examiner(s *store.Store) *examine.Examiner {
	forecasts := forecast.NewReader(d.rdb, s)
	return &examine.Examiner{
		Client: d.rdb, Store: s,
		Policies: func(ctx context.Context) (*schedule.Policies, error) {
			err := forecasts.Policies.Reload(ctx)
			return forecasts.Policies.Known(), err
		},
		Earliest: func(ctx context.Context, lane store.Lane, job *envelope.Envelope) (int64, bool, error) {
			p, err := forecasts.Of(ctx, lane.Tenant, lane.User, lane)
			if err != nil {
				return 0, false, err
			}
			at, known := p.Earliest(lane, job)
			return at, known, nil
		},
	}
}

// each does something for the queue, and then for each of its partitions if it has several. How many there are is asked when the queue
// itself is mended, of which a key says so. What fails for one of them is done for the others.
func (d *Doctor) each(ctx context.Context, do func(*examine.Examiner) error) error {
	failed := do(d.examiner(d.queue))
	all, err := store.NewPartitions(d.queue, d.examiner).All(ctx)
	switch {
	case errors.Is(err, store.ErrBrokenKey):
		return failed // that key is among the damages of the queue
	case err != nil:
		return errors.Join(failed, err)
	case len(all) == 1:
		return failed
	}
	for number, e := range all {
		if err := do(e); err != nil {
			failed = errors.Join(failed, fmt.Errorf("partition %d: %w", number, err))
		}
	}
	return failed
}

// A Damage is something in Redis that should not be: a key of another type, a lane that no
// index names, counters that do not add up.
type Damage struct {
	Kind    string `json:"kind"` // such as "type", "lane", "counters"
	Key     string `json:"key"`  // in Redis
	Seen    string `json:"seen"`
	Problem string `json:"problem"`          // what comes of it, and what would be right
	Repair  string `json:"repair,omitempty"` // what [Doctor.Repair] does; empty if nothing is safe
}

// Examine reads the whole queue, with all its partitions, in short steps and returns what should not be there, nothing
// for a queue that is sound. Its duration grows with the number of keys of the queue.
func (d *Doctor) Examine(ctx context.Context) (all []Damage, err error) {
	err = d.each(ctx, func(e *examine.Examiner) error {
		found, err := e.Examine(ctx)
		all = append(all, damagesOf(found)...)
		return err
	})
	return all, d.wrapped("examining", err)
}

// Repair mends what [Doctor.Examine] finds, as far as that is safe while the queue runs. It
// returns what it has mended, and what is left.
func (d *Doctor) Repair(ctx context.Context) (mended, left []Damage, err error) {
	err = d.each(ctx, func(e *examine.Examiner) error {
		did, rest, err := e.Repair(ctx)
		mended, left = append(mended, damagesOf(did)...), append(left, damagesOf(rest)...)
		return err
	})
	return mended, left, d.wrapped("repairing", err)
}

func (d *Doctor) wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s queue %q: %w", doing, d.queue.Queue, err)
}

func damagesOf(found []examine.Finding) (all []Damage) {
	for _, f := range found {
		all = append(all, Damage{string(f.Kind), f.Key, f.Seen, f.Problem, f.Repair})
	}
	return all
}
