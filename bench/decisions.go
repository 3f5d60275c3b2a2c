package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/throttle"
)

const (
	decisionKeys = 10_000
	decisions    = 50_000 // per rival, phase and round
	batch        = 100
)

// A rival decides for n keys from `first` on, which wrap around.
type rival struct {
	name       string
	goroutines int
	batch      int
	decide     func(ctx context.Context, first, n int) error
}

// runDecisions lets 16 goroutines ask about 10,000 keys, in two phases: on empty keys,
// where the first is admitted, and on keys that are over their limit.
func runDecisions(ctx context.Context, client *redis.Client, rounds int, out io.Writer) error {
	rivals := deciders(client)
	rates := make(map[string][]float64)
	for range rounds {
		for _, r := range rivals {
			if err := client.FlushAll(ctx).Err(); err != nil {
				return err
			}
			for _, phase := range []string{"admitting", "refusing"} {
				n := decisionKeys
				if phase == "refusing" {
					n = decisions
					if err := exhaust(ctx, r); err != nil {
						return err
					}
				}
				rate, err := measure(ctx, r, n)
				if err != nil {
					return fmt.Errorf("%s: %w", r.name, err)
				}
				rates[r.name+phase] = append(rates[r.name+phase], rate)
			}
		}
	}
	for _, phase := range []string{"admitting", "refusing"} {
		fmt.Fprintf(out, "\n%-52s %12s %8s\n", phase, "decisions/s", "ratio")
		base := median(rates[rivals[0].name+phase])
		for _, r := range rivals {
			rate := median(rates[r.name+phase])
			fmt.Fprintf(out, "%-52s %12.0f %8.2f\n", r.name, rate, rate/base)
		}
	}
	return nil
}

func deciders(client *redis.Client) []rival {
	rate := redis_rate.NewLimiter(client)
	limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
	both := []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)}
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
		_, err := rate.Allow(ctx, key(first), redis_rate.PerMinute(10))
		return err
	}
	return []rival{
		{"redis_rate, one GCRA rule", 16, 1, redisRate},
		{"throttle, window", 16, 1, allow(both[:1])},
		{"throttle, window + spacing", 16, 1, allow(both)},
		{"throttle, window + spacing, AllowMany of 100", 16, batch, allowMany},
		{"redis_rate, one GCRA rule, one goroutine", 1, 1, redisRate},
		{"throttle, window + spacing, one goroutine", 1, 1, allow(both)},
	}
}

func key(i int) string { return "user-" + strconv.Itoa(i%decisionKeys) }

// exhaust uses up what the rival still admits.
func exhaust(ctx context.Context, r rival) error {
	all := r
	all.goroutines = 16
	_, err := measure(ctx, all, 10*decisionKeys)
	return err
}

// measure returns decisions per second.
func measure(ctx context.Context, r rival, decisions int) (float64, error) {
	var next atomic.Int64
	var failed atomic.Value
	var group sync.WaitGroup
	begin := time.Now()
	for range r.goroutines {
		group.Go(func() {
			for {
				first := int(next.Add(int64(r.batch))) - r.batch
				if first >= decisions {
					return
				}
				if err := r.decide(ctx, first, r.batch); err != nil {
					failed.Store(err)
					return
				}
			}
		})
	}
	group.Wait()
	err, _ := failed.Load().(error)
	return float64(decisions) / time.Since(begin).Seconds(), err
}

func median(of []float64) float64 {
	of = slices.Sorted(slices.Values(of))
	return of[len(of)/2]
}
