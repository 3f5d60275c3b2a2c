package queue

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// LimitsNow are the limits by name of a queue at one instant, on Redis's clock.
type LimitsNow struct {
	Now    time.Time  `json:"now"`
	Limits []LimitNow `json:"limits"` // in the order of their names

	// Looked is how many lanes of waiting jobs were looked at. They are those that are due first; Whole reports whether they
	// are all that there are.
	Looked int  `json:"looked"`
	Whole  bool `json:"whole"`
}

// LimitNow is a limit by name.
type LimitNow struct {
	Name   string   `json:"name"`
	Types  []string `json:"types,omitempty"` // of jobs that it is about; none for all
	Key    []string `json:"key,omitempty"`   // the fields of its key; none for one counter for all
	Counts string   `json:"counts"`          // "jobs", "cost" or a unit
	Rules  []string `json:"rules"`           // the concurrency limit and the capacity, too, as in the policies

	// Keys are values of its key that something is known of: jobs that it counts wait or run, they are paused, an override
	// counts for them, or they have limits of their own. The fullest come first. Known is how many of these there are.
	Keys  []LimitKey `json:"keys"`
	Known int        `json:"known"`

	Lanes   int           `json:"lanes"`      // in which jobs wait that it counts, of those looked at
	Waiting int64         `json:"waiting"`    // these jobs
	Running int           `json:"running"`    // jobs that run and that it counts
	Paused  int           `json:"paused"`     // values of its key that are paused
	Blocked time.Duration `json:"blocked_ns"` // for how long its rules have held jobs back, as in Stats

	Overridden int `json:"overridden"` // values of its key for which an override counts
}

// Fullest returns the fullest of the keys; nil if none of them is used.
func (l LimitNow) Fullest() *LimitKey {
	if len(l.Keys) == 0 || l.Keys[0].Full == 0 {
		return nil
	}
	return &l.Keys[0]
}

func limitNow(name string, l Limit) LimitNow {
	now := LimitNow{Name: name, Types: l.Types, Key: l.Key, Counts: cmp.Or(l.Counts, "cost"), Rules: []string{}}
	for _, rule := range l.Rules {
		now.Rules = append(now.Rules, rule.String())
	}
	if concurrency := schedule.Concurrency(l.Concurrency); concurrency.Limits() {
		now.Rules = append(now.Rules, concurrency.String())
	}
	if l.Capacity > 0 {
		now.Rules = append(now.Rules, fmt.Sprint("capacity ", l.Capacity))
	}
	return now
}

// LimitKey is what a limit by name says for some values of its key.
type LimitKey struct {
	Key     string `json:"key"`     // the values, as in Pause; "" of a limit without a key
	Lanes   int    `json:"lanes"`   // in which jobs wait that it counts, of those looked at
	Waiting int64  `json:"waiting"` // these jobs
	Running int    `json:"running"` // jobs that run and that it counts

	// Capacity is how many jobs may wait that it counts, and Backlog how many do; both are 0 if there is no bound.
	Capacity int   `json:"capacity,omitempty"`
	Backlog  int64 `json:"backlog,omitempty"`

	Full   float64     `json:"full"`            // how much of its fullest rule, or of its concurrency, is used: 0 to 1
	Next   time.Time   `json:"next,omitzero"`   // the first instant at which it lets a job start; the zero time if one has to end before
	Paused time.Time   `json:"paused,omitzero"` // until when; the zero time if it is not paused
	Rules  []RuleState `json:"rules"`           // what its rules, its pause and its concurrency say about a job of cost 1

	// Until is when the override ends that counts for these values, and Note who has set that and why; both are zero if the
	// limit is that of the policies.
	Until time.Time `json:"until,omitzero"`
	Note
}

