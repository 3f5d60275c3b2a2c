package queue

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

// SetPolicies replaces the policies of the queue. They are checked whole first; the
// error says what is wrong and nothing changes. The next pull of every worker obeys
// them, for waiting jobs too. Setting the same policies again changes nothing.
func (i *Inspector) SetPolicies(ctx context.Context, p Policies) error {
	if err := checkQueue(i.queue); err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	fields, err := p.compile(Grace)
	if err != nil {
		return err
	}
	var args []any
	for field, text := range fields {
		args = append(args, field, text)
	}
	if err := i.scripts.run(ctx, i.scripts.policies, args...).Err(); err != nil {
		return fmt.Errorf("setting the policies of queue %q: %w", i.queue, err)
	}
	return nil
}

// Policies returns the policies in force. The zero value means that none were ever set.
func (i *Inspector) Policies(ctx context.Context) (Policies, error) {
	text, err := i.client.HGet(ctx, prefix(i.queue)+"policies", "source").Result()
	if err == redis.Nil {
		return Policies{}, nil
	}
	if err != nil {
		return Policies{}, fmt.Errorf("reading the policies of queue %q: %w", i.queue, err)
	}
	return ParsePolicies("policies of queue "+i.queue, []byte(text))
}

// PauseQueue lets nothing start before until. Jobs pulled already start.
func (i *Inspector) PauseQueue(ctx context.Context, until time.Time) error {
	return i.pause(ctx, scopeQueue, "", "", until)
}

// PauseTenant lets no job of the tenant start before until.
func (i *Inspector) PauseTenant(ctx context.Context, tenant string, until time.Time) error {
	return i.pause(ctx, scopeTenant, tenant, "", until)
}

// PauseUser lets no job of the tenant's user start before until.
func (i *Inspector) PauseUser(ctx context.Context, tenant, user string, until time.Time) error {
	return i.pause(ctx, scopeUser, tenant, user, until)
}

// ResumeQueue lifts a pause of the queue; those of its tenants and users stay.
func (i *Inspector) ResumeQueue(ctx context.Context) error {
	return i.PauseQueue(ctx, time.Time{})
}

// ResumeTenant lifts a pause of the tenant.
func (i *Inspector) ResumeTenant(ctx context.Context, tenant string) error {
	return i.PauseTenant(ctx, tenant, time.Time{})
}

// ResumeUser lifts a pause of the user.
func (i *Inspector) ResumeUser(ctx context.Context, tenant, user string) error {
	return i.PauseUser(ctx, tenant, user, time.Time{})
}

func (i *Inspector) pause(ctx context.Context, s scope, tenant, user string, until time.Time) error {
	err := i.scripts.run(ctx, i.scripts.pause, string(s), escape(tenant), escape(user), micros(until), "").Err()
	if err != nil {
		return fmt.Errorf("pausing in queue %q: %w", i.queue, err)
	}
	return nil
}

// Cancel makes sure that a waiting job never runs: it is dropped, with ReasonCancelled,
// when its turn comes. It works for jobs with an ID of the caller's own, as long as that
// is known (see [Job.ID]), and returns false if the job is not known, has started, or
// has ended otherwise.
func (i *Inspector) Cancel(ctx context.Context, id string) (bool, error) {
	was, err := i.scripts.run(ctx, i.scripts.cancel, escape(id)).Text()
	if err != nil {
		return false, fmt.Errorf("cancelling %q in queue %q: %w", id, i.queue, err)
	}
	return was == "waiting" || was == "cancelled", nil
}

// Purge drops all jobs that wait in the tenant's lanes, with ReasonPurged, and returns
// how many. It takes many short steps; jobs offered meanwhile may be dropped too. Jobs
// that are scheduled for later, or back off, stay.
func (i *Inspector) Purge(ctx context.Context, tenant string) (int, error) {
	const step = 200
	for all := 0; ; {
		n, err := i.scripts.run(ctx, i.scripts.purge, escape(tenant), step).Int()
		if err != nil {
			return all, fmt.Errorf("purging tenant %q of queue %q: %w", tenant, i.queue, err)
		}
		if all += n; n < step {
			return all, nil
		}
	}
}

// Revive puts dead jobs, named by [DeadJob.Entry], back at the end of their lanes with
// all their attempts, and returns how many it found.
func (i *Inspector) Revive(ctx context.Context, entries ...string) (int, error) {
	const step = 200
	all := 0
	for len(entries) > 0 {
		part := entries[:min(step, len(entries))]
		n, err := i.scripts.run(ctx, i.scripts.revive, tokenArgs(part)...).Int()
		if err != nil {
			return all, fmt.Errorf("reviving in queue %q: %w", i.queue, err)
		}
		all += n
		entries = entries[len(part):]
	}
	return all, nil
}
