package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// runRoundTrip drains a backlog while every round trip to Redis takes a millisecond, and
// then without that. Jobs are offered without it, since this is about workers. A job holds a
// place for a round trip at least: a worker with more of them shows what else bounds it.
func runRoundTrip(ctx context.Context, b *bench) error {
	proxy, err := startChild(role{Name: "proxy", Redis: b.addr})
	if err != nil {
		return err
	}
	defer proxy.Close()
	far, err := proxy.hear()
	if err != nil {
		return err
	}
	ping := b.row("round trip through the proxy", "ms")
	var near, distant []contender
	for _, n := range fleets() {
		near = append(near, b.waterclockOn(b.addr, n, unreached()))
		c := b.waterclockOn(far, n, unreached())
		c.name += ", at 1 ms"
		distant = append(distant, c)
	}
	var wide []contender
	for addr, where := range map[string]string{b.addr: "", far: ", at 1 ms"} {
		c := b.waterclockOn(addr, 1, unreached())
		c.name = fmt.Sprintf("waterclock, 1 worker of %d places%s", manyPlaces, where)
		c.serve = func(ctx context.Context, h asynq.Handler) (func() error, error) {
			return b.startWorkers(ctx, fleet{addr, 1, manyPlaces}, h)
		}
		wide = append(wide, c)
	}
	slices.SortFunc(wide, func(a, b contender) int { return len(a.name) - len(b.name) }) // near before far
	rival := b.asynqOn(far, 1)
	rival.name += ", at 1 ms"
	jobs := newJobs(b.size(40_000, 10_000), tenants, perLane)
	few := jobs[:b.size(4_000, 1_000)] // it would take too long with all

	rows := make(map[string]*row)
	contenders := slices.Concat(distant, near, wide, []contender{rival})
	for _, c := range contenders {
		rows[c.name] = b.row(c.name+", drained", "jobs/s")
	}
	for range b.rounds {
		ms, err := pingTime(ctx, far)
		if err != nil {
			return err
		}
		ping.add(ms)
		for _, c := range contenders {
			load := jobs
			if c.name == rival.name {
				load = few
			}
			rate, spent, err := b.carry(ctx, way{"drained", drain}, c, load)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			r := rows[c.name]
			r.add(rate)
			r.addCost(spent, len(load))
			b.note("%s: %s jobs/s", r.What, figure(rate))
		}
	}
	ours := best(rowsOf(rows, distant))
	b.again(ours).over(best(rowsOf(rows, near))).wantRatioAtLeast(0.8)
	ours.over(rows[rival.name]).wantRatioAtLeast(10)
	rows[wide[1].name].over(rows[wide[0].name]).wantRatioAtLeast(0.8)
	return nil
}

// manyPlaces is how many handlers a worker may run at once for which a round trip is short.
const manyPlaces = 400

func rowsOf(rows map[string]*row, contenders []contender) (these []*row) {
	for _, c := range contenders {
		these = append(these, rows[c.name])
	}
	return these
}

// pingTime is the median time of a round trip with nothing to do, in milliseconds.
func pingTime(ctx context.Context, addr string) (float64, error) {
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	var times []float64
	for range 200 {
		begin := time.Now()
		if err := client.Ping(ctx).Err(); err != nil {
			return 0, err
		}
		times = append(times, ms(time.Since(begin)))
	}
	return median(times), nil
}

// ms is a time in milliseconds.
func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
