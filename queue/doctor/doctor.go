// Package doctor examines the keys of a queue, and mends what should not be there.
//
// Workers keep a queue sound. What comes from elsewhere, a key of another type or a Redis that was
// restored from an old copy, is found by [Doctor.Examine] and mended, as far as that is safe while
// the queue runs, by [Doctor.Repair].
package doctor

import (
	"context"
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
	queue    string
	examiner *examine.Examiner
}

// New returns the doctor of a queue. The error wraps [queue.ErrInvalidArgument].
func New(rdb redis.UniversalClient, name string) (*Doctor, error) {
	if _, err := queue.NewInspector(rdb, name); err != nil {
		return nil, err
	}
	s, err := store.New(rdb, name)
	if err != nil {
		return nil, err
	}
	forecasts := forecast.NewReader(rdb, s)
	return &Doctor{name, &examine.Examiner{
		Client: rdb, Store: s,
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
	}}, nil
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

// Examine reads the whole queue in short steps and returns what should not be there, nothing
// for a queue that is sound. Its duration grows with the number of keys of the queue.
func (d *Doctor) Examine(ctx context.Context) ([]Damage, error) {
	found, err := d.examiner.Examine(ctx)
	return damagesOf(found), d.wrapped("examining", err)
}

// Repair mends what [Doctor.Examine] finds, as far as that is safe while the queue runs. It
// returns what it has mended, and what is left.
func (d *Doctor) Repair(ctx context.Context) (mended, left []Damage, err error) {
	did, rest, err := d.examiner.Repair(ctx)
	return damagesOf(did), damagesOf(rest), d.wrapped("repairing", err)
}

func (d *Doctor) wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s queue %q: %w", doing, d.queue, err)
}

func damagesOf(found []examine.Finding) (all []Damage) {
	for _, f := range found {
		all = append(all, Damage{string(f.Kind), f.Key, f.Seen, f.Problem, f.Repair})
	}
	return all
}
