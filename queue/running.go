package queue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A RunningJob is a job that a worker has: its handler runs, or will within 20 ms.
type RunningJob struct {
	ID      string    `json:"id"`
	Tenant  string    `json:"tenant"`
	User    string    `json:"user"`
	Type    string    `json:"type"`
	Attempt int       `json:"attempt"` // 1 for the first
	Since   time.Time `json:"since"`   // its slot
	Worker  string    `json:"worker"`  // the name of its run
	Host    string    `json:"host"`    // where the worker is
}

// Running returns the jobs that run, the oldest first.
func (i *Inspector) Running(ctx context.Context) ([]RunningJob, error) {
	workers, err := i.store.Fleet(ctx)
	if err != nil {
		return nil, i.failed("inspecting", err)
	}
	var all []RunningJob
	for _, w := range workers {
		claims, err := i.store.Claims(ctx, w.Name)
		if err != nil {
			return nil, i.failed("inspecting", err)
		}
		for _, c := range claims {
			_, _, lane, err := envelope.ParseClaim(c.Name)
			job, ok := envelope.Head(c.Job)
			if err != nil || !ok {
				continue
			}
			all = append(all, RunningJob{
				ID: job.Name(), Tenant: lane.Tenant, User: lane.User, Type: job.Type, Attempt: job.Failures + 1,
				Since: instant(envelope.ClaimSlot(c.Name)), Worker: w.Name, Host: w.Host,
			})
		}
	}
	slices.SortFunc(all, func(a, b RunningJob) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.ID, b.ID)) })
	return all, nil
}

// A census counts what runs in a queue.
type census struct {
	places  int              // of the workers that live
	scopes  map[string]tally // what runs
	unknown bool             // nothing could be counted
}

// A tally is how much runs of a scope, and since when the oldest of it.
type tally struct {
	n      int
	oldest int64
}

// takeCensus counts what runs at an instant.
func takeCensus(ctx context.Context, s *store.Store, now int64) (*census, error) {
	workers, err := s.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(workers))
	c := &census{scopes: make(map[string]tally)}
	for i, w := range workers {
		names[i] = w.Name
		if w.Lease > now {
			c.places += w.Places
		}
	}
	claims, err := s.ClaimNames(ctx, names)
	for _, claim := range claims {
		_, _, lane, err := envelope.ParseClaim(claim)
		if err != nil {
			continue
		}
		since := envelope.ClaimSlot(claim)
		for _, limit := range limits(nil, lane.Tenant, lane.User) {
			t := c.scopes[limit.scope]
			if t.n++; t.n == 1 || since < t.oldest {
				t.oldest = since
			}
			c.scopes[limit.scope] = t
		}
	}
	return c, err
}

// A censusCache takes a census now and then: one for every offer would cost as much as the
// offers.
type censusCache struct {
	turn  chan struct{} // holds one token while no call counts
	last  *census
	taken time.Time
}

func newCensusCache() *censusCache {
	c := &censusCache{turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

const (
	censusEvery    = 100 * time.Millisecond // how old a census may be for an estimate
	censusPatience = 300 * time.Millisecond // how long an offer that has arrived waits for it
)

// at returns a census that is young enough, or one that says that nothing could be counted.
func (c *censusCache) at(ctx context.Context, s *store.Store, now int64) *census {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if c.last != nil && time.Since(c.taken) < censusEvery {
		return c.last
	}
	ctx, cancel := context.WithTimeout(ctx, censusPatience)
	defer cancel()
	counted, err := takeCensus(ctx, s, now)
	if err != nil {
		counted = &census{unknown: true}
	}
	c.last, c.taken = counted, time.Now()
	return counted
}

// limitsRunning reports whether a concurrency limit counts for a tenant.
func limitsRunning(p *schedule.Policies, tenant string) bool {
	for _, limit := range limits(p, tenant, "") {
		if limit.concurrency.Limits() {
			return true
		}
	}
	return false
}

// full returns the concurrency limit that is reached, and what runs: "tenant concurrency 20: 20
// running, the oldest for 31s". It is empty if a job of the user may run now.
func (p *picture) full(tenant, user string) string { return p.crowded(tenant, user, ahead{}) }

// crowded returns the concurrency limit that may keep a job waiting which has so many before it,
// and what runs: one that is reached now, or else one that has no room for all of them at once.
// It is empty if there is room.
func (p *picture) crowded(tenant, user string, before ahead) (narrow string) {
	if p.census == nil {
		return ""
	}
	for k, limit := range limits(p.policies, tenant, user) {
		if !limit.concurrency.Limits() {
			continue
		}
		if p.census.unknown {
			return "what runs could not be counted"
		}
		t, most := p.census.scopes[limit.scope], limit.concurrency.Most(p.census.places)
		text := fmt.Sprintf("%s %s: %d running", scopeNames[k], limit.concurrency, t.n)
		if t.n >= most {
			return text + ", the oldest for " + max(0, time.Duration(p.now-t.oldest)*time.Microsecond).Round(time.Millisecond).String()
		}
		if first := max(0, [3]int{0, before.tenant, before.user}[k]); narrow == "" && t.n+first >= most {
			narrow = text + ", " + count(first, "job comes first", "jobs come first")
		}
	}
	return narrow
}

var scopeNames = [3]Scope{ScopeQueue, ScopeTenant, ScopeUser}

// concurrency returns what the concurrency limits of a user say about a job.
func (p *picture) concurrency(tenant, user string) (all []RuleState) {
	if p.census == nil {
		return nil
	}
	for k, limit := range limits(p.policies, tenant, user) {
		if !limit.concurrency.Limits() {
			continue
		}
		t, most := p.census.scopes[limit.scope], limit.concurrency.Most(p.census.places)
		r := RuleState{
			Scope: scopeNames[k], Rule: limit.concurrency.String(), When: instant(p.now), Limit: most, Remaining: max(0, most-t.n), Running: t.n,
		}
		if t.n > 0 {
			r.Oldest = instant(t.oldest)
		}
		if t.n >= most {
			r.When = time.Time{}
		}
		all = append(all, r)
	}
	return all
}
