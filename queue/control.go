package queue

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Note has the author and the reason of a pause or of policies.
type Note struct {
	Author string `json:"author,omitempty"`
	Reason string `json:"reason,omitempty"`
}

func (n Note) store() store.Note { return store.Note{Author: n.Author, Reason: n.Reason} }

// As returns an inspector of the same queue that notes with pauses and policies who made
// them, and why.
func (i *Inspector) As(n Note) *Inspector {
	return &Inspector{rdb: i.rdb, store: i.store, policies: i.policies, note: n}
}

// A Paused is a pause that has not ended.
type Paused struct {
	Scope  string    `json:"scope"` // ScopeQueue, ScopeTenant or ScopeUser
	Tenant string    `json:"tenant,omitempty"`
	User   string    `json:"user,omitempty"`
	Until  time.Time `json:"until"`
	Note             // without an author for a pause that a handler has asked for
}

// Pauses returns the pauses that have not ended, those that end first before the others.
func (i *Inspector) Pauses(ctx context.Context) ([]Paused, error) {
	found, err := i.store.PausesNow(ctx)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	all := make([]Paused, len(found))
	for k, p := range found {
		tenant, user := envelope.ParseScope(p.Scope)
		scope := ScopeQueue
		if user != "" {
			scope = ScopeUser
		} else if tenant != "" {
			scope = ScopeTenant
		}
		all[k] = Paused{scope, tenant, user, instant(p.Until), Note{p.Author, p.Reason}}
	}
	return all, nil
}

// PauseQueue lets nothing start before until, on Redis's clock. Jobs claimed already
// start.
func (i *Inspector) PauseQueue(ctx context.Context, until time.Time) error {
	return i.pause(ctx, envelope.QueueScope, until)
}

// PauseTenant lets no job of the tenant start before until.
func (i *Inspector) PauseTenant(ctx context.Context, tenant string, until time.Time) error {
	return i.pause(ctx, envelope.TenantScope(tenant), until)
}

// PauseUser lets no job of the tenant's user start before until.
func (i *Inspector) PauseUser(ctx context.Context, tenant, user string, until time.Time) error {
	return i.pause(ctx, envelope.UserScope(tenant, user), until)
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

func (i *Inspector) pause(ctx context.Context, scope string, until time.Time) error {
	if until.UTC().Year() > lastYear {
		until = time.Date(lastYear, time.December, 31, 0, 0, 0, 0, time.UTC)
	}
	if err := i.store.Pause(ctx, scope, micros(until), i.note.store()); err != nil {
		return i.failed("pausing in", err)
	}
	return nil
}

// Cancel makes sure that a waiting job never runs: it is dropped, with ReasonCancelled,
// when its turn comes. It works for jobs with an ID of the caller's own, as long as that
// is known (see [Job.ID]), and returns false if the job is not known, has started, or
// has ended otherwise.
func (i *Inspector) Cancel(ctx context.Context, id string) (bool, error) {
	was, err := i.store.Cancel(ctx, id)
	if err != nil {
		return false, i.failed(fmt.Sprintf("cancelling %q in", id), err)
	}
	_, ended := envelope.ParseLane(was)
	return ended == nil || was == store.WasCancelled, nil
}

// Purge drops all jobs that wait in the tenant's lanes, with ReasonPurged, and returns
// how many. It takes many short steps; jobs offered meanwhile may be dropped too. Jobs
// that are scheduled for later, or back off, stay.
func (i *Inspector) Purge(ctx context.Context, tenant string) (int, error) {
	const step = 200
	for all := 0; ; {
		n, empty, err := i.store.Purge(ctx, tenant, step)
		all += n
		if err != nil {
			return all, i.failed(fmt.Sprintf("purging tenant %q of", tenant), err)
		}
		if empty {
			return all, nil
		}
	}
}

var deadEntry = regexp.MustCompile(`^\d{1,19}-\d{1,19}$`)

// Revive puts dead jobs, named by [DeadJob.Entry], back at the end of their lanes with
// all their attempts, and returns how many it found. If one of the names is not an
// entry, nothing happens and the error wraps [ErrInvalidEntry].
func (i *Inspector) Revive(ctx context.Context, entries ...string) (int, error) {
	all, err := inParts(ctx, entries, i.store.Revive)
	if errors.Is(err, ErrInvalidEntry) {
		return 0, err
	}
	return all, i.wrapped("reviving in", err)
}

// DeleteDead forgets dead jobs, named by [DeadJob.Entry], for ever, and returns how many it
// found. If one of the names is not an entry, nothing happens and the error wraps
// [ErrInvalidEntry].
func (i *Inspector) DeleteDead(ctx context.Context, entries ...string) (int, error) {
	all, err := inParts(ctx, entries, i.store.DeleteDead)
	if errors.Is(err, ErrInvalidEntry) {
		return 0, err
	}
	return all, i.wrapped("deleting dead jobs of", err)
}

func checkEntries(entries ...string) error {
	for k, entry := range entries {
		if !deadEntry.MatchString(entry) {
			return fmt.Errorf("%w: %q, number %d of %d; want DeadJob.Entry, such as 1763707200000-0", ErrInvalidEntry, entry, k+1, len(entries))
		}
	}
	return nil
}

// inParts does something to dead jobs, a part after the other.
func inParts(ctx context.Context, entries []string, do func(context.Context, []string) (int, error)) (all int, err error) {
	if err := checkEntries(entries...); err != nil {
		return 0, err
	}
	for part := range slices.Chunk(entries, 200) {
		n, err := do(ctx, part)
		if all += n; err != nil {
			return all, err
		}
	}
	return all, nil
}
