package queue

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The errors of calls that cannot be carried out as they are. Such a call changes nothing, unless it says so here, and
// the text of its error says what would be right.
var (
	// ErrInvalidJob: a required field of a job is empty, or a value is out of its bounds. No job
	// of the call is offered.
	ErrInvalidJob = errors.New("queue: invalid job")

	// ErrInvalidPolicies: policies contradict themselves. They are checked whole before
	// anything changes.
	ErrInvalidPolicies = errors.New("queue: invalid policies")

	// ErrInvalidArgument: something else in the call is wrong: a worker's config, the name of a
	// queue, the scope of a pause, or the entry of a dead job.
	ErrInvalidArgument = errors.New("queue: invalid argument")

	// ErrPoliciesChanged: the policies in force have changed since they were read.
	ErrPoliciesChanged = store.ErrPoliciesChanged

	// ErrDivided: policies name another number of partitions than the queue has.
	ErrDivided = store.ErrDivided

	// ErrSchema: a version of waterclock with another key schema has written the keys in Redis.
	// Nothing was changed.
	ErrSchema = store.ErrSchema

	// ErrNotDurable: jobs are in Redis, and half a minute later not where [ClientConfig].Durability wants them. They may run
	// all the same. Offered again with IDs of their own they are duplicates, which wait for replicas and disks as new ones do.
	ErrNotDurable = store.ErrNotDurable

	// ErrBrokenKey: a key of the queue itself in Redis has another type, and the queue stands still.
	// The error names the key; package doctor mends it.
	ErrBrokenKey = store.ErrBrokenKey
)

// Four errors of a handler say what becomes of its job, beside those of asynq. Each may be wrapped,
// and is found with [errors.As]; of two of a kind the outer one counts.
//
//	nil, asynq.RevokeTask    done
//	any other error          a failed attempt; the next comes after [WorkerConfig].RetryDelay
//	asynq.SkipRetry          a failed attempt, and the last
//	[Retry]                  a failed attempt, with the time and the priority of the next, and whether it counts
//	[Pause]                  no attempt: the job waits at the front of its lane
//	[SendOn]                 no attempt: another worker gets the job
//	[RefundUser]             what the error in it says, and the user gets the slot back

// A Retry is the error of a failed attempt that says how the job is attempted again. The zero value
// says what any other error says.
type Retry struct {
	// After is the shortest time until the next attempt; [WorkerConfig].RetryDelay is not asked.
	// With 0 or less RetryDelay decides.
	After time.Duration

	// Yield makes the next attempts wait for all other jobs of the tenant: they have priority
	// [Low], so that they take no slot that another job waits for. Two kinds of jobs keep their
	// priority: those with a collapse key, since a newer job may take their place; and those whose
	// tenant or users have a rule with [throttle.Rule.OrDrop], which would drop the job that comes
	// last.
	Yield bool

	// Uncounted uses up no attempt: the job may be attempted as often again as before.
	Uncounted bool

	// Cause is why the attempt has failed; its text is that of the Retry. It may be nil.
	Cause error
}

// Error returns the text of the cause.
func (r Retry) Error() string { return textOf(r.Cause, "queue: to be attempted again") }

// Unwrap returns the cause.
func (r Retry) Unwrap() error { return r.Cause }

// A SendOn is the error of a handler whose worker cannot run the job, though another worker may: it has no way out to a
// provider, or its disk is full. The job returns to the front of its lane, the attempt does not count, and the user, who has
// seen nothing, gets the slot back. This worker gets no jobs of the queue For so long, as long as others have places.
//
// If the next worker cannot run the job either (its [Info].SentOn is true, and it returns a SendOn too), the error in it decides,
// as if that was returned: a job that no worker can run ends.
type SendOn struct {
	For time.Duration // at least a second
	Err error         // why; it may be a [Retry]
}

// Error returns the text of Err.
func (s SendOn) Error() string { return textOf(s.Err, "queue: this worker cannot run the job") }

// Unwrap returns Err.
func (s SendOn) Unwrap() error { return s.Err }

// end returns until when the worker gets no jobs, on Redis's clock.
func (s SendOn) end(now time.Time) time.Time { return Pause{For: s.For}.end(now) }

// A RefundUser is the error of an attempt of which the user has seen nothing. The user's windows
// and spacings get the attempt's slot back; the rules of the tenant and the queue do not, since the
// attempt did take place.
type RefundUser struct {
	// Err is what the handler would have returned otherwise, and decides what becomes of the job:
	// nil if the job is done, a failure, or a [Pause].
	Err error
}

