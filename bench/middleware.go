package main

import (
	"context"

	"github.com/go-redis/redis_rate/v10"
)

// runMiddleware lets both sides obey limits that are never reached: waterclock as ever,
// asynq with a middleware that asks redis_rate for the tenant and for the user.
func runMiddleware(ctx context.Context, b *bench) error {
	jobs := newJobs(b.size(40_000, 6_000), tenants, perLane)
	tenant, user := redis_rate.PerSecond(200_000), redis_rate.PerMinute(100)
	var contenders []contender
	for _, n := range fleets() {
		contenders = append(contenders, b.waterclockOn(b.addr, n, unreached()), b.asynqGatedOn(b.addr, n, tenant, user))
	}
	for _, w := range ways() {
		rows, err := b.race(ctx, w, contenders, jobs)
		if err != nil {
			return err
		}
		ours, theirs := split(rows)
		best(ours).over(best(theirs)).wantRatioAtLeast(2)
	}
	return nil
}
