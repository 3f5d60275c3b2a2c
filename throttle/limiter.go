package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Subject is whoever a set of rules counts for. State is kept by Key, so the rules of
// one key should always come together, and one decision names a key only once.
type Subject struct {
	Key   string
	Rules []Rule
}

// A Request asks for one action of [Limiter.AllowMany].
type Request struct {
	Cost     int // 0 means 1
	Subjects []Subject
}

// A Limiter decides when actions may start. All verbs answer alike and differ in what
// they spend:
//
//   - [Limiter.Allow] spends if the action may start now. Most callers want this one.
//   - [Limiter.AllowMany] is Allow for many actions in one round trip.
//   - [Limiter.Reserve] spends at the slot, however far ahead: whoever holds the slot
//     starts then and needs not ask again.
//   - [Limiter.Peek] spends nothing and writes nothing.
//   - [Limiter.Refund] gives back what was spent for an action that did not start.
//   - [Limiter.Reset] forgets everything about a subject.
//
// A Limiter is safe for concurrent use. It has no state of its own: all is in its store.
type Limiter struct {
	store Store
}

// A Store holds the state of subjects and decides on it, atomically. [NewRedisStore]
// and [NewMemoryStore] make one. Both answer alike.
type Store interface {
	// decide answers one request.
	decide(ctx context.Context, r request) (Decision, error)
	// decideMany answers each request by itself, in order, as if one by one. The
	// decisions of those that failed are undecided.
	decideMany(ctx context.Context, requests []request) ([]Decision, error)
	refund(ctx context.Context, g *grant) error
	reset(ctx context.Context, keys []string) error
}

type request struct {
	verb     verb
	cost     int
	subjects []Subject
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
	return l.decide(ctx, request{verbAllow, cost, subjects})
}

// Reserve takes the earliest slot that suits every rule, however far ahead (but not
// beyond a century). A dropped action takes nothing.
func (l *Limiter) Reserve(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, request{verbReserve, cost, subjects})
}

// Peek decides as Allow would, spends nothing and writes nothing.
func (l *Limiter) Peek(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, request{verbPeek, cost, subjects})
}

// AllowMany decides as many calls of Allow would, one after the other, in one round trip
// or few. The decisions are in the order of the requests, and each stands alone: all or
// nothing for its own subjects, whatever becomes of the others. An invalid request fails
// them all before anything is spent. If some failed for other reasons, the error says
// which, and their Outcome is Undecided.
func (l *Limiter) AllowMany(ctx context.Context, requests ...Request) ([]Decision, error) {
	asked := make([]request, len(requests))
	for i, r := range requests {
		asked[i] = request{verbAllow, max(r.Cost, 1), r.Subjects}
		if r.Cost < 0 {
			asked[i].cost = r.Cost
		}
		if err := asked[i].check(); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return l.store.decideMany(ctx, asked)
}

// Refund gives the slot of an action that did not start back to all rules, as far as
// nobody can have relied on it being taken: never above full, never beyond what the
// rules would allow had the action never asked. It is for decisions of Allow and Reserve;
// where nothing was spent, or was refunded before, it does nothing.
//
// Windows and spacings get all of it back. A leak and a fixed window get back what
// is in their newest slot or window. A token bucket gets the tokens back that it could
// have kept: less those that came in between the refunded slot and its newest.
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	if d.spent == nil || !d.spent.refunded.CompareAndSwap(false, true) {
		return nil
	}
	return l.store.refund(ctx, d.spent)
}

// Reset forgets all state of the subjects with these keys, as if they had never acted.
func (l *Limiter) Reset(ctx context.Context, keys ...string) error {
	if len(keys) == 0 {
		return nil
	}
	return l.store.reset(ctx, keys)
}

func (l *Limiter) decide(ctx context.Context, r request) (Decision, error) {
	if err := r.check(); err != nil {
		return Decision{Outcome: Undecided}, err
	}
	return l.store.decide(ctx, r)
}

// check returns what is wrong with the request, before anything is spent.
func (r request) check() error {
	for i, s := range r.subjects {
		for _, rule := range s.Rules {
			if err := rule.Validate(); err != nil {
				return fmt.Errorf("subject %q: %w", s.Key, err)
			}
		}
		if err := CheckCost(r.cost, s.Rules...); err != nil {
			return fmt.Errorf("subject %q: %w", s.Key, err)
		}
		for _, other := range r.subjects[:i] {
			if other.Key == s.Key {
				return fmt.Errorf("throttle: subject %q stands twice in one decision: put its rules together", s.Key)
			}
		}
	}
	if len(r.subjects) == 0 {
		return CheckCost(r.cost)
	}
	return nil
}

// A ruling is what a store found out about a request. Places are 1-based, 0 for none.
type ruling struct {
	outcome          Outcome
	slot, now, full  int64 // microseconds
	subject, rule    int   // the binding rule
	remaining        int
	objector, shadow int // the subject and rule of the shadow rule that objected
}

// errTooFar is returned for a slot that lies more than a century ahead.
var errTooFar = errors.New("its slot lies more than a century ahead")

// decision puts a ruling into the words of the request.
func (r request) decision(found ruling) (Decision, error) {
	ahead := micros(found.slot - found.now)
	if r.verb == verbReserve && found.outcome == Deferred && ahead > horizon {
		return Decision{Outcome: Undecided}, fmt.Errorf("%w: %w", ErrImpossibleCost, errTooFar)
	}
	d := Decision{
		Outcome:    found.outcome,
		Slot:       time.UnixMicro(found.slot),
		RetryAfter: ahead,
		Remaining:  found.remaining,
		ResetAfter: micros(max(0, found.full-found.now)),
	}
	if found.rule > 0 {
		subject := r.subjects[found.subject-1]
		rule := subject.Rules[found.rule-1]
		d.Subject, d.Rule, d.Limit = subject.Key, rule.String(), rule.most()
	}
	if found.shadow > 0 {
		d.Shadow = r.subjects[found.objector-1].Rules[found.shadow-1].String()
	}
	if found.outcome == Admitted && r.verb != verbPeek || found.outcome == Deferred && r.verb == verbReserve {
		d.spent = &grant{
			slot: found.slot, cost: r.cost, objected: found.shadow > 0,
			subjects: append([]Subject(nil), r.subjects...),
		}
	}
	return d, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