// Error returns the text of Err.
func (r RefundUser) Error() string { return textOf(r.Err, "queue: the user has seen nothing") }

// Unwrap returns Err, or [asynq.RevokeTask] for nil, which ends a job as nil does.
func (r RefundUser) Unwrap() error {
	if r.Err == nil {
		return asynq.RevokeTask
	}
	return r.Err
}

// A PanicError is the error of an attempt whose handler panicked. [WorkerConfig].ErrorHandler gets it, IsFailure and RetryDelay,
// too; it is found with [errors.As].
type PanicError struct {
	Value any    // what the handler panicked with
	Stack string // where, as [debug.Stack] writes it
}

// Error returns the value as text, without the stack.
func (p *PanicError) Error() string { return fmt.Sprint("panic: ", p.Value) }

// answer finds a [Retry], [Pause], [SendOn] or [RefundUser] in an error, as a value or behind a pointer.
func answer[T error](err error) (found T, ok bool) {
	var pointer *T // an error too, by the methods of T
	if errors.As(err, any(&pointer)) && pointer != nil {
		return *pointer, true
	}
	ok = errors.As(err, &found)
	return found, ok
}

// A Scope is how far a rule or a pause reaches.
type Scope string

const (
	ScopeQueue  Scope = "queue"  // all jobs of the queue
	ScopeTenant Scope = "tenant" // all jobs of one tenant
	ScopeUser   Scope = "user"   // all jobs of one user of one tenant
	ScopeLimit  Scope = "limit"  // all jobs that a limit by name counts for the same values of its key
)

// A Pause lets no job of a scope start for a while. An operator sets one with [Inspector.Pause],
// and [Inspector.Pauses] lists those that have not ended.
//
// It is also an error of a handler, for a provider's Retry-After for example:
//
//	return queue.Pause{Scope: queue.ScopeTenant, For: retryAfter, Cause: err}
//
// The job returns to the front of its lane. The attempt does not count against MaxAttempts, but
// its slot stays spent, since it did start. Such a pause lasts at least a second, also if Until has
// passed, so that a handler with a wrong clock cannot repeat the job in an endless loop.
type Pause struct {
	Scope Scope `json:"scope"` // "" in a handler's error is ScopeUser

	// Tenant and User name what the pause is of, as far as the scope needs it. A handler pauses
	// only what its job belongs to: in its error they are those of the job, whatever they say.
	Tenant string `json:"tenant,omitempty"`
	User   string `json:"user,omitempty"`

	// Limit and Key name what a pause of ScopeLimit is of: a limit by name, and the values of the fields of its key, between
	// commas. In a value, a comma is %2C and a percent sign is %25. A handler may pause limits that do not
	// count its job, or that there are not: then the user of its job is paused, too.
	Limit string `json:"limit,omitempty"`
	Key   string `json:"key,omitempty"`

	// Until is the end, on Redis's clock. For is the duration, from the call or from the end of the
	// attempt; it counts where Until is the zero time, and needs no clock.
	Until time.Time     `json:"until"`
	For   time.Duration `json:"-"`

	Cause error `json:"-"` // of a handler's error, for people; may be nil

	// Note says who has paused it, and why. A pause that a handler has asked for has no author, and
	// the text of its cause as the reason.
	Note
}

// The bounds of a pause.
const (
	shortestPause = time.Second
	longestPause  = 100 * 366 * 24 * time.Hour
)

// end returns when a handler's pause ends if it begins at now, on Redis's clock.
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

// scope returns what is paused as the engine names it, for a job of a user.
func (p Pause) scope(tenant, user string) string {
	switch p.Scope {
	case ScopeQueue:
		return envelope.QueueScope
	case ScopeTenant:
		return envelope.TenantScope(tenant)
	case ScopeLimit:
		return envelope.ScopeOfLimit(p.Limit, limits.SplitKey(p.Key))
	}
	return envelope.UserScope(tenant, user)
}

// Error says what is paused, until when or for how long, and why.
func (p Pause) Error() string {
	text := fmt.Sprintf("queue: %s paused until %s", cmp.Or(p.Scope, ScopeUser), p.Until.Format(time.RFC3339))
	if p.Until.IsZero() {
		text = fmt.Sprintf("queue: %s paused for %v", cmp.Or(p.Scope, ScopeUser), p.For)
	}
	if p.Cause != nil {
		text += ": " + p.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (p Pause) Unwrap() error { return p.Cause }

func textOf(cause error, otherwise string) string {
	if cause == nil {
		return otherwise
	}
	return cause.Error()
}
