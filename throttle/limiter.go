package throttle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// A Subject is whoever a set of rules counts for. State is kept by Key, so the rules of
// one key should always come together, and one decision names a key only once. An empty
// Key is an error: it is most often one that was not found.
type Subject struct {
	Key   string
	Rules []Rule
	Cost  int // of the action under these rules, in whatever they count; 0 means the action's

	// Slack is how much later than its slot an action may start that this subject counts: actions that start within it keep the
	// rules as they are written. Windows and spacings are wider by so much. Fixed windows and sliding counters give no slot so near to the
	// end of a period (of a bucket), which is to be longer than four times that; they do not count what they drop. Leaks and token buckets count
	// slots. The state is kept as without it, so all who share the key should have one slack. 0 means that actions start
	// at their slots.
	Slack time.Duration

	// Weight is how much of the subject the caller gets that asks, for one unit of a caller of weight 1, where callers take turns
	// ([Request.By]). 0 means 1. All requests of a call say the same.
	Weight int
}

// maxSlack bounds the slack of a subject.
const maxSlack = time.Minute

// periodOf returns the period of a rule under the slack of the subject.
func (s Subject) periodOf(r Rule) time.Duration {
	if r.logged() {
		return r.period + s.Slack
	}
	return r.period
}

// guardOf returns how much of the end of each period has no slots under the slack of the subject.
func (s Subject) guardOf(r Rule) time.Duration {
	if r.part() == 0 || r.shadow {
		return 0
	}
	return s.Slack
}

// stepSlack returns how much before a tighter window of a warm-up comes there are no slots under the slack of the subject.
func (s Subject) stepSlack(r Rule) time.Duration {
	if r.logged() {
		return s.Slack
	}
	return s.guardOf(r)
}

// A Request asks for one action of [Limiter.AllowMany].
type Request struct {
	Cost     int // 0 means 1
	Subjects []Subject

	// By says who asks, for [Limiter.ReserveMany]: callers of different names take turns. One call names one. It has no comma and no
	// semicolon. Empty means that whoever comes first takes what there is. With it a decision names the rule only if that drops, and rules count
	// none of what they drop ([Rule.CountingDropped]): see [Limiter.CountRefused].
	By string
	// Gap is how far the slot lies behind the one before that the call has taken, at least: something else lets the caller start no sooner.
	// It is for callers that say who they are.
	Gap time.Duration
	// More says that the caller wants more slots than it asks for. Like By it is said of a call: by its first request.
	More bool
}

// A Limiter decides when actions may start. Its methods make the same decisions and differ in
// what they spend:
//
//   - [Limiter.Allow] spends if the action may start now. Most callers want this one.
//   - [Limiter.AllowMany] is Allow for many actions in one round trip.
//   - [Limiter.Reserve] spends at the slot, however far ahead: whoever holds the slot
//     starts then and need not ask again.
//   - [Limiter.ReserveMany] is Reserve for many actions in one round trip, within a horizon.
//   - [Limiter.Wait] reserves, and returns when the slot has come.
//   - [Limiter.Peek] spends nothing and writes nothing.
//   - [Limiter.CountRefused] counts what somebody else has refused.
//   - [Limiter.Refund] gives back what was spent for an action that did not start.
//   - [Limiter.Reset] forgets everything about a subject.
//
// A cost of 0 means 1. A subject that counts something else has a cost of its own: requests and tokens are
// two subjects of one action. The zero Decision is undecided, and comes with every error.
//
// A Limiter is safe for concurrent use. It has no state of its own: all is in its store.
//
// When a context ends while Redis decides, it is unknown whether something was spent. go-redis
// waits for its own ReadTimeout nevertheless, unless the client's ContextTimeoutEnabled is set.
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
	cost     int       // of subjects that have none of their own
	subjects []Subject // each with its cost
	bounds   bounds    // of the slot that is reserved
	by       string    // who asks, if callers take turns
	more     bool      // and wants more
	gap      int64     // behind the slot before, in µs
}

// bounds are between which instants a slot is reserved, from the decision on: after, and no more than within behind that. Without a
// bounded within it may be any up to a century ahead.
type bounds struct {
	after, within time.Duration
	bounded       bool
}

// near returns the bounds of slots that lie at least `after` ahead, and at most `within` behind that.
func near(after, within time.Duration) bounds {
	return bounds{max(0, after).Truncate(time.Microsecond), max(0, within).Truncate(time.Microsecond), true}
}

// takes reports whether a slot is reserved that lies so far ahead of the decision.
func (b bounds) takes(ahead time.Duration) bool {
	if b.bounded {
		return ahead-b.after <= b.within
	}
	return ahead <= rules.Century
}

type verb string

const (
	verbAllow   verb = "allow"
	verbReserve verb = "reserve"
	verbPeek    verb = "peek"
	verbCount   verb = "count"
)

