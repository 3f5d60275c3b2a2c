package queue

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// serve takes part in a queue until ctx ends: in each of its partitions, with places that they share. A queue that nobody has used yet
// has one, and may be divided before anybody writes: then the worker begins again.
func (w *Worker) serve(ctx context.Context, queue string, places *worker.Places, h asynq.Handler) error {
	root, err := store.New(w.client, queue)
	if err != nil {
		return err
	}
	log := w.cfg.Logger.With("queue", queue)
	partitions := store.NewPartitions(root, func(s *store.Store) *store.Store { return s })
	for {
		all, ok := w.partitionsOf(ctx, partitions, log)
		if !ok {
			return nil
		}
		err := w.serveAll(ctx, all, root, places, h, log)
		if !errors.Is(err, errDivided) {
			return err
		}
		log.Info("the queue has been divided into partitions")
		retry.Pause(ctx, time.Second) // if somebody says so who is wrong, it is found here again
	}
}

// partitionsOf returns the partitions of a queue, when Redis answers; false if ctx ends before.
func (w *Worker) partitionsOf(ctx context.Context, partitions *store.Partitions[*store.Store], log *slog.Logger) (all []*store.Store, ok bool) {
	trouble := retry.NewTrouble(log, "looking for the partitions of the queue")
	for ctx.Err() == nil {
		all, err := partitions.All(ctx)
		wait := trouble.After(err)
		if err == nil {
			return all, true
		}
		retry.Pause(ctx, wait)
	}
	return nil, false
}

// serveAll takes part in partitions until ctx ends. The error is errDivided if the queue has others by now.
func (w *Worker) serveAll(ctx context.Context, all []*store.Store, root *store.Store, places *worker.Places, h asynq.Handler, log *slog.Logger) error {
	w.metrics.parts.WithLabelValues(root.Queue).Set(float64(len(all)))
	dedicated, done := store.Dedicated(w.client, len(all))
	defer done()
	if len(all) > 1 {
		return w.newCrew(all, root.Dedicating(dedicated), dedicated, places, h, log).run(ctx)
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	m := w.newMembership(all[0].Dedicating(dedicated), root, nil, places, h, log, func() { end(errDivided) })
	err := m.run(ctx)
	if cause := context.Cause(ctx); errors.Is(cause, errDivided) {
		return cause
	}
	return err
}
