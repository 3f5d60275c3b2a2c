package queue

import (
	"context"
	"fmt"
	"time"
)

// A Condition says in one word how a queue is.
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

	// Overdue is how many tenants, of the ones looked at, have a job that may start now; and
	// Oldest for how long the first of those jobs could have started, were it not for limits.
	Overdue int           `json:"overdue"`
	Oldest  time.Duration `json:"oldest_ns"`

	// Attempts is how many attempts have ended lately, some twenty or those of some ten
	// seconds, and Failed how many of them have failed; the last of these with Error. All are
	// zero if none has failed within half an hour.
	Attempts int64  `json:"attempts"`
	Failed   int64  `json:"failed"`
	Error    string `json:"error,omitempty"`
}

// fewAttempts are too few to say that most of them fail.
const fewAttempts = 5

// failureMemory is for how long a failure counts.
const failureMemory = 30 * time.Minute

// healthSample is how many tenants are looked at, and how many users of each.
const healthSample = 20

// Health looks how the queue is. It looks at the tenants and users that are due first, so that
// it costs the same however much waits.
func (i *Inspector) Health(ctx context.Context) (Health, error) {
	h, err := i.health(ctx)
	return h, i.wrapped("inspecting", err)
}

func (i *Inspector) health(ctx context.Context) (h Health, err error) {
	totals, err := i.store.Totals(ctx)
	if err != nil {
		return h, err
	}
	workers, err := i.workers(ctx)
	if err != nil {
		return h, err
	}
	pauses, err := i.Pauses(ctx)
	if err != nil {
		return h, err
	}
	h.Waiting, h.Running = totals.Waiting, totals.Running
	now, err := i.store.Clock(ctx)
	if err != nil {
		return h, err
	}
	if last := totals.Last; instant(now.Now).Sub(instant(last.At)) < failureMemory {
		h.Attempts, h.Failed, h.Error = last.Done+last.Failed, last.Failed, last.Error
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
		return h, err
	}
	h.Condition, h.Detail = h.judge(leads, pauses)
	return h, nil
}

// judge finds the word for what was seen.
func (h Health) judge(leads bool, pauses []Paused) (Condition, string) {
	for _, p := range pauses {
		if p.Scope == ScopeQueue {
			return Held, "the queue is paused until " + p.Until.Format(time.RFC3339)
		}
	}
	switch {
	case h.Waiting > 0 && h.Workers == 0:
		return Stalled, fmt.Sprintf("%d jobs wait, and no worker lives", h.Waiting)
	case h.Waiting > 0 && !leads:
		return Stalled, fmt.Sprintf("%d jobs wait, and none of %d workers leads", h.Waiting, h.Workers)
	case h.Attempts >= fewAttempts && 2*h.Failed > h.Attempts:
		return Failing, fmt.Sprintf("%d of the last %d attempts have failed, the last one with: %s", h.Failed, h.Attempts, h.Error)
	case h.Waiting == 0:
		return Idle, "nothing waits"
	case h.Overdue > 0 && h.Running >= int64(h.Places):
		return Starved, fmt.Sprintf("jobs of %d tenants may start, and all of %d places are taken", h.Overdue, h.Places)
	case h.Overdue > 0:
		return Flowing, fmt.Sprintf("%d of %d places are taken", h.Running, h.Places)
	}
	return Throttled, fmt.Sprintf("%d jobs wait for their limits; %d of %d places are taken", h.Waiting, h.Running, h.Places)
}

// overdue counts the tenants with a job that may start now.
func (i *Inspector) overdue(ctx context.Context, h *Health) error {
	names, err := i.store.DuePage(ctx, 0, healthSample)
	if err != nil {
		return err
	}
	for _, tenant := range names {
		users, err := i.store.Users(ctx, tenant, 0, healthSample)
		if err != nil {
			return err
		}
		for _, user := range users {
			e, err := i.Explain(ctx, tenant, user.User)
			if err != nil {
				return err
			}
			if !e.Start.IsZero() && !e.Start.After(e.Now) {
				h.Overdue++
				h.Oldest = max(h.Oldest, i.age(ctx, e, tenant, user.User))
				break
			}
		}
	}
	return nil
}

// age returns how long ago the first waiting job of a user could have started, were it not
// for limits.
func (i *Inspector) age(ctx context.Context, e Explanation, tenant, user string) time.Duration {
	_, next, err := i.waiting(ctx, tenant, user)
	if err != nil || next == nil {
		return 0
	}
	return max(0, e.Now.Sub(instant(next.Since())))
}