// newRequest returns a request. A cost of 0 means 1.
func newRequest(v verb, cost int, subjects []Subject) request {
	r := request{verb: v, cost: cmp.Or(cost, 1), subjects: slices.Clone(subjects)}
	for i := range r.subjects {
		r.subjects[i].Cost = cmp.Or(r.subjects[i].Cost, r.cost)
	}
	return r
}

// New returns a limiter on the store.
func New(store Store) *Limiter {
	return &Limiter{store: store}
}

// Allow admits the action if every rule lets it start now, and only then spends cost.
// Otherwise the decision says when to come back, or that the action is dropped.
func (l *Limiter) Allow(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, newRequest(verbAllow, cost, subjects))
}

// Reserve takes the earliest slot that every rule allows, however far ahead, up to a century. A
// dropped action takes nothing.
func (l *Limiter) Reserve(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, newRequest(verbReserve, cost, subjects))
}

// Peek decides as Allow would, spends nothing and writes nothing.
func (l *Limiter) Peek(ctx context.Context, cost int, subjects ...Subject) (Decision, error) {
	return l.decide(ctx, newRequest(verbPeek, cost, subjects))
}

// AllowMany decides the requests as that many calls of Allow, one after the other, in one or a
// few round trips. The decisions are in the order of the requests, and each stands alone: all or
// nothing for its own subjects, whatever becomes of the others. An invalid request fails them all
// before anything is spent. If some failed for other reasons, the error says which, and their
// Outcome is Undecided.
func (l *Limiter) AllowMany(ctx context.Context, requests ...Request) ([]Decision, error) {
	return l.decideMany(ctx, verbAllow, bounds{}, requests)
}

// PeekMany decides the requests as AllowMany would, and spends and writes nothing.
func (l *Limiter) PeekMany(ctx context.Context, requests ...Request) ([]Decision, error) {
	return l.decideMany(ctx, verbPeek, bounds{}, requests)
}

// ReserveMany decides the requests as that many calls of Reserve, one after the other, in one or a few round trips, but takes
// only slots that are near: each is the earliest that lies at least `after` behind the decision, and it is taken
// if it lies no more than `within` behind that. Of others nothing is spent, and they are Deferred: to when they may be asked for
// again. [Decision.Spent] tells which were taken. Errors are those of [Limiter.AllowMany].
//
// It is for whoever hands slots on, and needs some time for that. If several such callers want more slots of a subject than there are, each says
// who it is ([Request.By]). Then they take turns: each gets as much as its weights say, and [Decision.Again] tells it when to ask again. The
// first slot of a caller that has none may lie up to a second ahead, if one subject decides.
func (l *Limiter) ReserveMany(ctx context.Context, after, within time.Duration, requests ...Request) ([]Decision, error) {
	return l.decideMany(ctx, verbReserve, near(after, within), requests)
}

// CountRefused counts actions that somebody else has refused, as if these rules had: those that count what is refused
// ([Rule.CountingDropped]) do, and all others notice nothing. Errors are those of [Limiter.AllowMany].
func (l *Limiter) CountRefused(ctx context.Context, requests ...Request) error {
	_, err := l.decideMany(ctx, verbCount, bounds{}, requests)
	return err
}

func (l *Limiter) decideMany(ctx context.Context, v verb, b bounds, requests []Request) ([]Decision, error) {
	asked := make([]request, len(requests))
	for i, r := range requests {
		asked[i] = newRequest(v, r.Cost, r.Subjects)
		asked[i].bounds, asked[i].by, asked[i].more = b, r.By, requests[0].More
		asked[i].gap = max(0, r.Gap.Microseconds())
		err := asked[i].check()
		if err == nil && r.By != requests[0].By {
			err = fmt.Errorf("%w: %q asks in one call with %q", errName, r.By, requests[0].By)
		}
		if err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
	}
	return l.store.decideMany(ctx, asked)
}

// Refund gives the slot of an action that did not start back to all rules, as far as no limit can
// be broken by that for decisions made since. It is for decisions of Allow and Reserve. If
// nothing was spent, or the decision was refunded before, Refund does nothing.
//
// Windows and spacings get all of it back. A leak and a fixed window get back what is in their
// newest slot or window. A token bucket gets the tokens back that it could have kept: less those
// that came in between the refunded slot and its newest. A rule that was added after the slot
// gets nothing.
//
// After an error it is unknown whether the slot was given back, and Refund may be called again.
// (If the first call had succeeded and its reply was lost, the second call gives back another
// action's slot in the same microsecond, if there is one.)
func (l *Limiter) Refund(ctx context.Context, d Decision) error {
	if d.spent == nil {
		return nil
	}
	d.spent.mu.Lock()
	defer d.spent.mu.Unlock()
	if d.spent.refunded {
		return nil
	}
	if err := l.store.refund(ctx, d.spent); err != nil {
		return err
	}
	d.spent.refunded = true
	return nil
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
		return Decision{}, err
	}
	return l.store.decide(ctx, r)
}

