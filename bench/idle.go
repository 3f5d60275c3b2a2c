package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// idlers is how many workers have nothing to do.
const idlers = 100

// runIdle looks at what a hundred workers without work send to Redis, and then offers
// them single jobs: how soon one starts. asynq's servers look every 10 ms, which is what
// it takes to be as fast.
func runIdle(ctx context.Context, b *bench) error {
	water, rival := b.waterclockOn(b.addr, idlers, queue.Policies{}), b.asynqOn(b.addr, idlers)
	contenders := []contender{water, rival}
	trips, commands := make([]*row, 2), make([]*row, 2)
	p50, p99 := make([]*row, 2), make([]*row, 2)
	for i, c := range contenders {
		trips[i] = b.row(c.name+", nothing to do, sent", "commands/s")
		commands[i] = b.row(c.name+", nothing to do, with those in scripts", "commands/s")
	}
	for i, c := range contenders {
		p50[i] = b.row(c.name+", offer to start, p50", "ms")
		p99[i] = b.row(c.name+", offer to start, p99", "ms")
	}
	for range b.rounds {
		for i, c := range contenders {
			spent, took, woken, err := b.watchIdle(ctx, c)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			trips[i].add(float64(spent.trips) / took.Seconds())
			commands[i].add(float64(spent.commands) / took.Seconds())
			p50[i].add(quantile(woken, 0.5))
			p99[i].add(quantile(woken, 0.99))
			b.note("%s: %s commands/s, p99 %s ms", c.name, figure(float64(spent.trips)/took.Seconds()), figure(quantile(woken, 0.99)))
		}
	}
	trips[0].under(trips[1]).wantAtMost(200)
	commands[0].under(commands[1])
	p99[0].wantAtMost(5)
	return nil
}

// watchIdle returns what idle workers spend in some time, and the sorted times from an
// offer to the start.
func (b *bench) watchIdle(ctx context.Context, c contender) (spent cost, took time.Duration, woken []float64, err error) {
	if err := b.empty(ctx); err != nil {
		return cost{}, 0, nil, err
	}
	if err := c.prepare(ctx); err != nil {
		return cost{}, 0, nil, err
	}
	offers := b.size(1_000, 200)
	var times samples
	done := newTally(offers)
	stop, err := c.serve(ctx, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		times.add(time.Since(instant(t.Payload())))
		return done.ProcessTask(ctx, t)
	}))
	if err != nil {
		return cost{}, 0, nil, err
	}
	defer stop()
	if err := wait(ctx, 2*time.Second); err != nil { // they have just started
		return cost{}, 0, nil, err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return cost{}, 0, nil, err
	}
	begin := time.Now()
	if err := wait(ctx, b.span(15*time.Second, 5*time.Second)); err != nil {
		return cost{}, 0, nil, err
	}
	after, err := b.spent(ctx)
	if err != nil {
		return cost{}, 0, nil, err
	}
	spent, took = after.since(before), time.Since(begin)
	for i := range offers {
		j := job{tenant: "tenant", user: fmt.Sprint("user-", i)}
		j.payload = stamp(time.Now())
		if err := c.offer(ctx, []job{j}); err != nil {
			return cost{}, 0, nil, err
		}
		if err := wait(ctx, 10*time.Millisecond); err != nil {
			return cost{}, 0, nil, err
		}
	}
	err = done.wait(ctx)
	return spent, took, times.sorted(), err
}
