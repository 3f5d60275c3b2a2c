package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/queue/watch"
)

// A recorder writes down what is offered to a queue, by whomever, for waterclock plan.
type recorder struct {
	inspector *watch.Watcher
	out       io.Writer
	log       *slog.Logger
}

// newRecorder opens the file; nil if there is none.
func newRecorder(o options, rdb redis.UniversalClient, out *sink, log *slog.Logger) (*recorder, error) {
	if o.record == "" {
		return nil, nil
	}
	file, err := out.open(o.record, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	inspector, err := watch.New(rdb, o.queues[0])
	return &recorder{inspector, file, log}, err
}

// run records until ctx ends. What cannot be read or written does not stop the worker.
func (r *recorder) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := r.inspector.Offers(ctx, r.write); err != nil {
			r.log.Error("offers are not recorded; trying again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
	return nil
}

func (r *recorder) write(offered []simulate.Offer, missed int) error {
	if missed > 0 {
		r.log.Warn("offers came faster than they could be recorded", "missing", missed)
	}
	var lines []byte
	for _, o := range offered {
		lines = append(lines, jobline.Record(o)...)
	}
	_, err := r.out.Write(lines)
	return err
}
