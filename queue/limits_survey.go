package queue

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/forecast"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// What is read at most: a dashboard may ask once a second.
const (
	limitTenants = 50   // whose lanes are looked at
	limitLanes   = 1000 // of each priority
	limitKeys    = 1000 // whose rules are asked, of all limits together
)

// A limitsSurvey finds the keys of limits by name that something is known of. Nothing lists them: they are found in the
// labels of lanes and claims, among the pauses and the overrides, and in the policies.
type limitsSurvey struct {
	store    *store.Store
	reader   *forecast.Reader
	policies *schedule.Policies
	limits   map[string]Limit

	now    int64
	census *forecast.Census
	looked int
	whole  bool
	keys   map[string]map[string]*LimitKey // limit → scope → what waits and runs
}

func newLimitsSurvey(r *forecast.Reader, policies *schedule.Policies, limits map[string]Limit) *limitsSurvey {
	return &limitsSurvey{store: r.Store, reader: r, policies: policies, limits: limits, keys: make(map[string]map[string]*LimitKey)}
}

// read looks at all that keys are found in.
func (s *limitsSurvey) read(ctx context.Context) error {
	clock, err := s.store.Clock(ctx)
	if s.now, s.whole = clock.Now, true; err != nil || len(s.limits) == 0 {
		return err
	}
	s.ownLimits()
	s.overrides()
	if err := s.waiting(ctx); err != nil {
		return err
	}
	if s.census, err = forecast.Take(ctx, s.store, s.policies, s.now); err != nil {
		return err
	}
	for scope, n := range s.census.Scopes() {
		if key := s.key(scope); key != nil {
			key.Running = n
		}
	}
	pauses, err := s.store.Pauses(ctx)
	for scope, until := range pauses {
		if key := s.key(scope); key != nil && until > s.now {
			key.Paused = envelope.Instant(until)
		}
	}
	return err
}

// ownLimits notes the keys that the policies name, and the one of a limit without a key.
func (s *limitsSurvey) ownLimits() {
	for name, l := range s.limits {
		if len(l.Key) == 0 {
			s.key(envelope.ScopeOfLimit(name, nil))
		}
		for value := range l.Each {
			values := []string{value}
			if len(l.Key) > 1 {
				values = limits.SplitKey(value)
			}
			if !strings.Contains(value, "*") {
				s.key(envelope.ScopeOfLimit(name, values))
			}
		}
	}
}

// overrides notes the keys for which an override counts.
func (s *limitsSurvey) overrides() {
	for scope, o := range s.policies.Overrides {
		if key := s.key(scope); key != nil {
			key.Until, key.Note = envelope.Instant(o.Until), Note{o.Author, o.Reason}
		}
	}
}

// waiting counts lanes, and the jobs in them, by whoever counts them.
func (s *limitsSurvey) waiting(ctx context.Context) error {
	tenants, err := s.store.DuePage(ctx, 0, limitTenants)
	if err != nil || len(tenants) == 0 {
		return err
	}
	lanes, whole, err := s.store.DueLanes(ctx, tenants, limitLanes/len(tenants))
	if err != nil {
		return err
	}
	s.looked, s.whole = len(lanes), whole && len(tenants) < limitTenants
	lanes = slices.DeleteFunc(lanes, func(l store.Lane) bool { return l.Label == "" })
	lengths, err := s.store.Lengths(ctx, lanes)
	for k, n := range lengths {
		for _, use := range s.policies.Named.Lane(lanes[k]) {
			if key := s.key(use.Scope); key != nil && n > 0 {
				key.Lanes++
				key.Waiting += n
			}
		}
	}
	return err
}

// key returns what is known of a scope; nil if there is no such limit by name.
func (s *limitsSurvey) key(scope string) *LimitKey {
	if _, there := s.policies.Limit(scope); !there {
		return nil
	}
	limit, values, _ := envelope.ParseLimitScope(scope)
	if s.keys[limit] == nil {
		s.keys[limit] = make(map[string]*LimitKey)
	}
	if s.keys[limit][scope] == nil {
		s.keys[limit][scope] = &LimitKey{Key: limits.JoinKey(values)}
	}
	return s.keys[limit][scope]
}

// sum adds up what is known of the keys of a limit.
func (s *limitsSurvey) sum(l *LimitNow) {
	l.Known = len(s.keys[l.Name])
	for _, key := range s.keys[l.Name] {
		l.Lanes += key.Lanes
		l.Waiting += key.Waiting
		l.Running += key.Running
		if !key.Paused.IsZero() {
			l.Paused++
		}
		if !key.Until.IsZero() {
			l.Overridden++
		}
	}
}

// busiest returns the scopes of at most n keys of a limit: those that are paused, those with an override, then those that
// most lanes wait for.
func (s *limitsSurvey) busiest(limit string, n int) (scopes []string) {
	of := s.keys[limit]
	for scope := range of {
		scopes = append(scopes, scope)
	}
	slices.SortFunc(scopes, func(a, b string) int {
		return cmp.Or(of[b].Paused.Compare(of[a].Paused), of[b].Until.Compare(of[a].Until), cmp.Compare(of[b].Lanes, of[a].Lanes), cmp.Compare(of[b].Running, of[a].Running), cmp.Compare(a, b))
	})
	return scopes[:min(len(scopes), n, max(1, limitKeys/len(s.limits)))]
}

// forecast reads what the rules of scopes remember, and the backlogs of those with a capacity.
func (s *limitsSurvey) forecast(ctx context.Context, scopes []string) (*forecast.Forecast, error) {
	bounded := slices.DeleteFunc(slices.Clone(scopes), func(scope string) bool {
		limit, _ := s.policies.Limit(scope)
		return limit.Capacity == 0
	})
	lengths, err := s.store.Backlogs(ctx, bounded)
	if err != nil {
		return nil, err
	}
	for k, n := range lengths {
		s.key(bounded[k]).Backlog = n
	}
	return s.reader.Look(ctx, s.policies, scopes, s.census)
}

// keysOf returns the keys of a limit among scopes, the fullest first.
func (s *limitsSurvey) keysOf(p *forecast.Forecast, limit string, scopes []string) (all []LimitKey) {
	for _, scope := range scopes {
		if key := s.keys[limit][scope]; key != nil {
			key.describe(p, scope)
			all = append(all, *key)
		}
	}
	slices.SortFunc(all, fullest)
	return all
}
