package queue

import (
	"errors"
	"fmt"
	"time"
)

// A Job is one unit of work for one user of one tenant. Tenant, User and Type are
// required, arbitrary bytes; the zero value of everything else is its default.
type Job struct {
	// ID makes offers idempotent: a second job with the ID is a duplicate. It is known
	// for a day, or a day after NotBefore; so long the job can be cancelled and
	// explained by it. Defaults to the instant of the offer, which no other job of the
	// queue has; it is not kept.
	ID string

	Tenant string // whose leak rate it is
	User   string // whose window and spacing count

	Type    string            // selects the handler, as in asynq
	Payload []byte            // for the handler
	Headers map[string]string // for the handler, as in asynq

	// Cost is how much of its rules the job spends. Defaults to 1.
	Cost int

	// NotBefore is the earliest start. The zero time means now.
	NotBefore time.Time

	// Deadline is the latest start: a job whose slot would lie beyond it is dropped.
	// Defaults to the policy's max_wait after the offer, if it has one.
	Deadline time.Time

	// Priority orders the jobs of one tenant. Defaults to Normal.
	Priority Priority

	// CollapseKey makes the job take the place of the user's waiting job with the same
	// key, if there is one: that one is dropped, its place in line is kept.
	CollapseKey string

	// MaxRetry is how many times the job is attempted again after a failure. 0 means
	// 25, as in asynq; a negative number means never.
	MaxRetry int

	// Timeout bounds one attempt: the handler's context ends then. 0 means no bound.
	Timeout time.Duration
}

// Priority orders the jobs of one tenant among each other: high ones first, low ones
// when there is nothing else. It never lifts a limit.
type Priority int

const (
	Normal Priority = iota
	High
	Low
)

// String returns "normal", "high" or "low".
func (p Priority) String() string {
	switch p {
	case Normal:
		return "normal"
	case High:
		return "high"
	case Low:
		return "low"
	}
	return fmt.Sprintf("priority %d", int(p))
}

// DefaultMaxRetry is what a [Job.MaxRetry] of 0 means.
const DefaultMaxRetry = 25

// Status says what became of an offered job.
type Status string

const (
	Accepted  Status = "accepted"  // it waits in its lane
	Replaced  Status = "replaced"  // it took the place of a job with its collapse key
	Duplicate Status = "duplicate" // a job with its ID was offered before
	Rejected  Status = "dropped"   // it was dropped at once, see Reason
)

// Reason says why a job was dropped.
type Reason string

const (
	ReasonFull       Reason = "full"       // the tenant's bucket was at its capacity
	ReasonRule       Reason = "rule"       // a rule with over: drop refused it
	ReasonExpired    Reason = "expired"    // its slot lay beyond its deadline
	ReasonCollapsed  Reason = "collapsed"  // a newer job took its place
	ReasonImpossible Reason = "impossible" // it costs more than a rule ever admits
	ReasonCancelled  Reason = "cancelled"  // see Inspector.Cancel
	ReasonPurged     Reason = "purged"     // see Inspector.Purge
)

// A Receipt tells a producer what became of an offered job.
type Receipt struct {
	ID     string
	Status Status

	// Place is the job's place in its lane; 1 is next. 0 if it is not in line.
	Place int

	// Start is when the job will start if nobody comes in between, on Redis's clock:
	// an estimate.
	Start time.Time

	Reason Reason // why it was dropped
	Rule   string // which rule, for ReasonImpossible
}

// ErrInvalidJob is returned when a job is missing something or has a value that means
// nothing. No job of the batch is offered then.
var ErrInvalidJob = errors.New("queue: invalid job")

const (
	maxName = 1024 // bytes in a tenant, user, type, ID or collapse key
	maxCost = 1_000_000
)

// Validate returns an error wrapping [ErrInvalidJob] that says what is wrong with the
// job and what would be right, or nil.
func (j Job) Validate() error {
	names := []struct {
		field, value string
		required     bool
	}{
		{"tenant", j.Tenant, true}, {"user", j.User, true}, {"type", j.Type, true},
		{"id", j.ID, false}, {"collapse_key", j.CollapseKey, false},
	}
	for _, n := range names {
		if n.required && n.value == "" {
			return fmt.Errorf("%w: %s is missing", ErrInvalidJob, n.field)
		}
		if len(n.value) > maxName {
			return fmt.Errorf("%w: %s has %d bytes; at most %d", ErrInvalidJob, n.field, len(n.value), maxName)
		}
	}
	switch {
	case j.Cost < 0 || j.Cost > maxCost:
		return fmt.Errorf("%w: cost %d; from 1 to %d, or 0 for 1", ErrInvalidJob, j.Cost, maxCost)
	case j.Priority < Normal || j.Priority > Low:
		return fmt.Errorf("%w: priority %d; Normal, High or Low", ErrInvalidJob, j.Priority)
	case !j.Deadline.IsZero() && j.Deadline.UnixMicro() <= 0:
		return fmt.Errorf("%w: deadline %s; a time after 1970", ErrInvalidJob, j.Deadline.Format(time.RFC3339))
	case j.Timeout < 0:
		return fmt.Errorf("%w: timeout %v is negative", ErrInvalidJob, j.Timeout)
	}
	return nil
}
