package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// The errors of calls that cannot be carried out as they are. Such a call changes nothing, and
// the text of its error says what would be right.
var (
	// ErrInvalidJob: a required field of a job is empty, or a value is out of its bounds. No job
	// of the call is offered.
	ErrInvalidJob = errors.New("queue: invalid job")

	// ErrInvalidPolicies: policies contradict themselves. They are checked whole before
	// anything changes.
	ErrInvalidPolicies = errors.New("queue: invalid policies")

	// ErrInvalidQueue: a queue's name cannot be part of a key.
	ErrInvalidQueue = store.ErrInvalidQueue

	// ErrInvalidEntry: an entry is not one that [DeadJob.Entry] names.
	ErrInvalidEntry = errors.New("queue: invalid entry of a dead job")

	// ErrPoliciesChanged: the policies in force have changed since they were read.
	ErrPoliciesChanged = store.ErrPoliciesChanged

	// ErrSchema: a version of waterclock with another key schema has written the keys in Redis.
	// Nothing was changed.
	ErrSchema = store.ErrSchema

	// ErrBrokenKey: a key of the queue itself in Redis has another type, and the queue stands still.
	// The error names the key; [Inspector.Repair] mends it.
	ErrBrokenKey = store.ErrBrokenKey
)

// The error of a handler decides what becomes of its job:
//
//	nil, asynq.RevokeTask    done
//	any other error          a failed attempt; the next comes after [WorkerConfig].RetryDelay
//	asynq.SkipRetry          a failed attempt, and the last
//	[RetryAfter]             a failed attempt; the next comes after that time instead
//	[PauseUser] and others   no attempt: the job waits at the front of its lane
//	[RefundUser]             what the error in it says, and the user gets the slot back
//	[Yield]                  what the error in it says; further attempts are at low priority
//
// They may be wrapped.

// RetryAfter returns an error for a failed attempt, after which the next one comes in d at the
// earliest; [WorkerConfig].RetryDelay is not asked. A negative d counts as 0. The cause is for
// people and may be nil.
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

// RefundUser returns an error for an attempt of which the user has seen nothing. The user's
// windows and spacings get the attempt's slot back; the rules of the tenant and the queue do not,
// since the attempt did take place. Err is what the handler would have returned otherwise, and
// decides what becomes of the job: nil if the job is done, a failure, or a pause.
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

// Yield returns an error for a failed attempt whose repetition can wait for all other jobs of the
// tenant. The further attempts have priority [Low], so that they take no slot that another job
// waits for. Err is what the handler would have returned otherwise, and may be nil. Two kinds of
// jobs keep their priority: those with a collapse key, since a newer job may take their place;
// and those whose tenant or users have a rule with [throttle.Rule.OrDrop], which would drop the
// job that comes last.
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

// PauseTenant returns an error that pauses the job's tenant: no job of it starts before until, on
// Redis's clock. Use it for a provider's Retry-After. The job returns to the front of its lane.
// The attempt does not count against MaxAttempts, but its slot stays spent, since it did start.
// The cause is for people and may be nil.
//
// A pause lasts at least a second, also if until has passed, so that a handler with a wrong clock
// cannot repeat the job in an endless loop. [PauseTenantFor] needs no clock.
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

// PauseTenantFor is [PauseTenant] with a pause that lasts d from the end of the attempt, at least
// a second.
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
