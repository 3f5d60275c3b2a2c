package main

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	manyPartitions = 16
	pacedTenants   = 200
	pacedRate      = 1000 // a second
)

// runPartitions measures what a queue with 16 partitions on one Redis costs, against one that is not divided: where its jobs are drained,
// where the tenants' own rules pace them, and where a rule of the queue does, which the partitions share.
func runPartitions(ctx context.Context, b *bench) error {
	own := queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": {
		Tenant: []throttle.Rule{throttle.Leak(pacedRate/pacedTenants, time.Second)},
	}}}
	common := queue.Policies{Queue: []throttle.Rule{throttle.Leak(pacedRate, time.Second)}}
	for _, test := range []struct {
		name     string
		policies queue.Policies
		most     float64
		spend    func(c contender) (jobs int, spent cost, err error)
	}{
		{"drained", unreached(), 1.2, func(c contender) (int, cost, error) {
			jobs := newJobs(b.size(40_000, 15_000), pacedTenants, perLane)
			_, spent, err := b.carry(ctx, ways()[0], c, jobs)
			return len(jobs), spent, err
		}},
		{"1000/s by the tenants' rules", own, 1.5, b.paced(ctx)},
		{"1000/s by a rule of the queue", common, 1.5, b.paced(ctx)},
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
				jobs, spent, err := test.spend(b.waterclockOn(b.addr, 1, p))
				if err != nil {
					return fmt.Errorf("%s: %w", rows[k].What, err)
				}
				rows[k].add(micros(spent.cpu) / float64(jobs))
				rows[k].addCost(spent, jobs)
				b.note("%s: %s µs", rows[k].What, figure(last(rows[k].Rounds)))
			}
		}
		rows[1].over(rows[0]).wantRatioAtMost(test.most)
	}
	return nil
}

// paced returns a function that looks at some seconds of a backlog that is paced.
func (b *bench) paced(ctx context.Context) func(c contender) (int, cost, error) {
	return func(c contender) (int, cost, error) {
		delivered, spent, err := b.watchBacklog(ctx, c, newJobs(40*pacedRate, pacedTenants, perLane))
		return len(delivered), spent, err
	}
}
