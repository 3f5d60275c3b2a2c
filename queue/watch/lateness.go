package watch

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Of a backlog that waits for its limits, now and then a limit has just let a job start when one looks: the leader has not
// started it yet. That job is not overdue, or the word for the queue would depend on the instant of the look. Which job is
// overdue follows from what held it back:
//
//	nothing               it is overdue from its offer on
//	rules, pauses         they say since when they let it start: it is overdue after a quarter of a second
//	concurrency limits    Redis does not say since when there is room: it is overdue if it may start, waits on for a quarter of
//	                      a second, and may start whenever one looks; unless half of a limit that it shares with other users is taken, and
//	                      places are free

// dueAfter is how long the leader may take until it starts a job that a limit has let go: some round trips to Redis.
const dueAfter = 250 * time.Millisecond

// How many tenants are looked at at a time, and how many of a tenant's jobs again.
const (
	tenantReads = 8
	lookedAgain = 3
)

// A due job may start, and waits.
type due struct {
	late  time.Duration // for so long limits have let it start
	stamp string        // of the job
	sure  bool          // it is overdue, and need not be looked at again
}

// lateness returns for how long limits have let the first job of each tenant start that is overdue; 0 for none. What the
// rules of all tenants say is read at once, and the users are looked at of those alone whose rules let something start:
// tenants whose jobs wait for their limits cost a few commands.
func (l *look) lateness(ctx context.Context, tenants []string) ([]time.Duration, error) {
	nobody := make([]string, len(tenants)) // stands for users whose rules have no state
	open, err := l.startable(ctx, tenants, nobody)
	if err != nil {
		return nil, err
	}
	late := make([]time.Duration, len(tenants))
	again := make([]map[string]due, len(tenants)) // by user, what has to be looked at again
	err = each(ctx, len(tenants), func(ctx context.Context, k int) (err error) {
		if open[k] {
			late[k], again[k], err = l.latenessOf(ctx, tenants[k])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	// The times differ, so that handlers that all take equally long are seen at other moments of their turn.
	for _, wait := range []time.Duration{90 * time.Millisecond, dueAfter - 90*time.Millisecond} {
		if again, err = l.stillDue(ctx, tenants, again, wait); err != nil {
			return nil, err
		}
	}
	for k, jobs := range again {
		for _, job := range jobs {
			late[k] = max(late[k], job.late)
		}
	}
	return late, nil
}

// stillDue looks again after some time at jobs, by tenant and user, and returns those that are due and wait as before.
func (l *look) stillDue(ctx context.Context, tenants []string, were []map[string]due, wait time.Duration) ([]map[string]due, error) {
	if !slices.ContainsFunc(were, func(jobs map[string]due) bool { return len(jobs) > 0 }) {
		return were, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(wait):
	}
	still := make([]map[string]due, len(were))
	return still, each(ctx, len(were), func(ctx context.Context, k int) error {
		still[k] = make(map[string]due)
		for user, was := range were[k] {
			now, err := l.dueOf(ctx, tenants[k], store.UserView{User: user})
			if err != nil {
				return err
			}
			if now.late > 0 && now.stamp == was.stamp {
				still[k][user] = was
			}
		}
		return nil
	})
}

// each calls do with the numbers from 0 to n, several at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, k int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(tenantReads)
	for k := range n {
		group.Go(func() error { return do(ctx, k) })
	}
	return group.Wait()
}

// latenessOf returns for how long a tenant's first job that is overdue is so, among the users that are due first; if there is
// none, those jobs that have to be looked at again.
func (l *look) latenessOf(ctx context.Context, tenant string) (time.Duration, map[string]due, error) {
	users, err := l.store.Users(ctx, tenant, 0, healthSample)
	if err != nil {
		return 0, nil, err
	}
	tenants, names := make([]string, len(users)), make([]string, len(users))
	for k, u := range users {
		tenants[k], names[k] = tenant, u.User
	}
	open, err := l.startable(ctx, tenants, names)
	if err != nil {
		return 0, nil, err
	}
	again := make(map[string]due)
	for k, u := range users {
		if !open[k] || u.Waiting == 0 {
			continue
		}
		job, err := l.dueOf(ctx, tenant, u)
		switch {
		case err != nil:
			return 0, nil, err
		case job.late > 0 && job.sure:
			return job.late, nil, nil
		case job.late > 0 && len(again) < lookedAgain:
			again[u.User] = job
		}
	}
	return 0, again, nil
}

// dueOf returns the first waiting job of a user, if it may start and nothing has just let it go; its late is 0 otherwise.
func (l *look) dueOf(ctx context.Context, tenant string, u store.UserView) (due, error) {
	p, _, firsts, err := l.forecasts.OfFirsts(ctx, tenant, u.User)
	if err != nil || len(firsts) == 0 {
		return due{}, err
	}
	next := p.Next(firsts)
	if p.Full(next.Lane, next.Job) != "" {
		return due{}, nil
	}
	since := next.Job.Since()
	at, known := p.EarliestFrom(min(max(since, u.Next), p.Now), next.Lane, next.Job)
	late := envelope.Instant(p.Now).Sub(envelope.Instant(at))
	if !known || late <= 0 || at > since && late < dueAfter {
		return due{}, nil
	}
	counted, narrow := p.Concurrent(next.Lane, next.Job)
	if narrow {
		return due{}, nil
	}
	return due{late, next.Job.Stamp, !counted}, nil
}

// startable reports of each tenant and its user whether a job of cost 1 may start now.
func (l *look) startable(ctx context.Context, tenants, users []string) ([]bool, error) {
	if len(tenants) == 0 {
		return nil, nil
	}
	p, err := l.forecasts.OfAll(ctx, tenants, users)
	if err != nil {
		return nil, err
	}
	open := make([]bool, len(tenants))
	for k, tenant := range tenants {
		lane := store.Lane{Tenant: tenant, User: users[k]}
		at, known := p.Earliest(lane, nil)
		open[k] = known && at <= p.Now && p.Full(lane, nil) == ""
	}
	return open, nil
}
