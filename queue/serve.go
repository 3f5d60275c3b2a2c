package queue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/runner"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
	"github.com/waterclock/waterclock/throttle"
)

// serve takes part in a queue until ctx ends: in each of its partitions, with places that they share. A queue that nobody has used yet
// has one, and may be divided before anybody writes: then the worker begins again.
func (w *Worker) serve(ctx context.Context, queue string, places *worker.Places, h asynq.Handler) error {
	root, err := store.New(w.client, queue)
	if err != nil {
		return err
	}
	log := w.cfg.Logger.With("queue", queue)
	partitions := store.NewPartitions(root, func(s *store.Store) *store.Store { return s })
	for {
		all, ok := w.partitionsOf(ctx, partitions, log)
		if !ok {
			return nil
		}
		err := w.serveAll(ctx, all, root, places, h, log)
		if !errors.Is(err, errDivided) {
			return err
		}
		log.Info("the queue has been divided into partitions")
		retry.Pause(ctx, time.Second) // if somebody says so who is wrong, it is found here again
	}
}

// partitionsOf returns the partitions of a queue, when Redis answers; false if ctx ends before.
func (w *Worker) partitionsOf(ctx context.Context, partitions *store.Partitions[*store.Store], log *slog.Logger) (all []*store.Store, ok bool) {
	trouble := retry.NewTrouble(log, "looking for the partitions of the queue")
	for ctx.Err() == nil {
		all, err := partitions.All(ctx)
		wait := trouble.After(err)
		if err == nil {
			return all, true
		}
		retry.Pause(ctx, wait)
	}
	return nil, false
}

// serveAll takes part in partitions until ctx ends. The error is errDivided if the queue has others by now.
func (w *Worker) serveAll(ctx context.Context, all []*store.Store, root *store.Store, places *worker.Places, h asynq.Handler, log *slog.Logger) error {
	w.metrics.parts.WithLabelValues(root.Queue).Set(float64(len(all)))
	dedicated, done := store.Dedicated(w.client, len(all))
	defer done()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	var group errgroup.Group
	var led *elect.Led
	if len(all) > 1 {
		led = new(elect.Led)
	}
	for _, s := range all {
		m := &membership{store: s.Dedicating(dedicated), root: root, led: led, log: log, divided: func() { end(errDivided) }}
		if s.Of > 1 {
			m.log = log.With("partition", s.Number)
			group.Go(func() error { m.follow(ctx); return nil })
		}
		group.Go(func() error { return m.run(ctx, w, places, h) })
	}
	err := group.Wait()
	if cause := context.Cause(ctx); errors.Is(cause, errDivided) {
		return cause
	}
	return err
}

// A membership is a worker's part in one partition.
type membership struct {
	store   *store.Store
	root    *store.Store // of what the partitions have in common
	led     *elect.Led   // how many partitions the worker leads
	log     *slog.Logger
	divided func() // called if the queue has other partitions

	leads atomic.Bool
}

// run takes part in the partition, under a name that no worker has had before, until ctx ends.
func (m *membership) run(ctx context.Context, w *Worker, places *worker.Places, h asynq.Handler) error {
	name, _ := os.Hostname()
	host := fmt.Sprintf("%s/%d", name, os.Getpid())
	events := newEventLog(m.store, host)
	a := &attempts{queue: m.store.Queue, store: m.store, handler: h, cfg: w.cfg, log: m.log, events: events}
	r := runner.New(worker.Config{
		Store: m.store, Name: rand.Text()[:16], Host: host, Version: store.Schema,
		Led: m.led, Places: places, Lease: w.cfg.Lease, ShutdownTimeout: w.cfg.ShutdownTimeout, Policies: m.policies,
		Shared: throttle.New(throttle.NewRedisStore(w.client, limits.SharedKeys)),
		Handle: a.handle, Metrics: w.metrics.of(m.store.Queue, &m.leads), History: w.cfg.History, Listened: events.listened, Claimed: events.claimed, Log: a.log,
	})
	return events.during(ctx, r.Run)
}

// policies compiles the policies of the partition.
func (m *membership) policies(source string, version, now int64) (*schedule.Policies, error) {
	compiled, err := policies.Compile(m.store.Queue, source, version, now)
	if err == nil && compiled != nil && m.store.Of == 1 && compiled.Partitions > 1 {
		m.divided()
		return nil, errDivided
	}
	return compiled, err
}

// followEvery is how often the leader of a partition looks whether there are other policies.
const followEvery = time.Second

// follow copies policies to the partition that did not get there when they were put in force, while this worker leads there. If the
// Redis that has those of the whole queue has lost the newest, they are copied back.
func (m *membership) follow(ctx context.Context) {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !m.leads.Load() {
			continue
		}
		if err := m.agree(ctx); err != nil && ctx.Err() == nil {
			m.log.Warn("the policies of the partition may not be the newest", "err", err)
		}
	}
}

// agree makes the partition and the whole queue have the newer ones of their policies.
func (m *membership) agree(ctx context.Context) error {
	own, err := m.store.PolicyVersion(ctx)
	if err != nil {
		return err
	}
	newest, err := m.root.PolicyVersion(ctx)
	if err != nil || newest == own {
		return err
	}
	from, to := m.root, m.store
	if newest < own {
		from, to = to, from
	}
	source, version, err := from.Policies(ctx)
	if err != nil {
		return err
	}
	return to.CopyPolicies(ctx, store.PolicyVersion{Version: version, Source: source}, m.store.Of)
}
