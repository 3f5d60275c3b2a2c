package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	manyPartitions = 16
	partTenants    = 200
)

// runPartitions measures what a queue with 16 partitions on one Redis costs, against one that is not divided: where its jobs are drained,
// with few places and with offers and places enough for full commits, where the tenants' own rules pace them, and where a rule of
// the queue does, which the partitions share.
func runPartitions(ctx context.Context, b *bench) error {
	own := func(rate int) queue.Policies {
		return queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": {
			Tenant: []throttle.Rule{throttle.Leak(rate/partTenants, time.Second)},
		}}}
	}
	common := func(rate int) queue.Policies {
		return queue.Policies{Queue: []throttle.Rule{throttle.Leak(rate, time.Second)}}
	}
	for _, test := range []struct {
		name          string
		policies      queue.Policies
		places, offer int     // of the worker, and jobs in a call
		most          float64 // ratio; 0: any
		rate          int     // 0: as fast as it can
	}{
		{"drained, 100 places", unreached(), places, 100, 0, 0},
		{"drained, full commits", unreached(), manyPlaces, 1000, 1.2, 0},
		{"1000/s by the tenants' rules", own(1000), manyPlaces, 1000, 1.5, 1000},
		{"8000/s by the tenants' rules", own(8000), manyPlaces, 1000, 1.5, 8000},
		{"1000/s by a rule of the queue", common(1000), manyPlaces, 1000, 1.5, 1000},
		{"4000/s by a rule of the queue", common(4000), manyPlaces, 1000, 1.5, 4000},
	} {
		partitions := []int{1, manyPartitions}
		rows := make([]*row, len(partitions))
		for k, n := range partitions {
			rows[k] = b.row(fmt.Sprintf("%s, %s, Redis CPU", plural(n, "partition"), test.name), "µs per job")
		}
		for range b.rounds {
			for k, n := range partitions {
				p := test.policies
				p.Partitions = n
				c := b.waterclockOn(b.addr, 1, p)
				c.batch = test.offer
				c.serve = func(ctx context.Context, h asynq.Handler) (func() error, error) {
					return b.startWorkers(ctx, fleet{b.addr, 1, test.places}, h)
				}
				jobs, spent, err := b.spentOn(ctx, c, test.rate)
				if err != nil {
					return fmt.Errorf("%s: %w", rows[k].What, err)
				}
				rows[k].add(micros(spent.cpu) / float64(jobs))
				rows[k].addCost(spent, jobs)
				b.note("%s: %s µs", rows[k].What, figure(last(rows[k].Rounds)))
			}
		}
		if rows[1].over(rows[0]); test.most > 0 {
			rows[1].wantRatioAtMost(test.most)
		}
	}
	return nil
}

// spentOn returns what a backlog costs: all of it, or some seconds of one that is paced.
func (b *bench) spentOn(ctx context.Context, c contender, rate int) (int, cost, error) {
	if rate == 0 {
		jobs := newJobs(b.size(40_000, 15_000), partTenants, perLane)
		_, spent, err := b.carry(ctx, ways()[0], c, jobs)
		return len(jobs), spent, err
	}
	delivered, spent, err := b.watchBacklog(ctx, c, newJobs(b.size(40, 10)*rate, partTenants, perLane))
	return len(delivered), spent, err
}
