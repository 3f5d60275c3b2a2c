package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// The errors of calls with invalid arguments. Nothing has
// happened then, and the text says what would be right.
var (
	// ErrInvalidJob: a job is missing something, or has a value out of its bounds. No job
	// of the batch is offered.
	ErrInvalidJob = errors.New("queue: invalid job")

	// ErrInvalidPolicies: policies contradict themselves. They are checked whole before
	// anything changes.
	ErrInvalidPolicies = errors.New("queue: invalid policies")

	// ErrInvalidQueue: a queue's name cannot be part of a key.
	ErrInvalidQueue = store.ErrInvalidQueue

	// ErrInvalidEntry: an entry is not one that [DeadJob.Entry] names.
	ErrInvalidEntry = errors.New("queue: invalid entry of a dead job")

	// ErrPoliciesChanged: others are in force than those that were read.
	ErrPoliciesChanged = store.ErrPoliciesChanged

	// ErrSchema: the keys in Redis were written by a version that this one does not
	// understand. Nothing was touched.
	ErrSchema = store.ErrSchema
)

// What a handler returns decides what becomes of its job:
//
//	nil, asynq.RevokeTask    done
//	any other error          a failed attempt; the next comes after [WorkerConfig].RetryDelay
//	asynq.SkipRetry          a failed attempt, and the last
//	[RetryAfter]             a failed attempt; the next comes not sooner than that
//	[PauseUser] and others   no attempt: the job waits at the front of its lane
//	[RefundUser]             what the error in it says, and the user gets the slot back
//	[Yield]                  what the error in it says; further attempts are at low priority
//
// They may be wrapped.

// RetryAfter returns an error with which a handler says: this attempt failed, and the
// next is not to come sooner than that, whatever [WorkerConfig].RetryDelay says. The
// cause is for people and may be nil.
func RetryAfter(d time.Duration, cause error) error {
	return &retryError{d, cause}
}

type retryError struct {
	after time.Duration
	cause error
}

func (e *retryError) Error() string { return textOf(e.cause, "queue: to be attempted again") }
func (e *retryError) Unwrap() error { return e.cause }

// RetryAfterOf returns what a [RetryAfter] in the error asks for, and false if there is
// none.
func RetryAfterOf(err error) (time.Duration, bool) {
	var retry *retryError
	if errors.As(err, &retry) {
		return retry.after, true
	}
	return 0, false
}

// retryFloor returns what [RetryAfter] asks for, 0 for nothing.
func retryFloor(err error) time.Duration {
	after, _ := RetryAfterOf(err)
	return max(0, after)
}

// RefundUser returns an error with which a handler says, beside what err says: the user
// has seen nothing of this attempt. The user's windows and spacings get its slot back,
// as if it had never been; those of the tenant and the queue do not, since the attempt
// did take place. Err is what the handler would have returned: nil where the job is done
// all the same, a failure, or a pause.
func RefundUser(err error) error {
	return &refundError{err}
}

type refundError struct{ err error }

func (e *refundError) Error() string { return textOf(e.err, "queue: the user has seen nothing") }

// Unwrap returns what the handler would have returned. [asynq.RevokeTask] ends a job as
// nil does.
func (e *refundError) Unwrap() error {
	if e.err == nil {
		return asynq.RevokeTask
	}
	return e.err
}

// RefundsUser reports whether there is a [RefundUser] in the error.
func RefundsUser(err error) bool { return asRefund(err) }

func asRefund(err error) bool {
	var refund *refundError
	return errors.As(err, &refund)
}

// Yield returns an error with which a handler says, beside what err says: what is left of
// the job can wait for all other jobs of the tenant. Its further attempts are at priority
// [Low], so that they take no slot that another job waits for. Err is what the handler
// would have returned for the failed attempt, and may be nil. A job with a collapse key
// keeps its priority, since a newer job may take its place; and so does one whose tenant or
// users have a rule that drops, since it would drop what comes last.
func Yield(err error) error {
	return &yieldError{err}
}

