package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// A gate is the pattern that asynq documents for rate limits, as a middleware: a handler
// asks a limiter, and a task that is over the limit fails with an error that counts as
// no failure and comes back at random within the next ten seconds. The limiter is
// redis_rate, so that the limit is one of the whole fleet.
type gate struct {
	limiter *redis_rate.Limiter
	tenant  redis_rate.Limit
	user    redis_rate.Limit // none if it is zero
	next    asynq.Handler
}

// overLimit is the error of a task that is not let through.
type overLimit struct {
	retryIn time.Duration
}

func (e *overLimit) Error() string { return fmt.Sprintf("over the limit, again in %v", e.retryIn) }

func (g *gate) ProcessTask(ctx context.Context, t *asynq.Task) error {
	tenant, rest, _ := bytes.Cut(t.Payload(), []byte(" "))
	user, _, _ := bytes.Cut(rest, []byte(" "))
	if err := g.ask(ctx, string(tenant), g.tenant); err != nil {
		return err
	}
	if !g.user.IsZero() {
		if err := g.ask(ctx, string(tenant)+"/"+string(user), g.user); err != nil {
			return err
		}
	}
	return g.next.ProcessTask(ctx, t)
}

func (g *gate) ask(ctx context.Context, key string, limit redis_rate.Limit) error {
	answer, err := g.limiter.Allow(ctx, key, limit)
	if err != nil {
		return err
	}
	if answer.Allowed == 0 {
		return &overLimit{retryIn: time.Duration(rand.IntN(10)) * time.Second}
	}
	return nil
}

// asynqGatedOn returns asynq with these limits, and that many servers.
func (b *bench) asynqGatedOn(addr string, servers int, tenant, user redis_rate.Limit) contender {
	c := b.asynqOn(addr, servers)
	c.name = fmt.Sprintf("asynq + redis_rate, %s", plural(servers, "server"))
	c.serve = func(_ context.Context, h asynq.Handler) (func() error, error) {
		client := redis.NewClient(&redis.Options{Addr: addr, PoolSize: places})
		through := &gate{limiter: redis_rate.NewLimiter(client), tenant: tenant, user: user, next: h}
		stop, err := b.startServers(fleetOn(addr, servers), asynq.Config{
			IsFailure: func(err error) bool { return !errors.As(err, new(*overLimit)) },
			RetryDelayFunc: func(n int, err error, t *asynq.Task) time.Duration {
				var over *overLimit
				if errors.As(err, &over) {
					return over.retryIn
				}
				return asynq.DefaultRetryDelayFunc(n, err, t)
			},
		}, through)
		return func() error { return errors.Join(stop(), client.Close()) }, err
	}
	return c
}
