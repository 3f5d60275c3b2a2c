package queue

import (
	"errors"
	"fmt"
	"time"
)

// scope says whom a pause or a rule is for, as the scripts name it.
type scope string

const (
	scopeQueue  scope = "q"
	scopeTenant scope = "t"
	scopeUser   scope = "u"
)

// PauseTenant returns an error with which a handler says: no job of this tenant before
// until. It is what a provider's Retry-After asks for. The job returns to the front of
// its lane and the attempt does not count; its slot stays spent, since it did start.
// The cause is for people and may be nil.
func PauseTenant(until time.Time, cause error) error {
	return &pauseError{scopeTenant, until, cause}
}

// PauseUser is [PauseTenant] for this user of the tenant.
func PauseUser(until time.Time, cause error) error {
	return &pauseError{scopeUser, until, cause}
}

// PauseQueue is [PauseTenant] for everything in the queue.
func PauseQueue(until time.Time, cause error) error {
	return &pauseError{scopeQueue, until, cause}
}

type pauseError struct {
	scope scope
	until time.Time
	cause error
}

func (e *pauseError) Error() string {
	name := map[scope]string{scopeQueue: "queue", scopeTenant: "tenant", scopeUser: "user"}[e.scope]
	text := fmt.Sprintf("queue: %s paused until %s", name, e.until.Format(time.RFC3339))
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *pauseError) Unwrap() error { return e.cause }

func asPause(err error) (*pauseError, bool) {
	var pause *pauseError
	return pause, errors.As(err, &pause)
}
