package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Watcher tells how a queue does, with all its partitions if it has several. It is an Inspector of the queue, too. It is
// safe for concurrent use.
type Watcher struct {
	*queue.Inspector
	root       *store.Store // of what the partitions have in common
	partitions *store.Partitions[*look]
}

// New returns a watcher of the queue. The error wraps [queue.ErrInvalidArgument].
func New(rdb redis.UniversalClient, name string) (*Watcher, error) {
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		return nil, err
	}
	s, err := store.New(rdb, name)
	if err != nil {
		return nil, err
	}
	at := func(s *store.Store) *look { return &look{s, forecast.NewReader(rdb, s)} }
	return &Watcher{inspector, s, store.NewPartitions(s, at)}, nil
}

// As returns a watcher of the same queue that notes with pauses and policies who made them, and why.
func (w *Watcher) As(n queue.Note) *Watcher {
	return &Watcher{w.Inspector.As(n), w.root, w.partitions}
}

// Queues returns the names of all queues of a Redis that had a worker, or policies, in
// alphabetical order.
func Queues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	return store.Queues(ctx, rdb)
}

// Known reports whether anybody has used the queue: a producer, a worker, or who set its policies.
func (w *Watcher) Known(ctx context.Context) (bool, error) {
	known, err := w.root.Known(ctx)
	return known, w.wrapped("inspecting", err)
}

// Now reads Redis's clock, which all instants of the queue are on. The nodes of a cluster have a clock each: those of the partitions
// of a queue may differ from it a little.
func (w *Watcher) Now(ctx context.Context) (time.Time, error) {
	clock, err := w.root.Clock(ctx)
	return envelope.Instant(clock.Now), w.wrapped("reading the clock of", err)
}

// nowOf reads the clock that all instants of a tenant are on.
func (w *Watcher) nowOf(ctx context.Context, tenant string) (time.Time, error) {
	l, err := w.of(ctx, tenant)
	if err != nil {
		return time.Time{}, err
	}
	clock, err := l.store.Clock(ctx)
	return envelope.Instant(clock.Now), l.wrapped("reading the clock of", err)
}

// Recent returns the slots of a user's newest starts, oldest first, as many as the user's windows
// and spacings need; none without such rules.
func (w *Watcher) Recent(ctx context.Context, tenant, user string) ([]time.Time, error) {
	l, err := w.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	states, err := l.store.States(ctx, []string{envelope.UserScope(tenant, user)})
	if err != nil {
		return nil, l.wrapped("inspecting", err)
	}
	var state rules.State
	if err := state.Decode(states[0]); err != nil {
		return nil, l.wrapped("inspecting", err)
	}
	var all []time.Time
	for _, at := range state.Recent() {
		all = append(all, envelope.Instant(at))
	}
	return all, nil
}

// wrapped is failed for an error that may be nil.
func (w *Watcher) wrapped(doing string, err error) error {
	if err == nil {
		return nil
	}
	return w.failed(doing, err)
}

// failed says what of a watcher has failed.
func (w *Watcher) failed(doing string, err error) error {
	return fmt.Errorf("%s queue %q: %w", doing, w.root.Name(), err)
}
