package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
)

const (
	struck     = 10 // jobs that run when it happens
	outageTime = 2 * time.Second
)

// runRecovery kills worker processes while they run ten jobs, and waits until those run
// again on a worker that is left; and it stops Redis for two seconds in which ten
// handlers end, and counts what runs again although it had ended well. Each trial has a
// Redis of its own and nearly all of it is waiting, so all are made at once.
func runRecovery(ctx context.Context, b *bench) error {
	sides := []string{"waterclock", "asynq"}
	if b.quick {
		sides = sides[:1]
		b.note("asynq takes two minutes to recover and is left out by --quick")
	}
	group, ctx := errgroup.WithContext(ctx)
	killed, repeated := make([]*row, len(sides)), make([]*row, len(sides))
	for i, side := range sides {
		killed[i] = b.row(side+", kill -9 until the last of its 10 jobs runs again", "s")
	}
	for i, side := range sides {
		repeated[i] = b.row(side+", jobs that ran again after Redis was away for 2 s", "of 10")
	}
	times, counts := make([][]float64, len(sides)), make([][]float64, len(sides))
	for i, side := range sides {
		times[i], counts[i] = make([]float64, b.rounds), make([]float64, b.rounds)
		for trial := range b.rounds {
			group.Go(func() error {
				// Over the minute in which asynq looks for lost tasks once.
				spread := b.span(time.Minute, 10*time.Second)
				after := 2*time.Second + time.Duration(trial)*spread/time.Duration(b.rounds)
				took, err := b.killWorker(ctx, side, after)
				times[i][trial] = took.Seconds()
				if err != nil {
					return fmt.Errorf("%s, kill -9: %w", side, err)
				}
				b.note("%s: all run again %.1f s after a kill -9", side, took.Seconds())
				return nil
			})
			group.Go(func() error {
				again, err := b.stopRedis(ctx, side)
				counts[i][trial] = float64(again)
				if err != nil {
					return fmt.Errorf("%s, Redis away: %w", side, err)
				}
				b.note("%s: %d of %d ran again after Redis was away", side, again, struck)
				return nil
			})
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range sides {
		for trial := range b.rounds {
			killed[i].add(times[i][trial])
			repeated[i].add(counts[i][trial])
		}
	}
	if len(sides) > 1 {
		killed[0].under(killed[1])
	}
	killed[0].wantAtMost(20)
	repeated[0].wantAtMost(0)
	return nil
}

// on returns a bench on another Redis.
func (b *bench) on(addr string) *bench {
	other := *b
	other.addr, other.client = addr, redis.NewClient(&redis.Options{Addr: addr})
	return &other
}

// one returns a side with one worker, or one server.
func (b *bench) one(side string) contender {
	if side == "asynq" {
		return b.asynqOn(b.addr, 1)
	}
	return b.waterclockOn(b.addr, 1, unreached())
}

// killWorker returns how long it takes until all jobs of a killed process run again.
func (b *bench) killWorker(ctx context.Context, side string, after time.Duration) (time.Duration, error) {
	server, err := startServer(ctx, "--appendonly", "no")
	if err != nil {
		return 0, err
	}
	defer server.Close()
	own := b.on(server.Addr)
	defer own.client.Close()
	c := own.one(side)
	if err := errors.Join(c.prepare(ctx), c.offerAll(ctx, newJobs(struck, 1, 1))); err != nil {
		return 0, err
	}
	victim, err := startChild(role{Name: "victim", Side: side, Redis: server.Addr})
	if err != nil {
		return 0, err
	}
	defer victim.Kill()
	for range struck {
		if _, err := victim.hear(); err != nil {
			return 0, err
		}
	}
	again := newTally(struck)
	stop, err := c.serve(ctx, again)
	if err != nil {
		return 0, err
	}
	defer stop()
	if err := wait(ctx, after); err != nil {
		return 0, err
	}
	if n := again.handled.Load(); n > 0 {
		return 0, fmt.Errorf("%d jobs ran again before the kill", n)
	}
	begin := time.Now()
	victim.Kill()
	err = again.wait(ctx)
	return time.Since(begin), err
}

// playVictim runs jobs that never end, and says when one begins.
func playVictim(ctx context.Context, r role) error {
	b := (&bench{}).on(r.Redis)
	defer b.client.Close()
	stop, err := b.one(r.Side).serve(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		fmt.Println("begun")
		<-ctx.Done()
		return ctx.Err()
	}))
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}

// stopRedis returns how many jobs ran again that ended while Redis was away.
func (b *bench) stopRedis(ctx context.Context, side string) (again int, err error) {
	server, err := startServer(ctx, "--appendonly", "yes", "--appendfsync", "always")
	if err != nil {
		return 0, err
	}
	defer server.Close()
	own := b.on(server.Addr)
	defer own.client.Close()
	c := own.one(side)
	if err := errors.Join(c.prepare(ctx), c.offerAll(ctx, newJobs(struck, 1, 1))); err != nil {
		return 0, err
	}
	var runs atomic.Int64
	begun := newTally(struck)
	stop, err := c.serve(ctx, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		runs.Add(1)
		begun.ProcessTask(ctx, t)
		return wait(ctx, outageTime/2)
	}))
	if err != nil {
		return 0, err
	}
	defer stop()
	if err := begun.wait(ctx); err != nil {
		return 0, err
	}
	server.Kill()
	if err := wait(ctx, outageTime); err != nil {
		return 0, err
	}
	if err := server.Start(ctx); err != nil {
		return 0, err
	}
	// Longer than either side takes to look for what was lost: two leases here, a lease,
	// its grace and a minute there.
	err = wait(ctx, b.span(130*time.Second, 35*time.Second))
	return int(runs.Load()) - struck, err
}
