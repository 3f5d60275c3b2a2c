package notify

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/throttle"
)

// quotas keep requests to providers within their quotas, in all workers together. A job's
// limits count messages; a quota counts what a provider counts, a request for each device.
type quotas struct {
	limiter *throttle.Limiter
	rules   map[string]throttle.Rule // by provider
}

// quotaPatience is how long an attempt waits for its turn. If that is farther ahead the
// message goes back to its lane, where waiting takes no place of the worker's.
const quotaPatience = time.Second

var errQuota = errors.New("notify: the provider's quota is used up for now")

func newQuotas(list []Provider, rdb redis.UniversalClient) (quotas, error) {
	q := quotas{rules: make(map[string]throttle.Rule)}
	for _, p := range list {
		switch {
		case p.Quota == (throttle.Rule{}):
			continue
		case p.Quota.Drops() || p.Quota.Shadows():
			return q, fmt.Errorf("notify: provider %s: quota %q: want a rule that defers, such as leak 500/s", p, p.Quota)
		case p.String() == "":
			return q, errors.New("notify: a provider with a quota needs a name")
		case rdb == nil:
			return q, fmt.Errorf("notify: provider %s: a quota needs HandlerConfig.Redis, where all workers count", p)
		}
		q.rules[p.String()] = p.Quota
		q.limiter = throttle.New(throttle.NewRedisStore(rdb, "wc:{notify}:quota:"))
	}
	return q, nil
}

// A turn is that of a message's requests to a provider: of all of them together, since a
// message that reaches some devices first needs another place in the user's window.
type turn struct {
	requests int
	asked    atomic.Bool   // by the first of them
	known    chan struct{} // closed when it has an answer
	wait     time.Duration
	err      error
}

// turnsOf returns the turns of a message with so many requests, by provider.
func (q quotas) turnsOf(requests map[string]int) map[string]*turn {
	turns := make(map[string]*turn)
	for provider, n := range requests {
		if _, bounded := q.rules[provider]; bounded {
			turns[provider] = &turn{requests: n, known: make(chan struct{})}
		}
	}
	return turns
}

// take waits for a turn. It returns how long the message has to wait if that is too long
// for an attempt.
func (q quotas) take(ctx context.Context, provider string, t *turn) (time.Duration, error) {
	if t == nil {
		return 0, nil
	}
	if t.asked.CompareAndSwap(false, true) {
		defer close(t.known)
		t.wait, t.err = q.await(ctx, provider, t.requests)
		return t.wait, t.err
	}
	<-t.known
	return t.wait, t.err
}

func (q quotas) await(ctx context.Context, provider string, requests int) (time.Duration, error) {
	of := throttle.Subject{Key: provider, Rules: []throttle.Rule{q.rules[provider]}}
	at, err := q.limiter.Peek(ctx, requests, of)
	if err == nil && at.RetryAfter > quotaPatience {
		return at.RetryAfter, errQuota
	}
	// Others may have come in between. A turn once taken is waited for: a leak takes none back.
	if err == nil {
		at, err = q.limiter.Reserve(ctx, requests, of)
	}
	if err != nil {
		return tokenWait, fmt.Errorf("notify: asking for a turn within the provider's quota: %w", err)
	}
	timer := time.NewTimer(at.RetryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return 0, nil
	case <-ctx.Done():
		return quotaPatience, context.Cause(ctx)
	}
}
