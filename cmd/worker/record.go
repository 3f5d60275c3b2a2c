package main

import (
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/service"
	"github.com/waterclock/waterclock/queue/watch"
)

// newRecorder opens the file in which is recorded what is offered; nil if there is none.
func newRecorder(o options, rdb redis.UniversalClient, out *sink, log *slog.Logger) (*service.Recorder, error) {
	if o.record == "" {
		return nil, nil
	}
	file, err := out.open(o.record, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--record: %w", err)
	}
	watcher, err := watch.New(rdb, o.queues[0])
	return &service.Recorder{Watcher: watcher, Out: file, Logger: log}, err
}