// errNoKey is returned for a subject without a key: its rules would count for everybody
// together whose key was not found either.
var errNoKey = errors.New("throttle: a subject has an empty key")

// errName is returned for a caller's name that cannot be written.
var errName = errors.New("throttle: a caller that takes turns has a name without commas, semicolons and control characters, and a call has one caller")

// check returns what is wrong with the request, before anything is spent.
func (r request) check() error {
	if err := checkCost(r.cost, nil); err != nil {
		return err
	}
	if strings.ContainsFunc(r.by, func(c rune) bool { return c == ',' || c == ';' || c < ' ' }) {
		return fmt.Errorf("%w: %q", errName, r.by)
	}
	for i, s := range r.subjects {
		if s.Key == "" {
			return errNoKey
		}
		for _, rule := range s.Rules {
			if err := rule.Validate(); err != nil {
				return fmt.Errorf("subject %q: %w", s.Key, err)
			}
			if rule.zone == rules.OfUser {
				return fmt.Errorf("%w: subject %q: %s goes by a user's clock, which only queues know", ErrInvalidRule, s.Key, rule)
			}
			if s.Slack != 0 && !rule.slackens(s.Slack) {
				return fmt.Errorf("%w: subject %q has a slack: %s; want a leak, a token_bucket, a window or a spacing, or a fixed_window or a sliding_counter that does not count what it drops and counts by %v or longer",
					ErrInvalidRule, s.Key, rule, (guardFactor+1)*s.Slack)
			}
		}
		if s.Weight < 0 {
			return fmt.Errorf("throttle: subject %q has a weight of %d; want 1 or more, or 0 for 1", s.Key, s.Weight)
		}
		if s.Slack < 0 || s.Slack > maxSlack {
			return fmt.Errorf("%w: subject %q: slack %v; want 0 to %v", ErrInvalidRule, s.Key, s.Slack, maxSlack)
		}
		if err := checkCost(s.Cost, s.Rules); err != nil {
			return fmt.Errorf("subject %q: %w", s.Key, err)
		}
		for _, other := range r.subjects[:i] {
			if other.Key == s.Key {
				return fmt.Errorf("throttle: subject %q appears twice in one decision; put its rules together", s.Key)
			}
		}
	}
	return nil
}

// A ruling is what a store found out about a request.
type ruling struct {
	outcome         Outcome
	slot, now, full int64 // microseconds
	binding         place // of the rule that binds, or nowhere
	remaining       int
	next            int64 // when the rule that binds lets more start than that
	taken           bool  // the slot was taken
	again           int64 // how long a caller that takes turns should wait before it asks again, in microseconds
	objector        place // of the shadow rule that objected, or nowhere
}

// errTooFar is returned for a slot that lies too far ahead.
var errTooFar = errors.New("its slot lies more than a century ahead, or more periods of a window by the calendar than Redis was told of")

// timed returns the ruling with the outcome that its slot means where all rules defer.
func (found ruling) timed() ruling {
	found.outcome = Admitted
	if found.slot > found.now {
		found.outcome = Deferred
	}
	return found
}

// decision puts a ruling into the words of the request.
func (r request) decision(found ruling) (Decision, error) {
	ahead := micros(found.slot - found.now)
	if r.verb == verbReserve && found.outcome == Deferred && !r.bounds.bounded && ahead > rules.Century {
		return Decision{}, fmt.Errorf("%w: %w", ErrImpossibleCost, errTooFar)
	}
	d := Decision{
		Outcome:    found.outcome,
		Slot:       time.UnixMicro(found.slot),
		RetryAfter: ahead,
		Remaining:  found.remaining,
		NextAfter:  micros(max(0, found.next-found.now)),
		ResetAfter: micros(max(0, found.full-found.now)),
	}
	if found.binding != nowhere {
		subject, rule := r.at(found.binding)
		d.Subject, d.Rule, d.Limit = subject, rule.String(), rule.most()
	}
	if found.objector != nowhere {
		_, rule := r.at(found.objector)
		d.Shadow = rule.String()
	}
	d.Again = micros(found.again)
	if found.taken {
		d.spent = &grant{slot: found.slot, objected: found.objector != nowhere, subjects: r.subjects}
	}
	return d, nil
}

// spends reports whether a request takes its slot, which lies so far ahead.
func (r request) spends(o Outcome, ahead time.Duration) bool {
	return o == Admitted && (r.verb == verbAllow || r.verb == verbReserve) || o == Deferred && r.verb == verbReserve && r.bounds.takes(ahead)
}

// at returns the rule at a place, and the key of its subject.
func (r request) at(p place) (subject string, rule Rule) {
	return r.subjects[p.subject].Key, r.subjects[p.subject].Rules[p.rule]
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
