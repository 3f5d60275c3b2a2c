// Package limits answers for the limits of a policy file: those of a queue, its tenants and users, and those
// by name. It is [throttle] with the rules in a file:
//
//	limits:
//	  marketing: {jobs: {type: [marketing, promo_*]}, key: [tenant, user], rules: [{window: 5/24h, over: drop}]}
//	  tokens:    {counts: tokens, key: [tenant], rules: [{token_bucket: 90000/1m, burst: 90000}]}
//
// A limit by name has a class of actions (their types), a key for whose values it counts (fields of the action),
// something that it counts (actions, their costs, or a unit of their own), and rules. An action is subject to all
// limits that are about it, and they decide together: it may start at the first instant that all of them allow,
// and either all of them count it or none.
//
//	set, err := limits.FromFile("policies.yaml", throttle.New(throttle.NewRedisStore(client, "{limits}")))
//	d, err := set.Allow(ctx, limits.Fields{Tenant: "school-7", User: "teacher-42", Type: "marketing"})
//
// docs/limits.md describes the file.
package limits

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/throttle"
)

// ErrInvalidFile is wrapped by the errors of files that cannot be read, or say what is not allowed. They begin with
// the file and the line.
var ErrInvalidFile = errors.New("limits: invalid file")

// ErrInvalidFields is wrapped by the errors of actions that lack a field which a limit with missing: refuse needs,
// or that more than 8 limits by name are about.
var ErrInvalidFields = errors.New("limits: invalid fields")

// ErrUnknownLimit is wrapped by the error of [Set.Acquire] for a limit that the file does not have.
var ErrUnknownLimit = errors.New("limits: unknown limit")

// Fields are what limits know of an action. All of them may be left out: an action without a tenant is not
// subject to limits of tenants.
type Fields struct {
	Tenant, User, Type string
	Keys               map[string]string // keys.domain in a file is Keys["domain"]
	Cost               int               // 0 means 1
	Costs              map[string]int    // by unit: "counts: tokens" in a file is Costs["tokens"]
}

// A Decision says when an action may start, and why not earlier.
type Decision struct {
	throttle.Decision

	// Limit is the name of the limit that binds: that of the rule in Rule. It is queue, tenant or user for
	// those that everybody has, and empty where no rule applied.
	Limit string

	// Key are the values of the fields for which that limit counts, in the order of its key.
	Key []string
}

// A Set are the limits of a file. It is immutable, and safe for concurrent use.
type Set struct {
	limits  *limits.Set[bounds]
	limiter *throttle.Limiter
}

// bounds are the rules of a limit, and how much later than its slot an action may start that it counts.
type bounds struct {
	rules []throttle.Rule
	slack time.Duration
}

func boundsOf(b policyfile.Bounds) bounds {
	if b.Shared {
		return bounds{b.Rules, limits.SharedSlack}
	}
	return bounds{rules: b.Rules}
}

// SharedKeys is the prefix of the store of shared limits: those of queues, and those of a [Set] whose limiter has it.
const SharedKeys = limits.SharedKeys

// FromFile reads the limits of a policy file. What a file says of concurrency, capacity, weights and waiting is for
// queues: it is checked, and has no effect here.
func FromFile(name string, limiter *throttle.Limiter) (*Set, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidFile, err)
	}
	return Parse(name, data, limiter)
}

// Parse reads the text of a policy file as [FromFile] does. The name is the file's, for errors.
func Parse(name string, data []byte, limiter *throttle.Limiter) (*Set, error) {
	file, err := policyfile.Parse(name, data)
	if err != nil {
		return nil, invalid{err}
	}
	return &Set{limits.Compile(file, boundsOf), limiter}, nil
}

// invalid is an error of a file that wraps [ErrInvalidFile] without repeating it.
type invalid struct{ error }

func (invalid) Unwrap() error { return ErrInvalidFile }

// A Limit is one that an action is subject to.
type Limit struct {
	Name string
	Key  []string // the values of the fields for which it counts

	// Subject is whom it counts for, with the rules and what the action costs under them: for any method of
	// [throttle.Limiter], such as Wait and AllowMany.
	throttle.Subject
}

