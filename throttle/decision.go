package throttle

import (
	"sync"
	"time"
)

// Outcome says what became of an action. The zero value lets nothing start.
type Outcome int

const (
	Undecided Outcome = iota // there is no decision, see the error
	Admitted                 // it may start now
	Deferred                 // it may start at its slot, not before
	Dropped                  // a rule made with OrDrop refused it
)

func (o Outcome) String() string {
	switch o {
	case Admitted:
		return "admitted"
	case Deferred:
		return "deferred"
	case Dropped:
		return "dropped"
	}
	return "undecided"
}

// A Decision says when an action may start, and why not earlier.
type Decision struct {
	Outcome Outcome

	// Slot is the earliest instant at which the action may start, on Redis's clock.
	// For a dropped action it is the slot at which it was refused.
	Slot time.Time

	// RetryAfter is the time from the decision to the slot, 0 when admitted. Waiting
	// exactly this long is enough, also where refused actions count
	// ([Rule.CountingDropped]): this one is in it.
	RetryAfter time.Duration

	// Limit and Remaining are those of the binding rule: the most it lets start at
	// once, and how many more of cost 1 it would let start now.
	Limit, Remaining int

	// NextAfter is the time until the binding rule would let more start than Remaining, 0 if
	// Remaining is its limit.
	NextAfter time.Duration

	// ResetAfter is the time until the binding rule has forgotten everything.
	ResetAfter time.Duration

	// Subject and Rule name the binding rule: the one that decided the slot, or the
	// one nearest to its limit when the action was admitted. Rule is as written in a
	// policy, "window 10/1m". Both are empty when no rule applied.
	Subject, Rule string

	// Shadow names the first shadow rule that would not have let the action start at
	// its slot, see [Rule.AsShadow]. It is empty when none objected.
	Shadow string

	// Again is how long a caller that takes turns should wait before it asks again, see [Request.By]. Where several requests of a call
	// differ in nothing, it is told with the last slot that was taken, if all were, and with those that were not.
	Again time.Duration

	spent *grant // what Refund gives back; nil if nothing was spent
}

// Spent reports whether the slot was taken: the rules count the action, and [Limiter.Refund] gives the slot back.
func (d Decision) Spent() bool { return d.spent != nil }

// A grant is a slot that was spent. All copies of a decision share it.
type grant struct {
	slot     int64     // microseconds
	subjects []Subject // each with its cost
	objected bool      // by a shadow rule, so that no shadow rule was spent

	mu       sync.Mutex
	refunded bool
}
