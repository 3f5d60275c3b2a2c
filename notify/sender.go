package notify

import (
	"context"
	"time"
)

// A Sender delivers messages to one provider. It is safe for concurrent use.
type Sender interface {
	// Send makes exactly one attempt to deliver the message to one target, and neither
	// repeats it nor waits for a better time. It gives up when ctx ends. What is known
	// of the job is in [queue.FromContext].
	Send(ctx context.Context, m Message, to Target) Outcome
}

// An Outcome says what became of an attempt to send.
type Outcome struct {
	Action Action

	// Err is the reason: required for every action but Done. It appears in logs and with dead
	// jobs, so it must hold no secrets: no token, no address of a device, no key.
	Err error

	// After is how long to wait at least: for Retry the floor of the backoff, for Defer,
	// Pause and Halt the time itself. 0 leaves it to the handler.
	After time.Duration

	// Reached says that the message may have reached the device, for example because the
	// connection broke after the request was sent. Done implies it.
	Reached bool

	// Doubtful says of a Forget or a Drop that a wrong configuration gives the same
	// answer for devices that are fine. Many such answers in a row are not believed.
	// Of a Retry it says that a wrong configuration concerns some devices, and that the
	// others are fine: it suspends the route only if no other message gets through.
	Doubtful bool

	// Since says of a Forget when the provider saw the token die. A target that was
	// registered later is not forgotten. The zero time means always.
	Since time.Time

	ID     string // the provider's name for the message, if it gave one
	Status int    // of HTTP; 0 without an answer
}

// Action says what is to be done after an attempt. Only Retry, Pause, Halt and Drop count
// as a failed attempt of the job.
type Action string

const (
	Done   Action = "done"   // it was delivered
	Retry  Action = "retry"  // attempt it again after a backoff, if it has attempts left
	Defer  Action = "defer"  // nothing for this device before a time
	Pause  Action = "pause"  // the provider is in trouble: as Retry; many of them suspend the route
	Halt   Action = "halt"   // it refuses our credentials or configuration: as Pause, with an alarm
	Drop   Action = "drop"   // never attempt this message again: it cannot succeed
	Forget Action = "forget" // the target is gone: never send to it again
)