type yieldError struct{ err error }

func (e *yieldError) Error() string {
	return textOf(e.err, "queue: to be attempted again at low priority")
}
func (e *yieldError) Unwrap() error { return e.err }

// Yields reports whether there is a [Yield] in the error.
func Yields(err error) bool {
	var yield *yieldError
	return errors.As(err, &yield)
}

// PauseTenant returns an error with which a handler says: no job of this tenant before
// until, on Redis's clock. It is what a provider's Retry-After asks for. The job returns
// to the front of its lane and the attempt does not count; its slot stays spent, since
// it did start. The cause is for people and may be nil.
//
// A pause lasts a second at least, also if until has passed: so a worker whose clock is
// wrong does not repeat the job without end. [PauseTenantFor] does not look at the
// worker's clock.
func PauseTenant(until time.Time, cause error) error {
	return &pauseError{Pause{Scope: ScopeTenant, Until: until, Cause: cause}}
}

// PauseUser is [PauseTenant] for this user of the tenant.
func PauseUser(until time.Time, cause error) error {
	return &pauseError{Pause{Scope: ScopeUser, Until: until, Cause: cause}}
}

// PauseQueue is [PauseTenant] for everything in the queue.
func PauseQueue(until time.Time, cause error) error {
	return &pauseError{Pause{Scope: ScopeQueue, Until: until, Cause: cause}}
}

// PauseTenantFor is [PauseTenant] for so long from the end of the attempt, a second at
// least.
func PauseTenantFor(d time.Duration, cause error) error {
	return &pauseError{Pause{Scope: ScopeTenant, For: d, Cause: cause}}
}

// PauseUserFor is [PauseTenantFor] for this user of the tenant.
func PauseUserFor(d time.Duration, cause error) error {
	return &pauseError{Pause{Scope: ScopeUser, For: d, Cause: cause}}
}

// PauseQueueFor is [PauseTenantFor] for everything in the queue.
func PauseQueueFor(d time.Duration, cause error) error {
	return &pauseError{Pause{Scope: ScopeQueue, For: d, Cause: cause}}
}

// The scopes of pauses and rules.
const (
	ScopeQueue  = "queue"
	ScopeTenant = "tenant"
	ScopeUser   = "user"
)

// A Pause is what a handler's error asks for.
type Pause struct {
	Scope string        // ScopeQueue, ScopeTenant or ScopeUser
	Until time.Time     // the zero time if For says how long
	For   time.Duration // from the end of the attempt
	Cause error         // may be nil
}

// PauseOf returns the pause that an error asks for, and false if it asks for none. Tests
// of handlers look at it.
func PauseOf(err error) (Pause, bool) {
	if pause, ok := asPause(err); ok {
		return pause.Pause, true
	}
	return Pause{}, false
}

// The bounds of a pause.
const (
	shortestPause = time.Second
	longestPause  = 100 * 366 * 24 * time.Hour
)

// end returns when the pause ends if it begins at now, on Redis's clock.
func (p Pause) end(now time.Time) time.Time {
	until := p.Until
	if until.IsZero() {
		until = now.Add(min(p.For, longestPause))
	}
	if least := now.Add(shortestPause); until.Before(least) {
		return least
	}
	if most := now.Add(longestPause); until.After(most) {
		return most
	}
	return until
}

type pauseError struct{ Pause }

func (e *pauseError) Error() string {
	text := fmt.Sprintf("queue: %s paused until %s", e.Scope, e.Until.Format(time.RFC3339))
	if e.Until.IsZero() {
		text = fmt.Sprintf("queue: %s paused for %v", e.Scope, e.For)
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

func (e *pauseError) Unwrap() error { return e.Cause }

func asPause(err error) (*pauseError, bool) {
	var pause *pauseError
	return pause, errors.As(err, &pause)
}

func textOf(cause error, otherwise string) string {
	if cause == nil {
		return otherwise
	}
	return cause.Error()
}
