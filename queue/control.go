package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Note has the author and the reason of a pause or of policies.
type Note struct {
	Author string `json:"author,omitempty"` // who
	Reason string `json:"reason,omitempty"` // and why
}

func (n Note) store() store.Note { return store.Note{Author: n.Author, Reason: n.Reason} }

// As returns an inspector of the same queue that notes with pauses, policies, and the jobs that it cancels or purges, who
// did it, and why.
func (i *Inspector) As(n Note) *Inspector {
	other := *i
	other.note = n
	return &other
}

// Pauses returns the pauses that have not ended, those that end first before the others.
func (i *Inspector) Pauses(ctx context.Context) ([]Pause, error) {
	found, err := inEach(ctx, i, func(p *Inspector) ([]Pause, error) { return p.pauses(ctx) })
	if err != nil || len(found) == 1 {
		return slices.Concat(found...), err
	}
	all := slices.Concat(found...)
	slices.SortFunc(all, func(a, b Pause) int {
		return cmp.Or(a.Until.Compare(b.Until), strings.Compare(a.scope(a.Tenant, a.User), b.scope(b.Tenant, b.User)))
	})
	return slices.CompactFunc(all, func(a, b Pause) bool { return a == b }), nil // that of the queue is in all of them
}

func (i *Inspector) pauses(ctx context.Context) ([]Pause, error) {
	found, err := i.store.PausesNow(ctx)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	all := make([]Pause, len(found))
	for k, p := range found {
		all[k] = Pause{Until: envelope.Instant(p.Until), Note: Note{p.Author, p.Reason}}
		all[k].reach(p.Scope)
	}
	return all, nil
}

// reach notes what a pause is of.
func (p *Pause) reach(scope string) {
	p.Tenant, p.User = envelope.ParseScope(scope)
	limit, key, named := envelope.ParseLimitScope(scope)
	switch {
	case named:
		p.Scope, p.Limit, p.Key = ScopeLimit, limit, limits.JoinKey(key)
	case p.User != "":
		p.Scope = ScopeUser
	case p.Tenant != "":
		p.Scope = ScopeTenant
	default:
		p.Scope = ScopeQueue
	}
}

// Pause lets no job of a scope start before the end of the pause; jobs that are claimed already
// start. It takes the place of an earlier pause of the same scope. A note of its own counts before
// that of [Inspector.As]. The error wraps [ErrInvalidArgument] if the scope is unknown or lacks
// a name, or if the pause has no end.
func (i *Inspector) Pause(ctx context.Context, p Pause) error {
	until := p.Until
	if until.IsZero() && p.For > 0 {
		clock, err := i.store.Clock(ctx)
		if err != nil {
			return i.failed("pausing in", err)
		}
		until = envelope.Instant(clock.Now).Add(min(p.For, longestPause))
	}
	if until.IsZero() {
		return fmt.Errorf("%w: a pause without an end; want Until, or For above 0", ErrInvalidArgument)
	}
	return i.pause(ctx, p, until)
}

// Resume lifts the pause of a scope; those of wider and narrower scopes stay. Of the pause only
// Scope, Tenant and User count. The error wraps [ErrInvalidArgument] if the scope is unknown or
// lacks a name.
func (i *Inspector) Resume(ctx context.Context, p Pause) error {
	return i.pause(ctx, p, time.Time{})
}

func (i *Inspector) pause(ctx context.Context, p Pause, until time.Time) error {
	type names struct{ tenant, user, limit bool }
	named := names{p.Tenant != "", p.User != "", p.Limit != ""}
	want, known := map[Scope]names{ScopeQueue: {}, ScopeTenant: {tenant: true}, ScopeUser: {tenant: true, user: true}, ScopeLimit: {limit: true}}[p.Scope]
	if !known || named != want {
		limit := ""
		if named.limit {
			limit = fmt.Sprintf(", and limit %q", p.Limit)
		}
		return fmt.Errorf("%w: a pause of scope %q, tenant %q and user %q%s; want %q without names, %q with a tenant, %q with a tenant and a user, or %q with a limit",
			ErrInvalidArgument, p.Scope, p.Tenant, p.User, limit, ScopeQueue, ScopeTenant, ScopeUser, ScopeLimit)
	}
	if until.UTC().Year() > lastYear {
		until = time.Date(lastYear, time.December, 31, 0, 0, 0, 0, time.UTC)
	}
	note := cmp.Or(p.Note, i.note)
	pause := func(part *Inspector) error {
		err := part.store.Pause(ctx, p.scope(p.Tenant, p.User), envelope.Micros(until), note.store())
		return part.wrapped("pausing in", err)
	}
	if p.Tenant == "" {
		return doEach(ctx, i, pause)
	}
	i, err := i.of(ctx, p.Tenant)
	if err != nil {
		return err
	}
	return pause(i)
}