// Limits returns the limits by name, with at most n values of the key of each. It reads a bounded part of the queue,
// however many jobs wait and however many keys there are: lanes of the tenants that are due first, what runs, and what is
// paused. Jobs that were offered under policies without a limit are not seen to wait for it.
func (i *Inspector) Limits(ctx context.Context, n int) (LimitsNow, error) {
	all, err := inEach(ctx, i, func(p *Inspector) (LimitsNow, error) {
		now, err := p.limits(ctx, max(0, n))
		return now, p.wrapped("inspecting the limits of", err)
	})
	if err != nil {
		return LimitsNow{}, err
	}
	for _, now := range all[1:] {
		all[0].add(now)
	}
	for k := range all[0].Limits {
		l := &all[0].Limits[k]
		slices.SortFunc(l.Keys, fullest)
		l.Known = max(l.Known, len(l.Keys))
		l.Keys = l.Keys[:min(len(l.Keys), max(0, n))]
	}
	return all[0], nil
}

// add adds what is known in another partition.
func (now *LimitsNow) add(other LimitsNow) {
	now.Looked, now.Whole = now.Looked+other.Looked, now.Whole && other.Whole
	for _, l := range other.Limits {
		if k := slices.IndexFunc(now.Limits, func(known LimitNow) bool { return known.Name == l.Name }); k >= 0 {
			now.Limits[k].add(l)
		}
	}
}

func (l *LimitNow) add(other LimitNow) {
	l.Lanes, l.Waiting, l.Running = l.Lanes+other.Lanes, l.Waiting+other.Waiting, l.Running+other.Running
	l.Blocked += other.Blocked
	if slices.Contains(l.Key, limits.Tenant) {
		l.Known, l.Paused, l.Overridden = l.Known+other.Known, l.Paused+other.Paused, l.Overridden+other.Overridden
	} else { // all partitions may know the same
		l.Known, l.Paused, l.Overridden = max(l.Known, other.Known), max(l.Paused, other.Paused), max(l.Overridden, other.Overridden)
	}
	for _, key := range other.Keys {
		if k := slices.IndexFunc(l.Keys, func(known LimitKey) bool { return known.Key == key.Key }); k >= 0 {
			l.Keys[k].add(key)
		} else {
			l.Keys = append(l.Keys, key)
		}
	}
}

// add adds what is known of the same values in another partition: more jobs, if they are of a limit that the partitions share.
func (k *LimitKey) add(other LimitKey) {
	k.Lanes, k.Waiting, k.Running, k.Backlog = k.Lanes+other.Lanes, k.Waiting+other.Waiting, k.Running+other.Running, k.Backlog+other.Backlog
	k.Full = max(k.Full, other.Full)
	if other.Next.After(k.Next) {
		k.Next = other.Next
	}
	if other.Paused.After(k.Paused) {
		k.Paused = other.Paused
	}
	if len(k.Rules) == 0 {
		k.Rules, k.Capacity = other.Rules, other.Capacity
	}
	if other.Until.After(k.Until) {
		k.Until, k.Note = other.Until, other.Note
	}
}

func (i *Inspector) limits(ctx context.Context, n int) (LimitsNow, error) {
	s, err := i.surveyLimits(ctx)
	if err != nil {
		return LimitsNow{}, err
	}
	totals, err := i.store.Totals(ctx)
	if err != nil {
		return LimitsNow{}, err
	}
	now := LimitsNow{Limits: []LimitNow{}, Looked: s.looked, Whole: s.whole}
	var scopes []string // of the keys that are shown
	for _, name := range slices.Sorted(maps.Keys(s.limits)) {
		l := limitNow(name, s.limits[name])
		l.Blocked = blockedBy(totals.Blocked, name)
		s.sum(&l)
		scopes = append(scopes, s.busiest(name, n)...)
		now.Limits = append(now.Limits, l)
	}
	p, err := s.forecast(ctx, scopes)
	if err != nil {
		return LimitsNow{}, err
	}
	now.Now = envelope.Instant(p.Now)
	for k := range now.Limits {
		now.Limits[k].Keys = s.keysOf(p, now.Limits[k].Name, scopes)
	}
	return now, nil
}

