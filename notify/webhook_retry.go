package notify

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// webhookDelays are those that Standard Webhooks suggests.
func webhookDelays() []time.Duration {
	return []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute,
		2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	}
}

var (
	errDisabled = errors.New("notify: webhook: the endpoint is disabled, because it has failed for days or is gone")
	errGivenUp  = errors.New("the last attempt")
)

// A webhookAttempt is what the consequences of an answer depend on.
type webhookAttempt struct {
	to    Target
	n     int // its number
	state endpointState
}

// consequence plans the next attempt, or ends the message's, or disables the endpoint.
func (w *Webhook) consequence(ctx context.Context, o Outcome, a webhookAttempt) Outcome {
	now := clockNow(ctx)
	switch o.Action {
	case Done:
		if !a.state.since.IsZero() {
			w.health.forget(ctx, a.to)
		}
		return o
	case Forget:
		if a.to.Token != "" {
			w.health.disable(ctx, a.to, now)
			return o
		}
		o.Action = Retry // the configured endpoint is nobody else's to delete
	case Retry, Defer:
		o.Action = Retry
	default:
		return o
	}
	if a.state.since.IsZero() {
		a.state.since = now
		w.health.fails(ctx, a.to, now)
	}
	n := max(a.n, 1)
	if n <= len(w.delays) {
		o.After = max(o.After, jittered(w.delays[n-1]))
		return o
	}
	o.Action, o.After, o.Err = Drop, 0, fmt.Errorf("%w, %w", o.Err, errGivenUp)
	// Disabled only if nothing has succeeded meanwhile: it may be this message alone that
	// the endpoint refuses.
	if w.health.rdb != nil && a.to.Token != "" && now.Sub(a.state.since) >= sumOf(w.delays) {
		w.health.disable(ctx, a.to, now)
		o.Action = Forget
	}
	return o
}

func sumOf(delays []time.Duration) (sum time.Duration) {
	for _, d := range delays {
		sum += d
	}
	return sum
}

// jittered adds up to a tenth: messages that failed together are not repeated together.
func jittered(d time.Duration) time.Duration {
	return d + time.Duration(rand.Int64N(int64(d)/10+1))
}

// endpoints is what all workers know of endpoints that fail: in Redis, one key for each.
type endpoints struct{ rdb redis.UniversalClient }

// An endpointState is the zero value for an endpoint that works.
type endpointState struct {
	disabled bool
	since    time.Time // when it was disabled, or began to fail
}

// disabledFor tells whether nothing is sent to a target: an endpoint that was registered
// again later is enabled.
func (s endpointState) disabledFor(to Target) bool {
	return s.disabled && !to.Registered.After(s.since)
}

// stateLife is how long an endpoint's state is kept without a message to it.
const stateLife = 30 * 24 * time.Hour

func endpointKey(to Target) string {
	sum := sha256.Sum256([]byte(to.Token))
	return "wc:{notify}:endpoint:" + hex.EncodeToString(sum[:16])
}

func (e endpoints) read(ctx context.Context, to Target) (s endpointState, err error) {
	if e.rdb == nil || to.Token == "" {
		return s, nil
	}
	text, err := e.rdb.Get(ctx, endpointKey(to)).Result()
	if errors.Is(err, redis.Nil) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("notify: webhook: reading whether the endpoint is disabled: %w", err)
	}
	kind, at, _ := strings.Cut(text, " ")
	micros, err := strconv.ParseInt(at, 10, 64)
	if err != nil {
		return s, nil // nothing of ours: as if there were nothing
	}
	return endpointState{kind == "disabled", time.UnixMicro(micros)}, nil
}

// fails notes the first failure. An error is not worth the message's attempt: the next
// failure is noted.
func (e endpoints) fails(ctx context.Context, to Target, now time.Time) {
	if e.rdb != nil && to.Token != "" {
		e.rdb.SetNX(ctx, endpointKey(to), "failing "+strconv.FormatInt(now.UnixMicro(), 10), stateLife)
	}
}

func (e endpoints) disable(ctx context.Context, to Target, now time.Time) {
	if e.rdb != nil {
		e.rdb.Set(ctx, endpointKey(to), "disabled "+strconv.FormatInt(now.UnixMicro(), 10), stateLife)
	}
}

func (e endpoints) forget(ctx context.Context, to Target) { e.rdb.Del(ctx, endpointKey(to)) }