// Cancel makes sure that a waiting job never runs: it is dropped, with ReasonCancelled,
// when its turn comes. It works for jobs with an ID of the caller's own, as long as that
// is known (see [Job.ID]), and returns false if the job is not known, has started, or
// has ended otherwise. The history of the job ([JobHistory]) says who cancelled it, and why: see [Inspector.As].
func (i *Inspector) Cancel(ctx context.Context, id string) (bool, error) {
	found, err := inEach(ctx, i, func(p *Inspector) (bool, error) { return p.cancel(ctx, id) })
	return slices.Contains(found, true), err
}

func (i *Inspector) cancel(ctx context.Context, id string) (bool, error) {
	was, err := i.store.Cancel(ctx, id)
	if err != nil {
		return false, i.failed(fmt.Sprintf("cancelling %q in", id), err)
	}
	if _, ended := envelope.ParseLane(was); ended != nil {
		return was == store.WasCancelled, nil
	}
	clock, err := i.store.Clock(ctx)
	if err == nil {
		err = i.store.NotePast(ctx, []store.PastNote{store.AskedNote(id, clock.Now, i.note.store())}, store.IDMemory)
	}
	if err != nil {
		return true, i.failed(fmt.Sprintf("%q is cancelled; noting who did it in", id), err)
	}
	return true, nil
}

// Purge drops all jobs that wait in the tenant's lanes, with ReasonPurged, and returns
// how many. It takes many short steps; jobs offered meanwhile may be dropped too. Jobs
// that are scheduled for later, or back off, stay. The history of a job with an ID of its own ([JobHistory]) says who
// purged it, and why: see [Inspector.As].
func (i *Inspector) Purge(ctx context.Context, tenant string) (int, error) {
	i, err := i.of(ctx, tenant)
	if err != nil {
		return 0, err
	}
	const step = 200
	for all := 0; ; {
		n, empty, err := i.store.Purge(ctx, tenant, step, i.note.store())
		all += n
		if err != nil {
			return all, i.failed(fmt.Sprintf("purging tenant %q of", tenant), err)
		}
		if empty {
			return all, nil
		}
	}
}

// Revive puts dead jobs, named by [DeadJob.Entry], back at the end of their lanes with
// all their attempts, and returns how many it found. If one of the names is not an
// entry, nothing happens and the error wraps [ErrInvalidArgument].
func (i *Inspector) Revive(ctx context.Context, entries ...string) (int, error) {
	all, err := i.inParts(ctx, entries, (*store.Store).Revive)
	if errors.Is(err, ErrInvalidArgument) {
		return 0, err
	}
	return all, i.wrapped("reviving in", err)
}

// DeleteDead forgets dead jobs, named by [DeadJob.Entry], for ever, and returns how many it
// found. If one of the names is not an entry, nothing happens and the error wraps
// [ErrInvalidArgument].
func (i *Inspector) DeleteDead(ctx context.Context, entries ...string) (int, error) {
	all, err := i.inParts(ctx, entries, (*store.Store).DeleteDead)
	if errors.Is(err, ErrInvalidArgument) {
		return 0, err
	}
	return all, i.wrapped("deleting dead jobs of", err)
}

// inParts does something to dead jobs, a part of those of a partition after the other.
func (i *Inspector) inParts(ctx context.Context, entries []string, do func(*store.Store, context.Context, []string) (int, error)) (all int, err error) {
	ids, err := i.entries(ctx, entries)
	if err != nil {
		return 0, err
	}
	parts, err := i.each(ctx)
	if err != nil {
		return 0, err
	}
	for number, its := range ids {
		for some := range slices.Chunk(its, 200) {
			n, err := do(parts[number].store, ctx, some)
			if all += n; err != nil {
				return all, err
			}
		}
	}
	return all, nil
}
