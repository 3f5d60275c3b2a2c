package throttle

import (
	"context"
	"fmt"
)

// A Subject is whoever a set of rules counts for. State is kept by Key: two subjects
// with one key share it, so rules of one key should always come together.
type Subject struct {
	Key   string
	Rules []Rule
}

// A Limiter decides when actions may start. All three verbs answer alike and differ in
// what they spend:
//
//   - [Limiter.Allow] spends if the action may start now. Most callers want this one.
//   - [Limiter.Reserve] spends at the slot, however far ahead: whoever holds the slot
//     starts then and needs not ask again.
//   - [Limiter.Peek] spends nothing and writes nothing.
//
// A Limiter is safe for concurrent use. It has no state of its own: all is in its store.
type Limiter struct {
	store Store
}

// A Store holds the state of subjects and decides on it, atomically. [NewRedisStore]
// makes one.
type Store interface {
	decide(ctx context.Context, v verb, cost int, subjects []Subject) (Decision, error)
}

type verb string

const (
	verbAllow   verb = "allow"
	verbReserve verb = "reserve"
	verbPeek    verb = "peek"
)

// New returns a limiter on the store.
func New(store Store) *Limiter {
	return &Limiter{store: store}
}

// Allow admits the action if every rule lets it start now, and only then spends cost.
// Otherwise the decision says when to come back, or that the action is dropped.
func (l *Limiter) Allow(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, verbAllow, cost, subjects)
}

// Reserve takes the earliest slot that suits every rule, however far ahead. A dropped
// action takes nothing.
func (l *Limiter) Reserve(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, verbReserve, cost, subjects)
}

// Peek decides as Allow would, spends nothing and writes nothing.
func (l *Limiter) Peek(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, verbPeek, cost, subjects)
}

func (l *Limiter) decide(ctx context.Context, v verb, cost int, subjects []Subject) (Decision, error) {
	for _, s := range subjects {
		for _, r := range s.Rules {
			if err := r.Validate(); err != nil {
				return Decision{}, fmt.Errorf("subject %q: %w", s.Key, err)
			}
		}
		if err := CheckCost(cost, s.Rules...); err != nil {
			return Decision{}, fmt.Errorf("subject %q: %w", s.Key, err)
		}
	}
	return l.store.decide(ctx, v, cost, subjects)
}
