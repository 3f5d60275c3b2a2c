package queue

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/runner"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
	"github.com/waterclock/waterclock/throttle"
)

// A membership is a worker's part in one partition.
type membership struct {
	store   *store.Store
	root    *store.Store // of what the partitions have in common
	log     *slog.Logger
	divided func() // called if the queue has other partitions

	events *eventLog
	runner *runner.Runner
	leads  atomic.Bool
}

// newMembership returns a part in a partition, or in a queue that has one, under a name that no worker has had before. The crew is nil if
// the queue has one partition.
func (w *Worker) newMembership(s, root *store.Store, of *crew, places *worker.Places, h asynq.Handler, log *slog.Logger, divided func()) *membership {
	if s.Of > 1 {
		log = log.With("partition", s.Number)
	}
	m := &membership{store: s, root: root, log: log, divided: divided, events: newEventLog(s, host())}
	a := &attempts{queue: s.Queue, store: s, handler: h, cfg: w.cfg, log: log, events: m.events}
	cfg := worker.Config{
		Store: s, Name: newName(), Host: host(), Version: store.Schema,
		Places: places, Lease: w.cfg.Lease, ShutdownTimeout: w.cfg.ShutdownTimeout, Policies: m.policies,
		Shared: throttle.New(throttle.NewRedisStore(w.client, limits.SharedKeys)),
		Handle: a.handle, Metrics: w.metrics.of(s.Queue, &m.leads), History: w.cfg.History, Listened: m.events.listened, Claimed: m.events.claimed, Log: a.log,
	}
	if of != nil {
		cfg.Of, cfg.Led, cfg.Fleet = of.name, &of.led, &of.fleet
	}
	m.runner = runner.New(cfg)
	return m
}

// newName returns the name of a run of a worker.
func newName() string { return rand.Text()[:16] }

// host says where the program runs.
func host() string {
	name, _ := os.Hostname()
	return fmt.Sprintf("%s/%d", name, os.Getpid())
}

// run takes part until ctx ends, or the worker leaves.
func (m *membership) run(ctx context.Context) error {
	if m.store.Of > 1 {
		ctx, end := context.WithCancel(ctx)
		var following sync.WaitGroup
		following.Go(func() { m.follow(ctx) })
		defer following.Wait()
		defer end()
	}
	return m.events.during(ctx, m.runner.Run)
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
const followEvery = 5 * time.Second

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
