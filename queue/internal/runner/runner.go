package runner

import (
	"context"
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/leader"
	"github.com/waterclock/waterclock/queue/internal/members"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// A Runner is one run of a worker in one queue.
type Runner struct {
	worker  *worker.Worker
	elector *elect.Elector
	leaving chan struct{} // closed when it is to leave
	leave   func()
}

// New returns a runner.
func New(cfg worker.Config) *Runner {
	c := clock.New(func(by time.Duration) {
		cfg.Log.Warn("Redis's clock was set back; what is remembered lies ahead of it, and jobs wait until it has caught up. "+
			"waterclock doctor shows what lies ahead", "by", by.Round(time.Millisecond))
	})
	elector := elect.New(elect.Config{Store: cfg.Store, Clock: c, Worker: cfg.Name, Led: cfg.Led, Log: cfg.Log})
	leaving := make(chan struct{})
	return &Runner{worker: worker.New(cfg, c, elector), elector: elector, leaving: leaving, leave: sync.OnceFunc(func() { close(leaving) })}
}

// Need returns how the jobs of the queue do for places, if this worker leads.
func (r *Runner) Need() members.Need { return r.worker.Need() }

// Leave lets Run end as if ctx had, but with as much time for the handlers as they need, until ctx ends.
func (r *Runner) Leave() { r.leave() }

// Run takes part in the queue until ctx ends, and returns when everything that the
// worker was given is done with. It runs once.
func (r *Runner) Run(ctx context.Context) error {
	outlive, end := context.WithCancel(context.WithoutCancel(ctx)) // for what must still reach Redis while the worker stops
	defer end()
	r.worker.Begin(outlive)
	var services, election, beats sync.WaitGroup
	leading, resign := context.WithCancel(outlive)
	beating, fallSilent := context.WithCancel(outlive)
	defer resign()
	defer fallSilent()
	beats.Go(func() { r.worker.Beat(beating) })
	services.Go(func() { r.worker.TakeMessages(outlive) })
	services.Go(func() { r.worker.Claims.AckAll(outlive) })
	services.Go(func() { r.worker.Past.Write(outlive) })
	election.Go(func() { r.stand(leading) })

	select {
	case <-ctx.Done():
	case <-r.leaving:
	}
	defer context.AfterFunc(ctx, func() { // Redis may be away
		retry.Pause(outlive, r.worker.LongestStop())
		end()
	})()
	r.elector.Stop()
	r.worker.Shutdown(ctx)
	resign()
	election.Wait()
	fallSilent()
	beats.Wait() // one that comes after the worker has left would bring it back
	r.worker.Leave()
	end()
	r.worker.Nudge()
	services.Wait()
	return nil
}

// stand leads whenever it is this worker's turn.
func (r *Runner) stand(ctx context.Context) {
	select {
	case <-r.worker.Listed():
	case <-ctx.Done():
	}
	r.elector.Run(ctx, func(ctx context.Context, first store.Term) { leader.Serve(ctx, r.worker, first) })
}
