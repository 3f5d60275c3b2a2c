package main

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// unreached are limits that count for every job and hold nobody up: a user has ten jobs
// in all, the users take turns, and a tenant's leak is faster than Redis.
func unreached() queue.Policies {
	return queue.Policies{
		Default: "standard",
		Policies: map[string]queue.Policy{"standard": {
			Tenant: []throttle.Rule{throttle.Leak(200_000, time.Second)},
			User:   []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(time.Millisecond)},
		}},
	}
}

const (
	tenants = 20
	perLane = 10
)

// runThroughput lets waterclock, with its limits, and plain asynq, without any, carry the
// same jobs to the same handler, each with 1, 2 and 4 workers: the best of each counts.
// It measures in two ways: how fast a backlog drains, and how fast jobs flow from offer
// to handler while they are being offered.
func runThroughput(ctx context.Context, b *bench) error {
	jobs := newJobs(b.size(40_000, 15_000), tenants, perLane)
	var contenders []contender
	for _, n := range fleets() {
		contenders = append(contenders, b.waterclockOn(b.addr, n, unreached()), b.asynqOn(b.addr, n))
	}
	for _, w := range ways() {
		rows, err := b.race(ctx, w, contenders, jobs)
		if err != nil {
			return err
		}
		ours, theirs := split(rows)
		best(ours).over(best(theirs)).wantRatioAtLeast(1.5)
	}
	return nil
}

// fleets are the numbers of workers, or servers, of which the best counts.
func fleets() []int { return []int{1, 2, 4} }

// split parts rows of which every other one is a rival's.
func split(rows []*row) (ours, theirs []*row) {
	for i, r := range rows {
		if i%2 == 0 {
			ours = append(ours, r)
		} else {
			theirs = append(theirs, r)
		}
	}
	return ours, theirs
}

// A way is how jobs get from an offer to the handler, and what of it is timed.
type way struct {
	name  string
	carry func(ctx context.Context, c contender, jobs []job, h *tally) (time.Duration, func() error, error)
}

func ways() []way { return []way{{"drained", drain}, {"flowing", flow}} }

// race lets the contenders take turns and returns a row of jobs per second for each.
func (b *bench) race(ctx context.Context, w way, contenders []contender, jobs []job) ([]*row, error) {
	rows := make([]*row, len(contenders))
	for i, c := range contenders {
		rows[i] = b.row(c.name+", "+w.name, "jobs/s")
	}
	for range b.rounds {
		for i, c := range contenders {
			rate, spent, err := b.carry(ctx, w, c, jobs)
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", c.name, w.name, err)
			}
			rows[i].add(rate)
			rows[i].addCost(spent, len(jobs))
			b.note("%s: %s jobs/s", rows[i].What, figure(rate))
		}
	}
	return rows, nil
}

// carry lets one contender carry the jobs, and returns how many a second and what all of
// it cost Redis: offers, handling, acknowledgements.
func (b *bench) carry(ctx context.Context, w way, c contender, jobs []job) (rate float64, spent cost, err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	if err := b.empty(ctx); err != nil {
		return 0, cost{}, err
	}
	if err := c.prepare(ctx); err != nil {
		return 0, cost{}, err
	}
	before, err := b.spent(ctx)
	if err != nil {
		return 0, cost{}, err
	}
	took, stop, err := w.carry(ctx, c, jobs, newTally(len(jobs)))
	if stop != nil {
		if stopped := stop(); err == nil {
			err = stopped
		}
	}
	if err != nil {
		return 0, cost{}, err
	}
	after, err := b.spent(ctx)
	return float64(len(jobs)) / took.Seconds(), after.since(before), err
}

// drain offers all jobs first and times the handling.
func drain(ctx context.Context, c contender, jobs []job, h *tally) (time.Duration, func() error, error) {
	if err := c.offerAll(ctx, jobs); err != nil {
		return 0, nil, err
	}
	begin := time.Now()
	stop, err := c.serve(ctx, h)
	if err != nil {
		return 0, nil, err
	}
	err = h.wait(ctx)
	return time.Since(begin), stop, err
}

// flow offers while workers handle and times both together.
func flow(ctx context.Context, c contender, jobs []job, h *tally) (time.Duration, func() error, error) {
	stop, err := c.serve(ctx, h)
	if err != nil {
		return 0, nil, err
	}
	begin := time.Now()
	if err := c.offerAll(ctx, jobs); err != nil {
		return 0, stop, err
	}
	err = h.wait(ctx)
	return time.Since(begin), stop, err
}
