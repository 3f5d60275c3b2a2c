package api

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A Pause is a request to pause the queue, a tenant, a user of a tenant, or the values of a limit's key, for a time or
// until an instant.
type Pause struct {
	Tenant whose     `json:"tenant,omitempty"`
	User   whose     `json:"user,omitempty"`
	Limit  whose     `json:"limit,omitempty"`
	Key    whose     `json:"key,omitempty"`
	For    span      `json:"for,omitempty"`
	Until  time.Time `json:"until,omitzero"`
	Author string    `json:"author,omitempty"`
	Reason string    `json:"reason,omitempty"`
}

func pause(c *call, in Pause) (all List[queue.Pause], err error) {
	p, err := pauseOf(in.Tenant, in.User, in.Limit, in.Key)
	if err != nil {
		return all, err
	}
	if p.For, p.Until, err = lasting(in.For, in.Until); err != nil {
		return all, err
	}
	if err := c.note(in.Author, in.Reason).Pause(c.ctx, p); err != nil {
		return all, err
	}
	return listOf(c.inspector.Pauses(c.ctx))
}

// lasting returns for how long, or until when, something is to hold: one of them.
func lasting(length span, until time.Time) (time.Duration, time.Time, error) {
	switch {
	case until.IsZero() == (length == ""):
		return 0, until, wrongField("/for", "it is not said until when", "want for or until, one of them")
	case length != "" && length.duration() < time.Second:
		return 0, until, wrongField("/for", "is "+string(length), "want at least 1s")
	case length == "" && time.Until(until) < 0:
		return 0, until, wrongField("/until", "has passed", "want an instant that is to come")
	}
	return length.duration(), until, nil
}

// A Resume is a request to lift the pause of the queue, a tenant, a user of a tenant, or the values of a limit's key.
type Resume struct {
	Tenant whose `json:"tenant,omitempty"`
	User   whose `json:"user,omitempty"`
	Limit  whose `json:"limit,omitempty"`
	Key    whose `json:"key,omitempty"`
}

func resume(c *call, in Resume) (all List[queue.Pause], err error) {
	p, err := pauseOf(in.Tenant, in.User, in.Limit, in.Key)
	if err != nil {
		return all, err
	}
	if err := c.inspector.Resume(c.ctx, p); err != nil {
		return all, err
	}
	return listOf(c.inspector.Pauses(c.ctx))
}

// pauseOf returns a pause of the queue, of a tenant, of a user of a tenant, or of the values of a limit's key.
func pauseOf(tenant, user, limit, key whose) (queue.Pause, error) {
	p := queue.Pause{Scope: queue.ScopeUser, Tenant: string(tenant), User: string(user), Limit: string(limit), Key: string(key)}
	switch {
	case limit == "" && key != "":
		return p, wrongField("/limit", "is missing", "want the name of the limit with that key")
	case limit != "" && tenant+user != "":
		return p, wrongField("/limit", "is beside a tenant or a user", "want the one or the other")
	case limit != "":
		p.Scope = queue.ScopeLimit
	case tenant == "" && user != "":
		return p, wrongField("/tenant", "is missing", "want the tenant of the user")
	case tenant == "":
		p.Scope = queue.ScopeQueue
	case user == "":
		p.Scope = queue.ScopeTenant
	}
	return p, nil
}

func wrongField(pointer, detail, remedy string) *Problem {
	p := problemf(http.StatusUnprocessableEntity, "invalid-value", "%s: %s; %s", pointer, detail, remedy)
	p.Errors = []FieldError{{Pointer: pointer, Detail: detail, Remedy: remedy}}
	return p
}

// An IDs names jobs by the IDs that their producers gave them.
type IDs struct {
	IDs []string `json:"ids"`
}

// Cancelled says which jobs were cancelled, and which were not waiting.
type Cancelled struct {
	Cancelled []string `json:"cancelled"`
	Others    []string `json:"others"` // not known, started or ended
}

func cancel(c *call, in IDs) (Cancelled, error) {
	all := Cancelled{[]string{}, []string{}}
	if len(in.IDs) > maxNames {
		return all, tooMany("/ids")
	}
	inspector := c.note("", "")
	for _, id := range in.IDs {
		cancelled, err := inspector.Cancel(c.ctx, id)
		switch {
		case err != nil:
			return all, err
		case cancelled:
			all.Cancelled = append(all.Cancelled, id)
		default:
			all.Others = append(all.Others, id)
		}
	}
	return all, nil
}

// maxNames is how many jobs one request can name.
const maxNames = 1000

func tooMany(pointer string) *Problem {
	return wrongField(pointer, "has too many names", "want at most 1000")
}

// A Purge is a request to drop the waiting jobs of a tenant.
type Purge struct {
	Tenant string `json:"tenant"`
}

// Affected says how many jobs were changed.
type Affected struct {
	Jobs int  `json:"jobs"`
	More bool `json:"more,omitempty"` // the time was over before all was done: ask again
}

func purge(c *call, in Purge) (Affected, error) {
	if in.Tenant == "" {
		return Affected{}, wrongField("/tenant", "is empty", "want the name of a tenant")
	}
	n, err := c.note("", "").Purge(c.ctx, in.Tenant)
	if errors.Is(err, context.DeadlineExceeded) && n > 0 {
		return Affected{n, true}, nil
	}
	return Affected{Jobs: n}, err
}

// An Entries names dead jobs by their entries, see [queue.DeadJob].
type Entries struct {
	Entries []string `json:"entries"`
}

func revive(c *call, in Entries) (Affected, error) { return eachDead(c, in, c.inspector.Revive) }

func remove(c *call, in Entries) (Affected, error) { return eachDead(c, in, c.inspector.DeleteDead) }

func eachDead(c *call, in Entries, do func(context.Context, ...string) (int, error)) (Affected, error) {
	if len(in.Entries) > maxNames {
		return Affected{}, tooMany("/entries")
	}
	n, err := do(c.ctx, in.Entries...)
	return Affected{Jobs: n}, err
}
