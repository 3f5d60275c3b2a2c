package queue

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/members"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A crew is a worker's parts in a queue with several partitions. Not every worker takes part in each of them (package members): it tells the
// others that it lives, where the partitions have what they have in common, learns who else does, and takes part where its rank says so.
// It leaves a partition when others come before it. Jobs that it has there run to their ends.
//
// While that place cannot be reached everything stays as it is.
type crew struct {
	w      *Worker
	all    []*store.Store
	root   *store.Store
	places *worker.Places
	h      asynq.Handler
	log    *slog.Logger
	led    elect.Led    // how many partitions the worker leads
	fleet  atomic.Int64 // how many places all workers have
	name   string       // of the worker in the whole queue
	since  int64

	parts   map[int]*membership // by partition, those that have not been left
	size    map[int]int         // how many members a partition has
	workers int                 // that live
	group   errgroup.Group
}

// All workers together say fifty times a second that they live: in a small fleet each of them more often, since of few workers all that take
// part in a partition are more likely to die at once.
const (
	attendFirst = 300 * time.Millisecond // as often as that at most
	attendLast  = 2 * time.Second        // and at least
	attendEach  = 20 * time.Millisecond  // for each worker that lives

	// wishHolds is for how long a partition has more members, after its jobs needed them.
	wishHolds = 30 * time.Second
)

// every is how often the worker says that it lives. The others believe it for three times as long.
func (c *crew) every() time.Duration {
	return min(max(attendFirst, time.Duration(c.workers)*attendEach), attendLast)
}

func (w *Worker) newCrew(all []*store.Store, root *store.Store, dedicated redis.UniversalClient, places *worker.Places, h asynq.Handler, log *slog.Logger) *crew {
	c := &crew{w: w, root: root, places: places, h: h, log: log, name: newName(), parts: make(map[int]*membership), size: make(map[int]int)}
	for _, s := range all {
		c.all = append(c.all, s.Dedicating(dedicated))
	}
	return c
}

// run takes part until ctx ends. It returns when all that the worker was given is done with.
func (c *crew) run(ctx context.Context) error {
	trouble := retry.NewTrouble(c.log, "telling the other workers of the queue that this one lives")
	for ctx.Err() == nil {
		here := c.attendance()
		roll, err := retry.Persist(ctx, attendFirst/3, func(ctx context.Context) (store.Roll, error) { return c.root.Attend(ctx, here) })
		wait := trouble.After(err)
		if err == nil {
			c.takeParts(ctx, roll)
			wait = c.every()
		}
		retry.Pause(ctx, wait)
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), attendLast)
	defer cancel()
	if err := c.root.Absent(last, c.name); err != nil {
		c.log.Debug("telling the other workers that this one stops", "err", err)
	}
	return c.group.Wait()
}

// attendance returns what the worker says of itself, and of the partitions that it leads.
func (c *crew) attendance() store.Attendance {
	wishes := make(map[int]int)
	for k, m := range c.parts {
		if n := members.Wish(m.runner.Need(), c.size[k], c.workers); n > 0 {
			wishes[k] = n
		}
	}
	return store.Attendance{
		Worker: c.name, Lease: 3 * c.every(), Wishes: wishes, Hold: wishHolds, Least: members.Least,
		Record: store.WorkerRecord{Places: c.places.All(), Host: host(), Since: c.since, Version: store.Schema},
	}
}

// takeParts joins the partitions in which the worker should take part, and leaves others.
func (c *crew) takeParts(ctx context.Context, roll store.Roll) {
	if c.since == 0 {
		c.since = roll.Now
	}
	c.workers = len(roll.Workers)
	c.led.Count(len(c.all), c.workers)
	c.fleet.Store(int64(roll.Places))
	for k := range c.all {
		c.size[k] = min(max(members.Least, roll.Wanted[k]), c.workers)
		takes, part := members.Rank(k, c.name, roll.Workers) < c.size[k], c.parts[k]
		switch {
		case takes && part == nil:
			c.join(ctx, k)
		case !takes && part != nil:
			delete(c.parts, k)
			part.runner.Leave()
		}
	}
}

// join takes part in a partition.
func (c *crew) join(ctx context.Context, k int) {
	m := c.w.newMembership(c.all[k], c.root, c, c.places, c.h, c.log, func() {})
	c.parts[k] = m
	c.group.Go(func() error { return m.run(ctx) })
}
