package main

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// named are the limits of unreached and, beside them, two limits by name that count every job and hold nobody up: one of
// all jobs together, one for each tenant.
func named() queue.Policies {
	p := unreached()
	p.Limits = map[string]queue.Limit{
		"all":  {Counts: "jobs", Rules: []throttle.Rule{throttle.Window(570_000, time.Minute)}},
		"each": {Counts: "jobs", Key: []string{"tenant"}, Rules: []throttle.Rule{throttle.TokenBucket(200_000, time.Second, 1000)}},
	}
	return p
}

// runNames measures what limits by name cost: two on every job against none, and jobs that wait for one that is used up, in
// 10,000 lanes and in 100,000.
func runNames(ctx context.Context, b *bench) error {
	jobs := newJobs(b.size(40_000, 15_000), tenants, perLane)
	var contenders []contender
	for _, n := range []int{1, 2} {
		with := b.waterclockOn(b.addr, n, named())
		with.name += ", two limits by name"
		contenders = append(contenders, with, b.waterclockOn(b.addr, n, unreached()))
	}
	for _, w := range ways() {
		rows, err := b.race(ctx, w, contenders, jobs)
		if err != nil {
			return err
		}
		rows[0].over(rows[1]).wantRatioAtLeast(1 / 1.2)
		rows[2].over(rows[3]).wantRatioAtLeast(1 / 1.2)
	}
	return b.raceLines(ctx)
}

// raceLines lets lanes of one job wait for a limit by name of 50 a second.
func (b *bench) raceLines(ctx context.Context) error {
	c := b.waterclockOn(b.addr, 1, queue.Policies{Limits: map[string]queue.Limit{
		"all": {Counts: "jobs", Rules: []throttle.Rule{throttle.Leak(backlogRate, time.Second)}},
	}})
	sizes := []int{10_000, 100_000}
	commands := make([]*row, len(sizes))
	for i, n := range sizes {
		commands[i] = b.row(thousands(int64(n))+" lanes wait for a limit by name, Redis commands", "per job")
	}
	for range b.rounds {
		for i, n := range sizes {
			delivered, spent, err := b.watchBacklog(ctx, c, newJobs(n, growthTenants, 1))
			if err != nil {
				return fmt.Errorf("%d lanes: %w", n, err)
			}
			commands[i].add(float64(spent.commands) / float64(len(delivered)))
			commands[i].addCost(spent, len(delivered))
			b.note("%s lanes: %s commands for each of %d jobs", thousands(int64(n)), figure(last(commands[i].Rounds)), len(delivered))
		}
	}
	commands[1].over(commands[0]).wantRatioAtMost(1.2)
	return nil
}
