package queue

import (
	"context"

	"github.com/waterclock/waterclock/queue/internal/examine"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Damage is something in Redis that should not be: a key of another type, a lane that no
// index names, counters that do not add up.
type Damage struct {
	Kind    string `json:"kind"` // such as "type", "lane", "counters"
	Key     string `json:"key"`  // in Redis
	Seen    string `json:"seen"`
	Problem string `json:"problem"`          // what comes of it, and what would be right
	Repair  string `json:"repair,omitempty"` // what [Inspector.Repair] does; empty if nothing is safe
}

// Examine reads the whole queue in short steps and returns what should not be there, nothing
// for a queue that is sound. Its duration grows with the number of keys of the queue.
func (i *Inspector) Examine(ctx context.Context) ([]Damage, error) {
	found, err := i.examiner().Examine(ctx)
	return damagesOf(found), i.wrapped("examining", err)
}

// Repair mends what [Inspector.Examine] finds, as far as that is safe while the queue runs. It
// returns what it has mended, and what is left.
func (i *Inspector) Repair(ctx context.Context) (mended, left []Damage, err error) {
	did, rest, err := i.examiner().Repair(ctx)
	return damagesOf(did), damagesOf(rest), i.wrapped("repairing", err)
}

func damagesOf(found []examine.Finding) []Damage {
	var all []Damage
	for _, f := range found {
		all = append(all, Damage{string(f.Kind), f.Key, f.Seen, f.Problem, f.Repair})
	}
	return all
}

func (i *Inspector) examiner() *examine.Examiner {
	return &examine.Examiner{
		Client: i.rdb, Store: i.store,
		Policies: func(ctx context.Context) (*schedule.Policies, error) {
			err := i.policies.reload(ctx)
			return i.policies.known(), err
		},
		Earliest: func(ctx context.Context, lane store.Lane, cost int) (int64, bool, error) {
			p, err := i.picture(ctx, lane.Tenant, lane.User)
			if err != nil {
				return 0, false, err
			}
			at, known := p.earliest(lane.Tenant, lane.User, cost)
			return at, known, nil
		},
	}
}
