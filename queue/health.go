package queue

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Condition is the state of a queue in one word.
type Condition string

const (
	Idle      Condition = "idle"      // nothing waits
	Throttled Condition = "throttled" // what waits, waits for its limits: all is as configured
	Flowing   Condition = "flowing"   // what is due starts
	Failing   Condition = "failing"   // most of the last attempts have failed
	Starved   Condition = "starved"   // jobs are due, and all places are taken
	Held      Condition = "paused"    // the whole queue is paused
	Stalled   Condition = "stalled"   // jobs wait, and no worker lives or none leads
)

// Health is how a queue is at one moment.
type Health struct {
	Condition Condition `json:"condition"`
	Detail    string    `json:"detail"` // for people: what was seen

	Waiting int64 `json:"waiting"`
	Running int64 `json:"running"`
	Places  int   `json:"places"` // of the workers that live
	Workers int   `json:"workers"`

	// Overdue is how many of the tenants looked at have a job that may start now. Oldest is how
	// long ago the limits allowed the first of these jobs to start; the time for which it waited
	// for its limits does not count.
	Overdue int           `json:"overdue"`
	Oldest  time.Duration `json:"oldest_ns"`

	// RecentAttempts is how many attempts have ended lately: about the last twenty, or those of
	// about ten seconds. RecentFailed is how many of them have failed, and RecentError the last
	// error. All are zero if no attempt has failed within half an hour.
	RecentAttempts int64  `json:"recent_attempts"`
	RecentFailed   int64  `json:"recent_failed"`
	RecentError    string `json:"recent_error,omitempty"`
}

// fewAttempts are too few to say that most of them fail.
const fewAttempts = 5

// failureMemory is for how long a failure counts.
const failureMemory = 30 * time.Minute

// healthSample is how many tenants are looked at, and how many users of each.
const healthSample = 20

// Health returns the condition of the queue. It looks at the tenants and users that are due
// first, so that its cost does not depend on how many jobs wait.
func (i *Inspector) Health(ctx context.Context) (Health, error) {
	h, _, err := i.health(ctx)
	return h, i.wrapped("inspecting", err)
}

// health returns the state of the queue that it has looked at, too.
func (i *Inspector) health(ctx context.Context) (h Health, stats Stats, err error) {
	if stats, err = i.Stats(ctx); err != nil {
		return h, stats, err
	}
	workers, err := i.workers(ctx)
	if err != nil {
		return h, stats, err
	}
	pauses, err := i.Pauses(ctx)
	if err != nil {
		return h, stats, err
	}
	h.Waiting, h.Running = stats.Waiting, stats.Running
	if err := i.failing(ctx, &h, stats.last); err != nil {
		return h, stats, err
	}
	leads := false
	for _, w := range workers {
		if w.Alive {
			h.Workers++
			h.Places += w.Places
			leads = leads || w.Leads
		}
	}
	if err := i.overdue(ctx, &h); err != nil {
		return h, stats, err
	}
	h.Condition, h.Detail = h.judge(leads, pauses)
	return h, stats, nil
}

// failing notes how the last attempts have ended, if that is not long ago.
func (i *Inspector) failing(ctx context.Context, h *Health, last store.LastAttempts) error {
	if last.At == 0 {
		return nil
	}
	now, err := i.store.Clock(ctx)
	if err == nil && instant(now.Now).Sub(instant(last.At)) < failureMemory {
		h.RecentAttempts, h.RecentFailed, h.RecentError = last.Done+last.Failed, last.Failed, last.Error
	}
	return err
}

