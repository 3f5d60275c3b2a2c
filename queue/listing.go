package queue

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

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
	i, err := i.of(ctx, tenant)
	if err != nil {
		return nil, err
	}
	views, err := i.store.Users(ctx, tenant, from, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	all := make([]UserStats, len(views))
	for k, v := range views {
		all[k] = UserStats{v.User, v.Waiting, envelope.Instant(v.Next)}
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
	all, _, err := page(ctx, i, from, n, func(p *Inspector, from, n int) ([]LaterJob, error) { return p.later(ctx, from, n) },
		func(a, b LaterJob) int { return a.At.Compare(b.At) })
	return all, err
}

func (i *Inspector) later(ctx context.Context, from, n int) ([]LaterJob, error) {
	views, err := i.store.LaterPage(ctx, from, n)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	var all []LaterJob
	for _, v := range views {
		job := LaterJob{Tenant: v.Lane.Tenant, User: v.Lane.User, At: envelope.Instant(v.At)}
		if head, ok := envelope.Head(v.Job); ok {
			job.ID, job.Type, job.Attempts, job.Error = head.Name(), head.Type, head.Failures, head.Error
		}
		all = append(all, job)
	}
	return all, nil
}
