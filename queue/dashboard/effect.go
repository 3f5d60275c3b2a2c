package dashboard

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// An effect is what other policies would do to the jobs that wait, if nothing came and nothing
// had started lately.
type effect struct {
	Jobs                  int // that were looked at
	Tenants               int
	Released              int // would start at once, and do not now
	Sooner, Later         int
	SoonerBy, LaterBy     time.Duration // at most
	Dropped, Kept         int           // would be dropped, or would not be any more
	EndsBefore, EndsAfter time.Duration // from now
}

// What waits is looked at up to here.
const (
	effectTenants = 50
	effectLanes   = 1000 // users, of all these tenants
	effectLane    = 100  // jobs of each
	effectJobs    = 5000
)

// effect simulates what waits under two policies.
func (w *watched) effect(ctx context.Context, before, after queue.Policies) (e effect, err error) {
	now, err := w.inspector.Now(ctx)
	if err != nil {
		return e, err
	}
	jobs, tenants, err := w.waitingJobs(ctx, now)
	if err != nil || len(jobs) == 0 {
		return e, err
	}
	a, err := simulate.Run(simulate.Config{Policies: before, Accepted: true}, jobs)
	if err != nil {
		return e, err
	}
	b, err := simulate.Run(simulate.Config{Policies: after, Accepted: true}, jobs)
	if err != nil {
		return e, err
	}
	e.Jobs, e.Tenants = len(jobs), tenants
	for k := range a {
		e.compare(now, a[k], b[k])
	}
	return e, nil
}

// compare adds what becomes of one job.
func (e *effect) compare(now time.Time, a, b simulate.Result) {
	switch {
	case a.Reason == "" && b.Reason != "":
		e.Dropped++
	case a.Reason != "" && b.Reason == "":
		e.Kept++
	}
	if a.Reason == "" {
		e.EndsBefore = max(e.EndsBefore, a.Slot.Sub(now))
	}
	if b.Reason == "" {
		e.EndsAfter = max(e.EndsAfter, b.Slot.Sub(now))
	}
	if a.Reason != "" || b.Reason != "" {
		return
	}
	const same = time.Millisecond
	switch d := b.Slot.Sub(a.Slot); {
	case d < -same:
		e.Sooner++
		e.SoonerBy = max(e.SoonerBy, -d)
		if b.Slot.Sub(now) < same {
			e.Released++
		}
	case d > same:
		e.Later++
		e.LaterBy = max(e.LaterBy, d)
	}
}

// waitingJobs reads jobs that wait, of the tenants and users that are due first, as if they were
// offered now.
func (w *watched) waitingJobs(ctx context.Context, now time.Time) (jobs []simulate.Offer, tenants int, err error) {
	due, _, err := w.inspector.Tenants(ctx, 0, effectTenants)
	if err != nil {
		return nil, 0, err
	}
	for _, t := range due {
		users, err := w.inspector.Users(ctx, t.Tenant, 0, effectLanes/len(due))
		if err != nil {
			return nil, 0, err
		}
		for _, u := range users {
			lane, err := w.inspector.Lane(ctx, t.Tenant, u.User, 0, effectLane)
			if err != nil {
				return nil, 0, err
			}
			for _, job := range lane {
				job.Payload, job.CollapseKey, job.DigestKey, job.ID, job.Headers = nil, "", "", "", nil
				jobs = append(jobs, simulate.Offer{At: now, Job: job.Job})
			}
			if len(jobs) >= effectJobs {
				return jobs[:effectJobs], tenants + 1, nil
			}
		}
		tenants++
	}
	return jobs, tenants, nil
}
