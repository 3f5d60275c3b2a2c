package main

import (
	"context"

	"github.com/waterclock/waterclock/queue"
)

// counting are the limits of unreached and, beside them, concurrency limits that hold nobody
// up either: all that they cost is the counting.
func counting() queue.Policies {
	p := unreached()
	p.Concurrency = queue.Concurrency{Jobs: 1_000_000}
	standard := p.Policies["standard"]
	standard.TenantConcurrency, standard.UserConcurrency = queue.Concurrency{Percent: 100}, queue.Concurrency{Jobs: 1000}
	p.Policies["standard"] = standard
	return p
}

// runConcurrency measures what it costs to know how much runs: the same jobs, with and
// without concurrency limits, in one alternation.
func runConcurrency(ctx context.Context, b *bench) error {
	jobs := newJobs(b.size(40_000, 15_000), tenants, perLane)
	var contenders []contender
	for _, n := range []int{1, 2} {
		with := b.waterclockOn(b.addr, n, counting())
		with.name += ", counting"
		contenders = append(contenders, with, b.waterclockOn(b.addr, n, unreached()))
	}
	for _, w := range ways() {
		rows, err := b.race(ctx, w, contenders, jobs)
		if err != nil {
			return err
		}
		rows[0].over(rows[1])
		rows[2].over(rows[3])
	}
	return nil
}
