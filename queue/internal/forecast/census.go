package forecast

import (
	"context"
	"fmt"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Census counts what runs in a queue.
type Census struct {
	places  int              // of the workers that live, in one partition
	fleet   int              // of all workers of the queue: concurrency limits may be shares of these
	scopes  map[string]tally // what runs, in one partition
	leased  map[string]int   // places that all partitions have of limits which count jobs of several
	unknown bool             // nothing could be counted
}

// A tally is how much runs of a scope, and since when the oldest of it.
type tally struct {
	n      int
	oldest int64
}

// Take counts what runs at an instant, for the limits of policies.
func Take(ctx context.Context, s *store.Store, policies *schedule.Policies, now int64) (*Census, error) {
	workers, err := s.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(workers))
	c := &Census{scopes: make(map[string]tally)}
	for i, w := range workers {
		names[i] = w.Name
		if w.Lease > now {
			c.places += w.Places
		}
	}
	claims, err := s.Claims(ctx, names)
	for _, claim := range claims {
		if !claim.Valid() {
			continue
		}
		for _, limit := range policies.Uses(claim.Lane, nil) {
			t := c.scopes[limit.Scope]
			if t.n++; t.n == 1 || claim.Slot < t.oldest {
				t.oldest = claim.Slot
			}
			c.scopes[limit.Scope] = t
		}
	}
	c.fleet = c.places
	if err == nil && s.Of > 1 {
		c.leased, err = s.LeasedPlaces(ctx)
	}
	if err == nil && s.Of > 1 {
		c.fleet, err = s.FleetPlaces(ctx, now)
	}
	return c, err
}

// of returns how much runs of what a limit counts, of all partitions if it counts jobs of several: as far as places are leased for it.
func (c *Census) of(limit schedule.Use) tally {
	t := c.scopes[limit.Scope]
	if limit.Leased {
		t.n = max(t.n, c.leased[schedule.PlacesOf(limit.Scope)])
	}
	return t
}

// Scopes returns how many jobs run of each scope.
func (c *Census) Scopes() map[string]int {
	all := make(map[string]int, len(c.scopes))
	for scope, t := range c.scopes {
		all[scope] = t.n
	}
	return all
}

// A CensusCache takes a census now and then: one for every offer would cost as much as the
// offers.
type CensusCache struct {
	turn  chan struct{} // holds one token while no call counts
	last  *Census
	by    *schedule.Policies
	taken time.Time
}

func NewCensusCache() *CensusCache {
	c := &CensusCache{turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

const (
	censusEvery    = 100 * time.Millisecond // how old a census may be for an estimate
	censusPatience = 300 * time.Millisecond // how long an offer that has arrived waits for it
)

// At returns a census that is young enough, or one that says that nothing could be counted.
func (c *CensusCache) At(ctx context.Context, s *store.Store, policies *schedule.Policies, now int64) *Census {
	<-c.turn
	defer func() { c.turn <- struct{}{} }()
	if c.last != nil && c.by == policies && time.Since(c.taken) < censusEvery {
		return c.last
	}
	ctx, cancel := context.WithTimeout(ctx, censusPatience)
	defer cancel()
	counted, err := Take(ctx, s, policies, now)
	if err != nil {
		counted = &Census{unknown: true}
	}
	c.last, c.by, c.taken = counted, policies, time.Now()
	return counted
}

// Full returns the concurrency limit that is reached, and what runs: "tenant concurrency 20: 20
// running, the oldest for 31s". It is empty if a job of the user may run now.
func (p *Forecast) Full(lane store.Lane, env *envelope.Envelope) string {
	return p.Crowded(lane, env, 0, 0)
}

// Concurrent reports whether a concurrency limit counts a job of a lane, and whether one that counts other users, too, is
// half reached while the workers have places: then that is what its jobs wait for, also in the moment between the end of
// one and the start of the next.
func (p *Forecast) Concurrent(lane store.Lane, env *envelope.Envelope) (counted, narrow bool) {
	if p.census == nil {
		return false, false
	}
	free := p.census.scopes[envelope.QueueScope].n < p.census.places
	for _, limit := range p.Policies.Uses(lane, env) {
		if limit.Concurrency.Limits() {
			counted = true
			half := 2*p.census.of(limit).n >= limit.Concurrency.Most(p.census.fleet)
			narrow = narrow || free && half && !limit.OfUser
		}
	}
	return counted, narrow
}

// Crowded returns the concurrency limit that may keep a job waiting which has so many before it,
// and what runs: one that is reached now, or else one that has no room for all of them at once.
// It is empty if there is room.
func (p *Forecast) Crowded(lane store.Lane, env *envelope.Envelope, inTenant, ofUser int) (narrow string) {
	if p.census == nil {
		return ""
	}
	for k, limit := range p.Policies.Uses(lane, env) {
		if !limit.Concurrency.Limits() {
			continue
		}
		if p.census.unknown {
			return "what runs could not be counted"
		}
		t, most := p.census.of(limit), limit.Concurrency.Most(p.census.fleet)
		text := fmt.Sprintf("%s %s: %d running", limit.Name, limit.Concurrency, t.n)
		if t.n >= most {
			if t.oldest > 0 {
				text += ", the oldest for " + roughly(time.Duration(p.Now-t.oldest)*time.Microsecond).String()
			}
			return text
		}
		if first := first(k, limit, inTenant, ofUser); narrow == "" && t.n+first >= most {
			narrow = text + ", " + count(first, "job comes first", "jobs come first")
		}
	}
	return narrow
}

// roughly rounds a duration for people: to a millisecond below a second, and to a tenth of a second above.
func roughly(d time.Duration) time.Duration {
	if d < time.Second {
		return max(0, d.Round(time.Millisecond))
	}
	return d.Round(100 * time.Millisecond)
}

// first returns how many jobs that a limit counts come before a job which has so many before it: at least. How many do
// of other users that a limit by name counts, Redis does not say.
func first(k int, limit schedule.Use, inTenant, ofUser int) int {
	switch {
	case k == 1:
		return max(0, inTenant)
	case limit.OfUser:
		return max(0, ofUser)
	}
	return 0
}

// Running returns how many jobs that a limit is about run, since when the oldest does, and how
// many may; false where no concurrency limit counts there.
func (p *Forecast) Running(limit schedule.Use) (n int, oldest int64, most int, ok bool) {
	if p.census == nil || !limit.Concurrency.Limits() {
		return 0, 0, 0, false
	}
	t := p.census.of(limit)
	return t.n, t.oldest, limit.Concurrency.Most(p.census.fleet), true
}

// count writes a number and what it is of.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprint(n, " ", many)
}
