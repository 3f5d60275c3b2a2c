package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/throttle"
)

const (
	perKey        = 10  // admitted
	decisionBatch = 100 // of AllowMany
)

// A decider decides about n keys from `first` on, which wrap around.
type decider struct {
	name       string
	goroutines int
	batch      int
	decide     func(ctx context.Context, first, n int) error
}

// A phase is what deciders are asked: of empty keys once, where all is admitted; of empty
// keys as often as redis_rate's rule admits, and then on, where all is refused.
type phase struct {
	name  string
	fresh bool // on empty keys
	asks  int
}

func (b *bench) phases(keys int) []phase {
	return []phase{
		{"once each", true, keys},
		{fmt.Sprintf("%d times each", perKey), true, perKey * keys},
		{"refusing", false, b.size(100_000, 30_000)},
	}
}

// runDecisions lets goroutines ask about 10,000 keys in turns.
func runDecisions(ctx context.Context, b *bench) error {
	keys := b.size(10_000, 5_000)
	deciders, phases := b.deciders(keys), b.phases(keys)
	rows := make(map[string]*row)
	for _, p := range phases {
		for _, d := range deciders {
			rows[d.name+p.name] = b.row(d.name+", "+p.name, "decisions/s")
		}
	}
	for range b.rounds {
		for _, d := range deciders {
			for _, p := range phases {
				if p.fresh {
					if err := b.empty(ctx); err != nil {
						return err
					}
				}
				rate, spent, err := b.decide(ctx, d, p.asks)
				if err != nil {
					return fmt.Errorf("%s: %w", d.name, err)
				}
				r := rows[d.name+p.name]
				r.add(rate)
				r.addCost(spent, p.asks)
				b.note("%s: %s decisions/s", r.What, figure(rate))
			}
		}
	}
	for _, p := range phases {
		rival := rows[deciders[0].name+p.name]
		rows[deciders[1].name+p.name].over(rival)
		rows[deciders[2].name+p.name].over(rival).wantRatioAtLeast(1.2)
		rows[deciders[3].name+p.name].over(rival).wantRatioAtLeast(4)
		rows[deciders[5].name+p.name].over(rows[deciders[4].name+p.name])
	}
	return nil
}

func (b *bench) deciders(keys int) []decider {
	key := func(i int) string { return "user-" + strconv.Itoa(i%keys) }
	rate := redis_rate.NewLimiter(b.client)
	limiter := throttle.New(throttle.NewRedisStore(b.client, "rl"))
	both := []throttle.Rule{throttle.Window(perKey, time.Minute), throttle.Spacing(3 * time.Second)}
	allow := func(rules []throttle.Rule) func(ctx context.Context, first, _ int) error {
		return func(ctx context.Context, first, _ int) error {
			_, err := limiter.Allow(ctx, 1, throttle.Subject{Key: key(first), Rules: rules})
			return err
		}
	}
	allowMany := func(ctx context.Context, first, n int) error {
		requests := make([]throttle.Request, n)
		for i := range requests {
			requests[i].Subjects = []throttle.Subject{{Key: key(first + i), Rules: both}}
		}
		_, err := limiter.AllowMany(ctx, requests...)
		return err
	}
	redisRate := func(ctx context.Context, first, _ int) error {
		_, err := rate.Allow(ctx, key(first), redis_rate.PerMinute(perKey))
		return err
	}
	return []decider{
		{"redis_rate, one GCRA rule", 16, 1, redisRate},
		{"throttle, window", 16, 1, allow(both[:1])},
		{"throttle, window + spacing", 16, 1, allow(both)},
		{"throttle, window + spacing, AllowMany of 100", 16, decisionBatch, allowMany},
		{"redis_rate, one GCRA rule, one goroutine", 1, 1, redisRate},
		{"throttle, window + spacing, one goroutine", 1, 1, allow(both)},
	}
}

// decide returns decisions per second, and what they cost Redis.
func (b *bench) decide(ctx context.Context, d decider, n int) (rate float64, spent cost, err error) {
	before, err := b.spent(ctx)
	if err != nil {
		return 0, cost{}, err
	}
	begin := time.Now()
	if err := d.ask(ctx, n); err != nil {
		return 0, cost{}, err
	}
	took := time.Since(begin)
	after, err := b.spent(ctx)
	return float64(n) / took.Seconds(), after.since(before), err
}

// ask lets the goroutines ask for so many decisions between them.
func (d decider) ask(ctx context.Context, n int) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range d.goroutines {
		group.Go(func() error {
			for {
				first := int(next.Add(int64(d.batch))) - d.batch
				if first >= n {
					return nil
				}
				if err := d.decide(ctx, first, d.batch); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
