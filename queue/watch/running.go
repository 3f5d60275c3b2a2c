package watch

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A RunningJob is a job that a worker has: its handler runs, or will within 20 ms.
type RunningJob struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	User    string    `json:"user"`
	Type    string    `json:"type"`
	Attempt int       `json:"attempt"` // 1 for the first
	Since   time.Time `json:"since"`   // its slot
	Worker  string    `json:"worker"`  // the name of its run
	Host    string    `json:"host"`    // where the worker is
}

// Running returns the jobs that run, the oldest first.
func (w *Watcher) Running(ctx context.Context) ([]RunningJob, error) {
	found, err := inEach(ctx, w, "inspecting", func(l *look) ([]RunningJob, error) { return l.running(ctx) })
	if err != nil {
		return nil, err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b RunningJob) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// running returns the jobs of a partition that run, in no order.
func (l *look) running(ctx context.Context) (all []RunningJob, err error) {
	workers, err := l.store.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	for _, worker := range workers {
		claims, err := l.store.Claimed(ctx, worker.Name)
		if err != nil {
			return nil, err
		}
		for _, c := range claims {
			job, ok := envelope.Head(c.Job)
			if !c.Valid() || !ok {
				continue
			}
			all = append(all, RunningJob{
				ID: job.Name(), Tenant: c.Lane.Tenant, User: c.Lane.User, Type: job.Type, Attempt: job.Failures + 1,
				Since: envelope.Instant(c.Slot), Worker: worker.Name, Host: worker.Host,
			})
		}
	}
	return all, nil
}
