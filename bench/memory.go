package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// runMemory asks Redis for its size before and after a hundred thousand jobs wait, and
// for that of a subject of each rule when it is full.
func runMemory(ctx context.Context, b *bench) error {
	jobs := newJobs(b.size(100_000, 20_000), tenants, perLane)
	ours, asynq := b.waterclockOn(b.addr, 1, unreached()), b.asynqOn(b.addr, 1)
	first := b.row("waiting job, waterclock, while its batch is remembered", "bytes")
	later := b.row("waiting job, waterclock", "bytes")
	theirs := b.row("waiting job, asynq", "bytes")
	for range b.rounds {
		for _, c := range []contender{ours, asynq} {
			// What Redis needs once, such as for scripts, is not for the jobs.
			if err := errors.Join(c.offerAll(ctx, jobs[:len(jobs)/10]), b.empty(ctx)); err != nil {
				return err
			}
			before, err := b.used(ctx)
			if err != nil {
				return err
			}
			if err := c.prepare(ctx); err != nil {
				return err
			}
			if err := c.offerAll(ctx, jobs); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			perJob := func() (float64, error) {
				after, err := b.used(ctx)
				return float64(after-before)/float64(len(jobs)) - payloadSize, err
			}
			bytes, err := perJob()
			if err != nil {
				return err
			}
			if c.name == asynq.name {
				theirs.add(bytes)
				continue
			}
			first.add(bytes)
			if err := b.forgetBatches(ctx); err != nil {
				return err
			}
			if bytes, err = perJob(); err != nil {
				return err
			}
			later.add(bytes)
		}
	}
	later.wantAtMost(64)
	return b.measureSubjects(ctx)
}

// used returns the bytes that Redis uses, but for the buffers of its clients.
func (b *bench) used(ctx context.Context) (int64, error) {
	info, err := b.client.Info(ctx, "memory").Result()
	if err != nil {
		return 0, fmt.Errorf("asking Redis for its size: %w", err)
	}
	used, err := strconv.ParseInt(valueOf(info, "used_memory", ":"), 10, 64)
	clients, noClients := strconv.ParseInt(valueOf(info, "mem_clients_normal", ":"), 10, 64)
	return used - clients, errors.Join(err, noClients)
}

// forgetBatches does what else a minute would do: a batch of offers is remembered so
// long, in case it is repeated.
func (b *bench) forgetBatches(ctx context.Context) error {
	keys := b.client.Scan(ctx, 0, "wc:{"+queueName+"}:batch:*", 10_000).Iterator()
	for keys.Next(ctx) {
		if err := b.client.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// measureSubjects fills each rule with more actions than it admits.
func (b *bench) measureSubjects(ctx context.Context) error {
	minute := time.Minute
	rules := []throttle.Rule{
		throttle.Leak(10, minute), throttle.TokenBucket(10, minute, 10), throttle.Window(10, minute),
		throttle.Window(100, minute), throttle.Window(1000, minute), throttle.Spacing(6 * time.Second),
		throttle.FixedWindow(10, minute), throttle.SlidingCounter(10, minute, 2), throttle.SlidingCounter(10, minute, 12),
	}
	for _, rule := range rules {
		if err := b.empty(ctx); err != nil {
			return err
		}
		limiter := throttle.New(throttle.NewRedisStore(b.client, "rl"))
		for range 1001 {
			if _, err := limiter.Reserve(ctx, 1, throttle.Subject{Key: "user-12345", Rules: []throttle.Rule{rule}}); err != nil {
				return err
			}
		}
		bytes := int64(0)
		for _, key := range b.client.Keys(ctx, "*").Val() {
			bytes += b.client.MemoryUsage(ctx, key).Val()
		}
		b.row("subject with "+rule.String(), "bytes").add(float64(bytes))
	}
	return nil
}