// Of returns the limits that an action is subject to. Those without rules are left out.
func (s *Set) Of(f Fields) ([]Limit, error) {
	uses, err := s.limits.Of(limits.Action(f))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidFields, err)
	}
	var all []Limit
	for _, u := range uses {
		if len(u.Bounds.rules) > 0 {
			all = append(all, Limit{u.Limit, u.Values, throttle.Subject{Key: u.Scope(), Rules: u.Bounds.rules, Cost: u.Cost, Slack: u.Bounds.slack}})
		}
	}
	return all, nil
}

// Allow admits the action if every rule of all its limits lets it start now, and only then counts it in all
// of them. Otherwise the decision says when to come back, or that the action is dropped.
func (s *Set) Allow(ctx context.Context, f Fields) (Decision, error) {
	return s.decide(ctx, f, s.limiter.Allow)
}

// Reserve takes the first slot that every rule of all the action's limits allows, however far ahead.
func (s *Set) Reserve(ctx context.Context, f Fields) (Decision, error) {
	return s.decide(ctx, f, s.limiter.Reserve)
}

// Peek decides as Allow would, and counts nothing.
func (s *Set) Peek(ctx context.Context, f Fields) (Decision, error) {
	return s.decide(ctx, f, s.limiter.Peek)
}

// Acquire takes the earliest slot that one limit by name allows the action, if that is at most `within` ahead, and returns when it has
// come ([throttle.Limiter.Acquire]). Other limits do not count the action. It is an error if the file has no limit of that name
// ([ErrUnknownLimit]), or that limit is not about the action ([ErrInvalidFields]).
func (s *Set) Acquire(ctx context.Context, limit string, f Fields, within time.Duration) (Decision, error) {
	if !s.limits.Has(limit) {
		return Decision{}, fmt.Errorf("%w %q", ErrUnknownLimit, limit)
	}
	all, err := s.Of(f)
	if err != nil {
		return Decision{}, err
	}
	i := slices.IndexFunc(all, func(l Limit) bool { return l.Name == limit })
	if i < 0 {
		return Decision{}, fmt.Errorf("%w: limit %s is not about it, or has no rules for it; look at its jobs, key and counts", ErrInvalidFields, limit)
	}
	d, err := s.limiter.Acquire(ctx, within, f.Cost, all[i].Subject)
	return binding(all[i:i+1], d), err
}

// AllowMany decides about the actions as that many calls of Allow, in one or a few round trips ([throttle.Limiter.AllowMany]). If one
// of them is invalid, nothing is decided, and the error is an [*ActionError].
func (s *Set) AllowMany(ctx context.Context, actions ...Fields) ([]Decision, error) {
	requests, limits := make([]throttle.Request, len(actions)), make([][]Limit, len(actions))
	for i, f := range actions {
		all, err := s.Of(f)
		if err != nil {
			return nil, &ActionError{i, err}
		}
		requests[i].Cost, limits[i] = f.Cost, all
		for _, l := range all {
			requests[i].Subjects = append(requests[i].Subjects, l.Subject)
		}
	}
	found, err := s.limiter.AllowMany(ctx, requests...)
	decisions := make([]Decision, len(found))
	for i, d := range found {
		decisions[i] = binding(limits[i], d)
	}
	return decisions, err
}

// An ActionError says which action of several is invalid, and why.
type ActionError struct {
	Action int // its place, from 0
	Err    error
}

func (e *ActionError) Error() string { return fmt.Sprintf("action %d: %v", e.Action, e.Err) }
func (e *ActionError) Unwrap() error { return e.Err }

func (s *Set) decide(ctx context.Context, f Fields, ask func(context.Context, int, ...throttle.Subject) (throttle.Decision, error)) (Decision, error) {
	all, err := s.Of(f)
	if err != nil {
		return Decision{}, err
	}
	subjects := make([]throttle.Subject, len(all))
	for i, l := range all {
		subjects[i] = l.Subject
	}
	d, err := ask(ctx, f.Cost, subjects...)
	return binding(all, d), err
}

// binding returns a decision with the limit that binds.
func binding(all []Limit, d throttle.Decision) Decision {
	i := slices.IndexFunc(all, func(l Limit) bool { return l.Subject.Key == d.Subject })
	if i < 0 {
		return Decision{Decision: d}
	}
	return Decision{d, all[i].Name, all[i].Key}
}