// LimitKey returns what a limit by name says for some values of its key, written as in [Pause], whether or not anything
// waits for them. It reads as much as [Inspector.Limits], and counts as that does. Of values that the limit is not about
// (unlimited) nothing is known. The error wraps [ErrInvalidArgument] if there is no such limit, or if its key has another
// number of fields.
func (i *Inspector) LimitKey(ctx context.Context, limit, key string) (LimitKey, error) {
	all, err := inEach(ctx, i, func(p *Inspector) (LimitKey, error) { return p.limitKey(ctx, limit, key) })
	if err != nil {
		return LimitKey{}, err
	}
	for _, other := range all[1:] {
		all[0].add(other)
	}
	return all[0], nil
}

func (i *Inspector) limitKey(ctx context.Context, limit, key string) (LimitKey, error) {
	s, err := i.surveyLimits(ctx)
	if err != nil {
		return LimitKey{}, i.failed("inspecting the limits of", err)
	}
	l, there := s.limits[limit]
	values := limits.SplitKey(key)
	switch {
	case !there:
		return LimitKey{}, fmt.Errorf("%w: there is no limit %q", ErrInvalidArgument, limit)
	case len(values) != len(l.Key):
		return LimitKey{}, fmt.Errorf("%w: key %q of limit %q; want a value for each of %q, between commas", ErrInvalidArgument, key, limit, l.Key)
	}
	scope := envelope.ScopeOfLimit(limit, values)
	known := s.key(scope)
	if known == nil {
		return LimitKey{Key: key, Next: envelope.Instant(s.now)}, nil
	}
	p, err := s.forecast(ctx, []string{scope})
	if err != nil {
		return LimitKey{}, i.failed("inspecting the limits of", err)
	}
	known.describe(p, scope)
	return *known, nil
}

func (i *Inspector) surveyLimits(ctx context.Context) (*limitsSurvey, error) {
	applied, err := i.Policies(ctx)
	if err != nil {
		return nil, err
	}
	clock, err := i.store.Clock(ctx)
	if err != nil {
		return nil, err
	}
	policies, err := i.forecasts.Policies.At(ctx, applied.Version, clock.Now)
	if err != nil {
		return nil, err
	}
	s := newLimitsSurvey(i.forecasts, policies, applied.Policies.Limits)
	return s, s.read(ctx)
}

// blockedBy returns for how long the rules of a limit have held jobs back.
func blockedBy(all map[string]int64, limit string) (sum time.Duration) {
	for rule, us := range all {
		if strings.HasPrefix(rule, limit+": ") {
			sum += time.Duration(us) * time.Microsecond
		}
	}
	return sum
}

// describe adds what a limit says for a key.
func (k *LimitKey) describe(p *forecast.Forecast, scope string) {
	limit, _, _ := envelope.ParseLimitScope(scope)
	bounds, _ := p.Policies.Limit(scope)
	k.Capacity = bounds.Capacity
	use := schedule.Use{Limit: bounds, Name: limit, Cost: 1}
	k.Rules = statesUnder(p, []schedule.Use{use})
	at, known := p.NextUnder(use)
	if n, _, most, counts := p.Running(use); known && !(counts && n >= most) {
		k.Next = envelope.Instant(at)
	}
	for _, r := range k.Rules {
		switch {
		case r.Rule == "paused":
			k.Paused = r.When
		case r.Limit > 0 && !r.Shadow:
			k.Full = max(k.Full, 1-float64(min(r.Limit, max(0, r.Remaining)))/float64(r.Limit))
		}
	}
}

// fullest orders the keys of a limit for people.
func fullest(a, b LimitKey) int {
	return cmp.Or(cmp.Compare(b.Full, a.Full), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.Running, a.Running), cmp.Compare(a.Key, b.Key))
}