// judge finds the word for what was seen.
func (h Health) judge(leads bool, pauses []Pause) (Condition, string) {
	for _, p := range pauses {
		if p.Scope == ScopeQueue {
			return Held, "the queue is paused until " + p.Until.Format(time.RFC3339)
		}
	}
	switch {
	case h.Waiting > 0 && h.Workers == 0:
		return Stalled, count(h.Waiting, "job waits", "jobs wait") + ", and no worker lives"
	case h.Waiting > 0 && !leads:
		return Stalled, fmt.Sprintf("%s, and none of %s leads", count(h.Waiting, "job waits", "jobs wait"), count(h.Workers, "worker", "workers"))
	case h.RecentAttempts >= fewAttempts && 2*h.RecentFailed > h.RecentAttempts:
		return Failing, fmt.Sprintf("%d of the last %d attempts have failed, the last one with: %s", h.RecentFailed, h.RecentAttempts, h.RecentError)
	case h.Waiting == 0:
		return Idle, "nothing waits"
	case h.Overdue > 0 && h.Running >= int64(h.Places):
		return Starved, fmt.Sprintf("jobs of %s may start, and all of %d places are taken", count(h.Overdue, "tenant", "tenants"), h.Places)
	case h.Overdue > 0:
		return Flowing, fmt.Sprintf("%d of %d places are taken", h.Running, h.Places)
	}
	return Throttled, fmt.Sprintf("%s; %d of %d places are taken", count(h.Waiting, "job waits for its limits", "jobs wait for their limits"), h.Running, h.Places)
}

// count writes a number and what it is of.
func count[N int | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}

// overdue counts the tenants with a job that may start now. What the rules of all tenants say
// is read at once, and the users are looked at of those alone whose rules let something start:
// a queue whose jobs wait for their limits costs a few commands.
func (i *Inspector) overdue(ctx context.Context, h *Health) error {
	if h.Waiting == 0 {
		return nil
	}
	tenants, err := i.store.DuePage(ctx, 0, healthSample)
	if err != nil {
		return err
	}
	nobody := make([]string, len(tenants)) // stands for users whose rules have no state
	open, err := i.startable(ctx, tenants, nobody)
	if err != nil {
		return err
	}
	for k, tenant := range tenants {
		if !open[k] {
			continue
		}
		if err := i.overdueOf(ctx, h, tenant); err != nil {
			return err
		}
	}
	return nil
}

// overdueOf counts a tenant, if a user of it has a job that may start now.
func (i *Inspector) overdueOf(ctx context.Context, h *Health, tenant string) error {
	users, err := i.Users(ctx, tenant, 0, healthSample)
	if err != nil {
		return err
	}
	tenants, names := make([]string, len(users)), make([]string, len(users))
	for k, u := range users {
		tenants[k], names[k] = tenant, u.User
	}
	open, err := i.startable(ctx, tenants, names)
	if err != nil {
		return err
	}
	for k := range names {
		if !open[k] || users[k].Waiting == 0 {
			continue
		}
		late, err := i.overdueFor(ctx, tenant, users[k])
		if err != nil {
			return err
		}
		if late > 0 {
			h.Overdue++
			h.Oldest = max(h.Oldest, late)
			return nil
		}
	}
	return nil
}

// overdueFor returns for how long the limits have let the first waiting job of a user start;
// 0 if they do not.
func (i *Inspector) overdueFor(ctx context.Context, tenant string, u UserStats) (time.Duration, error) {
	_, p, err := i.explain(ctx, tenant, u.User)
	if err != nil {
		return 0, err
	}
	_, next, err := i.waiting(ctx, tenant, u.User)
	if err != nil || next == nil || p.full(tenant, u.User) != "" {
		return 0, err
	}
	at, known := p.earliestFrom(min(max(next.Since(), micros(u.Next)), p.now), tenant, u.User, next.Cost)
	if !known {
		return 0, nil
	}
	return max(0, instant(p.now).Sub(instant(at))), nil
}

// startable reports of each tenant and its user whether a job of cost 1 may start now.
func (i *Inspector) startable(ctx context.Context, tenants, users []string) ([]bool, error) {
	if len(tenants) == 0 {
		return nil, nil
	}
	var scopes []string
	for k, tenant := range tenants {
		for _, limit := range limits(nil, tenant, users[k]) {
			scopes = append(scopes, limit.scope)
		}
	}
	slices.Sort(scopes)
	p, err := i.pictureOf(ctx, slices.Compact(scopes), tenants)
	if err != nil {
		return nil, err
	}
	open := make([]bool, len(tenants))
	for k, tenant := range tenants {
		at, known := p.earliest(tenant, users[k], 1)
		open[k] = known && at <= p.now && p.full(tenant, users[k]) == ""
	}
	return open, nil
}
