package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// runGrowth lets ever more lanes hold one waiting job each. Every job that starts is
// offered again at once, so that there are always as many, and thousands of them go
// round while it looks: with few lanes the leader is told of each job by mail, with many it
// finds most of them in Redis. Then as many lanes are drained, where it finds all of them
// there.
func runGrowth(ctx context.Context, b *bench) error {
	sizes := []int{1_000, 10_000, 100_000}
	if !b.quick {
		sizes = append(sizes, 1_000_000)
	}
	cpu, took := make([]*row, len(sizes)), make([]*row, len(sizes))
	for i, n := range sizes {
		cpu[i] = b.row(thousands(int64(n))+" lanes, Redis CPU", "µs per job")
	}
	for i, n := range sizes {
		took[i] = b.row(thousands(int64(n))+" lanes, time", "µs per job")
	}
	many := sizes[1:] // with fewer, what a worker that joins costs would count
	drained := make([]*row, len(many))
	for i, n := range many {
		drained[i] = b.row(thousands(int64(n))+" lanes of one job, drained, Redis CPU", "µs per job")
	}
	for range b.rounds {
		for i, n := range sizes {
			perJob, spent, rounds, err := b.goRound(ctx, n)
			if err != nil {
				return fmt.Errorf("%d lanes: %w", n, err)
			}
			took[i].add(micros(perJob))
			cpu[i].add(micros(spent.cpu) / float64(rounds))
			cpu[i].addCost(spent, rounds)
			b.note("%s lanes: %s µs of Redis per job", thousands(int64(n)), figure(last(cpu[i].Rounds)))
		}
		for i, n := range many {
			_, spent, err := b.carry(ctx, way{"drained", drain}, b.waterclockOn(b.addr, 1, unreached()), newJobs(n, growthTenants, 1))
			if err != nil {
				return fmt.Errorf("%d lanes, drained: %w", n, err)
			}
			drained[i].add(micros(spent.cpu) / float64(n))
			drained[i].addCost(spent, n)
			b.note("%s lanes, drained: %s µs of Redis per job", thousands(int64(n)), figure(last(drained[i].Rounds)))
		}
	}
	for _, rows := range [][]*row{cpu, took, drained} {
		last(rows).over(rows[0]).wantRatioAtMost(1.2)
	}
	return nil
}

// growthTenants share the lanes.
const growthTenants = 100

func last[T any](of []T) T { return of[len(of)-1] }

// micros is a time in microseconds.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// goRound returns the time per job while so many lanes hold a job each, what Redis spent
// meanwhile, and on how many jobs.
func (b *bench) goRound(ctx context.Context, lanes int) (perJob time.Duration, spent cost, handled int, err error) {
	// A lane is back after some 50 ms with the fewest, so these hold nobody up, and every
	// size finds the state of its users expired.
	policies := queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": {
		Tenant: []throttle.Rule{throttle.Leak(200_000, time.Second)},
		User:   []throttle.Rule{throttle.Window(perLane, 25*time.Millisecond), throttle.Spacing(time.Millisecond)},
	}}}
	c := b.waterclockOn(b.addr, 2, policies)
	if err := b.empty(ctx); err != nil {
		return 0, cost{}, 0, err
	}
	if err := c.prepare(ctx); err != nil {
		return 0, cost{}, 0, err
	}
	if err := c.offerEach(ctx, lanes, func(i int) job { return laneJob(i, growthTenants) }); err != nil {
		return 0, cost{}, 0, err
	}
	group, within := errgroup.WithContext(ctx)
	within, cancel := context.WithCancel(within)
	defer cancel()
	loop := newLoop(c, b.size(30_000, 6_000))
	stop, err := c.serve(within, loop)
	if err != nil {
		return 0, cost{}, 0, err
	}
	// One is enough, and more would hold too many of the fewest lanes' jobs in their hands.
	group.Go(func() error { return loop.offerAgain(within) })
	group.Go(func() error {
		defer cancel()
		perJob, spent, err = loop.watch(within, b)
		return err
	})
	err = group.Wait()
	if stopped := stop(); err == nil {
		err = stopped
	}
	return perJob, spent, loop.size, err
}

// A loop is a handler behind which every job is offered again.
type loop struct {
	c       contender
	size    int
	ended   chan job
	begun   *tally // the first part, which is not looked at
	reached *tally
}

func newLoop(c contender, size int) *loop {
	warm := size / 5
	return &loop{c: c, size: size, ended: make(chan job, places), begun: newTally(warm), reached: newTally(warm + size)}
}

func (l *loop) ProcessTask(ctx context.Context, t *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	select {
	case l.ended <- job{info.Tenant, info.User, t.Payload()}:
	case <-ctx.Done():
		return ctx.Err()
	}
	l.begun.ProcessTask(ctx, t)
	return l.reached.ProcessTask(ctx, t)
}

// offerAgain offers what has ended, in batches of whatever there is.
func (l *loop) offerAgain(ctx context.Context) error {
	for {
		var batch []job
		select {
		case <-ctx.Done():
			return nil
		case j := <-l.ended:
			batch = append(batch, j)
		}
		// Wait for more, so that batches are as full as those of a busy producer.
		gather := time.After(5 * time.Millisecond)
	gathering:
		for len(batch) < l.c.batch {
			select {
			case j := <-l.ended:
				batch = append(batch, j)
			case <-gather:
				break gathering
			}
		}
		if err := l.c.offer(ctx, batch); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// watch times the jobs after the first part.
func (l *loop) watch(ctx context.Context, b *bench) (time.Duration, cost, error) {
	if err := l.begun.wait(ctx); err != nil {
		return 0, cost{}, err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return 0, cost{}, err
	}
	begin := time.Now()
	if err := l.reached.wait(ctx); err != nil {
		return 0, cost{}, err
	}
	took := time.Since(begin)
	after, err := b.spent(ctx)
	return took / time.Duration(l.size), after.since(before), err
}
