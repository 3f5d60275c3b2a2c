package main

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// drain waits until the queues are empty.
type drain struct {
	queues []string
	inbox  *asynq.Inspector // nil without inboxes
	rdb    redis.UniversalClient
	every  time.Duration
}

func newDrain(o options, rdb redis.UniversalClient) *drain {
	d := &drain{queues: o.queues, rdb: rdb, every: 200 * time.Millisecond}
	if o.inbox {
		d.inbox = asynq.NewInspectorFromRedisClient(rdb)
	}
	return d
}

// wait returns when nothing waits, runs or is due later in any queue, or when ctx ends.
func (d *drain) wait(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(d.every)
	defer tick.Stop()
	for {
		empty, err := d.empty(ctx)
		if empty && err == nil {
			log.Info("drained")
			return nil
		}
		if err != nil && ctx.Err() == nil {
			log.Debug("asking whether the queues are empty", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// empty looks into the lanes, which is cheap, then at the doors, then into the lanes
// again: a job that came through a door in between is in its lane by then.
func (d *drain) empty(ctx context.Context) (bool, error) {
	empty, err := d.lanesEmpty(ctx)
	if err != nil || !empty || d.inbox == nil {
		return empty, err
	}
	known, err := d.inbox.Queues()
	if err != nil {
		return false, err
	}
	for _, name := range d.queues {
		if !slices.Contains(known, name) {
			continue // nobody ever enqueued to it
		}
		info, err := d.inbox.GetQueueInfo(name)
		if err != nil || info.Pending+info.Active+info.Scheduled+info.Retry+info.Aggregating > 0 {
			return false, err
		}
	}
	return d.lanesEmpty(ctx)
}

func (d *drain) lanesEmpty(ctx context.Context) (bool, error) {
	for _, name := range d.queues {
		inspector, err := queue.NewInspector(d.rdb, name)
		if err != nil {
			return false, err
		}
		stats, err := inspector.Stats(ctx)
		if err != nil || stats.Waiting+stats.Later+stats.Running > 0 {
			return false, err
		}
	}
	return true, nil
}
