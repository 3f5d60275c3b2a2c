package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/throttle"
)

// runMemory fills each rule with 10 actions and asks Redis for the size of what it keeps.
func runMemory(ctx context.Context, client *redis.Client, _ int, out io.Writer) error {
	minute := time.Minute
	rules := []throttle.Rule{
		throttle.Leak(10, minute), throttle.TokenBucket(10, minute, 10), throttle.Window(10, minute),
		throttle.Window(100, minute), throttle.Window(1000, minute), throttle.Spacing(6 * time.Second),
		throttle.FixedWindow(10, minute), throttle.SlidingCounter(10, minute, 2), throttle.SlidingCounter(10, minute, 12),
	}
	fmt.Fprintf(out, "\n| rule | bytes |\n|---|---|\n")
	for _, rule := range rules {
		if err := client.FlushAll(ctx).Err(); err != nil {
			return err
		}
		limiter := throttle.New(throttle.NewRedisStore(client, "rl"))
		for range 1001 {
			if _, err := limiter.Reserve(ctx, 1, throttle.Subject{Key: "user-12345", Rules: []throttle.Rule{rule}}); err != nil {
				return err
			}
		}
		bytes := int64(0)
		for _, key := range client.Keys(ctx, "*").Val() {
			bytes += client.MemoryUsage(ctx, key).Val()
		}
		fmt.Fprintf(out, "| `%s` | %d |\n", rule, bytes)
	}
	return nil
}
