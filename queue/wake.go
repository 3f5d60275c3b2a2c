package queue

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// A waker listens while its puller sleeps, and wakes it. Whoever makes a job that may
// start before anybody would look for it puts one entry into the queue's wake list
// (wake in lanes.lua); Redis gives it to the worker that has listened longest.
type waker struct {
	client redis.UniversalClient
	shared string // the queue's wake list
	own    string // a list that only wakes this one, to let it end
	log    *slog.Logger
	woken  chan struct{}
	asleep atomic.Bool
	listen chan struct{}
}

// listenFor is how long one blocking pop lasts: whole seconds, as go-redis takes them.
const listenFor = 5 * time.Second

func newWaker(client redis.UniversalClient, prefix, name string, log *slog.Logger) *waker {
	return &waker{
		client: client, shared: prefix + "wake", own: prefix + "wake:" + name, log: log,
		woken: make(chan struct{}, 1), listen: make(chan struct{}, 1),
	}
}

// sleep returns after d, or when woken, or when ctx ends.
func (w *waker) sleep(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	w.asleep.Store(true)
	defer w.asleep.Store(false)
	signal(w.listen)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-w.woken:
	}
}

// passOn gives a wake-up that this worker has no place for to another.
func (w *waker) passOn(ctx context.Context) {
	if err := w.client.LPush(ctx, w.shared, "1").Err(); err != nil && !errors.Is(err, context.Canceled) {
		w.log.Warn("passing a wake-up on", "err", err)
	}
}

// Run listens until ctx ends, but only while the puller sleeps: a busy worker takes no
// wake-ups that others could use.
func (w *waker) Run(ctx context.Context) {
	trouble := newTrouble(w.log, "listening for wake-ups")
	for {
		if !w.asleep.Load() {
			select {
			case <-ctx.Done():
				return
			case <-w.listen:
			}
		}
		popped, err := w.client.BLPop(ctx, listenFor, w.shared, w.own).Result()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && popped[0] == w.shared:
			signal(w.woken)
		case errors.Is(err, redis.Nil):
			err = nil
		}
		if wait := trouble.after(err); wait > 0 {
			sleep(ctx, wait)
		}
	}
}

// stop ends a listening Run whose context has ended: a blocking pop does not notice.
func (w *waker) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	pipe := w.client.TxPipeline()
	pipe.LPush(ctx, w.own, "1")
	pipe.PExpire(ctx, w.own, 2*listenFor)
	if _, err := pipe.Exec(ctx); err != nil {
		w.log.Debug("ending the wait for wake-ups", "err", err)
	}
}

// signal sets a flag that a channel of capacity 1 is.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
