package watch

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// WorkerStats are the state of one worker.
type WorkerStats struct {
	Worker  string        `json:"worker"` // the name of its run
	Host    string        `json:"host"`   // and process
	Since   time.Time     `json:"since"`
	Places  int           `json:"places"`
	Running int           `json:"running"`  // claims
	Doubt   time.Duration `json:"doubt_ns"` // how far its idea of Redis's clock may be off
	Late    time.Duration `json:"late_ns"`  // 99 of 100 jobs that it started in the last minute came sooner after their slots
	Alive   bool          `json:"alive"`    // its lease holds; otherwise its jobs come back soon
	Leads   bool          `json:"leads"`    // it decides for the queue
}

// Workers returns the workers of the queue, in the order of their names.
func (w *Watcher) Workers(ctx context.Context) ([]WorkerStats, error) {
	all, err := w.workers(ctx)
	return all, w.wrapped("inspecting", err)
}

func (w *Watcher) workers(ctx context.Context) ([]WorkerStats, error) {
	fleet, err := w.store.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := w.store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	now, err := w.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]WorkerStats, len(fleet))
	for k, w := range fleet {
		all[k] = WorkerStats{
			Worker: w.Name, Host: w.Host, Since: envelope.Instant(w.Since), Places: w.Places, Running: w.Claims, Doubt: w.Doubt, Late: w.Late,
			Alive: w.Lease > now.Now, Leads: w.Name == meta.Leader && meta.Till >= now.Now,
		}
	}
	return all, nil
}
