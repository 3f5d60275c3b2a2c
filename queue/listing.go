package queue

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Queues returns the names of all queues of a Redis that had a worker, or policies, in
// alphabetical order.
func Queues(ctx context.Context, rdb redis.UniversalClient) ([]string, error) {
	return store.Queues(ctx, rdb)
}

// Known reports whether anybody has used the queue: a producer, a worker, or who set its policies.
func (i *Inspector) Known(ctx context.Context) (bool, error) {
	known, err := i.store.Known(ctx)
	return known, i.wrapped("inspecting", err)
}

// UserStats are the state of one user with waiting jobs.
type UserStats struct {
	User    string `json:"user"`
	Waiting int    `json:"waiting"`

	// Next is an instant before which no job of the user starts. [Inspector.Explain] knows
	// it better: this one is looked up only.
	Next time.Time `json:"next"`
}

// Users returns users of a tenant with waiting jobs, in the order in which they are due,
// from the given place on (0 is the first), at most n.
func (i *Inspector) Users(ctx context.Context, tenant string, from, n int) ([]UserStats, error) {
	if from < 0 || n < 1 {
		return nil, nil
	}
	views, err := i.store.Users(ctx, tenant, from, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	all := make([]UserStats, len(views))
	for k, v := range views {
		all[k] = UserStats{v.User, v.Waiting, instant(v.Next)}
	}
	return all, nil
}

// A LaterJob is a job that is scheduled for a time ahead, or backs off after a failed attempt.
type LaterJob struct {
	ID       string    `json:"id"`
	Tenant   string    `json:"tenant"`
	User     string    `json:"user"`
	Type     string    `json:"type"`
	At       time.Time `json:"at"`              // when it enters its lane: of a job that has failed, the next attempt
	Attempts int       `json:"attempts"`        // that have failed; 0 for a scheduled job
	Error    string    `json:"error,omitempty"` // of the last attempt: its first 300 bytes
}

// Later returns the jobs that wait for their time, in the order in which it comes, from the
// given place on (0 is the first), at most n.
func (i *Inspector) Later(ctx context.Context, from, n int) ([]LaterJob, error) {
	if from < 0 || n < 1 {
		return nil, nil
	}
	views, err := i.store.LaterPage(ctx, from, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	var all []LaterJob
	for _, v := range views {
		job := LaterJob{Tenant: v.Lane.Tenant, User: v.Lane.User, At: instant(v.At)}
		if head, ok := envelope.Head(v.Job); ok {
			job.ID, job.Type, job.Attempts, job.Error = head.Name(), head.Type, head.Failures, head.Error
		}
		all = append(all, job)
	}
	return all, nil
}

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
func (i *Inspector) Workers(ctx context.Context) ([]WorkerStats, error) {
	all, err := i.workers(ctx)
	return all, i.wrapped("inspecting", err)
}

func (i *Inspector) workers(ctx context.Context) ([]WorkerStats, error) {
	fleet, err := i.store.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	meta, err := i.store.Meta(ctx)
	if err != nil {
		return nil, err
	}
	now, err := i.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	all := make([]WorkerStats, len(fleet))
	for k, w := range fleet {
		all[k] = WorkerStats{
			Worker: w.Name, Host: w.Host, Since: instant(w.Since), Places: w.Places, Running: w.Claims, Doubt: w.Doubt, Late: w.Late,
			Alive: w.Lease > now.Now, Leads: w.Name == meta.Leader && meta.Till >= now.Now,
		}
	}
	return all, nil
}
