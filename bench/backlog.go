package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	backlogSize = 10_000
	backlogRate = 50 // a second
)

// runBacklog lets 10,000 jobs of one tenant wait for a limit of 50 a second and looks at
// some seconds of it: what Redis does for a job that is delivered, and whether the rate
// is the limit.
func runBacklog(ctx context.Context, b *bench) error {
	policies := queue.Policies{
		Default:  "standard",
		Policies: map[string]queue.Policy{"standard": {Tenant: []throttle.Rule{throttle.Leak(backlogRate, time.Second)}}},
	}
	contenders := []contender{
		b.waterclockOn(b.addr, 1, policies),
		b.asynqGatedOn(b.addr, 1, redis_rate.PerSecond(backlogRate), redis_rate.Limit{}),
	}
	commands, deviation := make([]*row, len(contenders)), make([]*row, len(contenders))
	for i, c := range contenders {
		commands[i] = b.row(c.name+", Redis commands", "per job")
	}
	for i, c := range contenders {
		deviation[i] = b.row(c.name+", rate off the limit by", "%")
	}
	jobs := newJobs(backlogSize, 1, perLane)
	for range b.rounds {
		for i, c := range contenders {
			delivered, spent, err := b.watchBacklog(ctx, c, jobs)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			commands[i].add(float64(spent.commands) / float64(len(delivered)))
			commands[i].addCost(spent, len(delivered))
			deviation[i].add(100 * math.Abs(meanRate(delivered)/backlogRate-1))
			b.note("%s: %s commands for each of %d jobs", c.name, figure(commands[i].Rounds[len(commands[i].Rounds)-1]), len(delivered))
		}
	}
	commands[0].under(commands[1]).wantRatioAtLeast(50)
	deviation[0].wantAtMost(0.1)
	return nil
}

// watchBacklog returns when jobs were delivered in a span in the middle of a backlog, and
// what Redis spent meanwhile.
func (b *bench) watchBacklog(ctx context.Context, c contender, jobs []job) ([]time.Time, cost, error) {
	if err := b.empty(ctx); err != nil {
		return nil, cost{}, err
	}
	if err := c.prepare(ctx); err != nil {
		return nil, cost{}, err
	}
	if err := c.offerAll(ctx, jobs); err != nil {
		return nil, cost{}, err
	}
	begun := new(starts)
	stop, err := c.serve(ctx, begun)
	if err != nil {
		return nil, cost{}, err
	}
	defer stop()
	// asynq looks at every task once before it settles.
	if err := wait(ctx, b.span(5*time.Second, 2*time.Second)); err != nil {
		return nil, cost{}, err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return nil, cost{}, err
	}
	begun.forget()
	if err := wait(ctx, b.span(20*time.Second, 3*time.Second)); err != nil {
		return nil, cost{}, err
	}
	delivered := begun.all()
	after, err := b.spent(ctx)
	if err == nil && len(delivered) < 2 {
		err = fmt.Errorf("%d jobs were delivered in all the time", len(delivered))
	}
	return delivered, after.since(before), err
}

// Starts is a handler that notes when it was called.
type starts struct {
	mu sync.Mutex
	at []time.Time
}

func (s *starts) ProcessTask(context.Context, *asynq.Task) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = append(s.at, time.Now())
	return nil
}

func (s *starts) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = nil
}

func (s *starts) all() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.at)
}

// meanRate is how many starts there were in a second: the slope of the line through them.
// Their number in the span would be off by what the span cuts from bursts at its ends.
func meanRate(starts []time.Time) float64 {
	n := float64(len(starts))
	middle := (n - 1) / 2
	mean := 0.0
	for _, at := range starts {
		mean += at.Sub(starts[0]).Seconds() / n
	}
	together, spread := 0.0, 0.0
	for i, at := range starts {
		t := at.Sub(starts[0]).Seconds() - mean
		together += t * (float64(i) - middle)
		spread += t * t
	}
	return together / spread
}
