package notify

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// A Sender delivers messages. It is safe for concurrent use.
type Sender interface {
	// Send makes exactly one attempt to deliver the message, and neither repeats it
	// nor waits for a better time. It gives up when ctx ends. What is known of the
	// job is in [queue.FromContext].
	Send(ctx context.Context, m Message) Outcome
}

// An Outcome says what became of an attempt to send.
type Outcome struct {
	Action Action

	// Err is why: required for every action but Done. It ends up in logs and among
	// the dead jobs, so it holds no secrets.
	Err error
}

// Action says what the queue shall do with a job.
type Action string

const (
	Done  Action = "done"  // it was delivered
	Retry Action = "retry" // attempt it again after a backoff, if it has attempts left
	Drop  Action = "drop"  // never attempt it again: it cannot succeed
)

var errNoCause = errors.New("notify: the sender gave no cause")

// asError is the outcome as the handler of a job returns it.
func (o Outcome) asError() error {
	err := o.Err
	if err == nil {
		err = errNoCause
	}
	switch o.Action {
	case Done:
		return nil
	case Retry:
		return err
	case Drop:
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	return fmt.Errorf("notify: unknown action %q: %w", o.Action, err)
}

// A careless sender takes any payload: it does not look at the message.
type careless interface{ anyPayload() }

// Handler returns the handler that delivers each job's message with the sender. A
// payload that is not a message, and a message that has expired, are dropped unsent.
// For the log sender any payload will do.
func Handler(s Sender) asynq.Handler {
	_, anything := s.(careless)
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		if anything {
			return s.Send(ctx, Message{}).asError()
		}
		m, err := ParseMessage(t.Payload())
		if err != nil {
			return Outcome{Drop, err}.asError()
		}
		if now := startOf(ctx); !m.Expires.IsZero() && now.After(m.Expires) {
			late := now.Sub(m.Expires).Round(time.Millisecond)
			return Outcome{Drop, fmt.Errorf("notify: the message expired %v before its start", late)}.asError()
		}
		return s.Send(ctx, m).asError()
	})
}

// startOf returns the start of the job on Redis's clock, if there is a job.
func startOf(ctx context.Context) time.Time {
	if info, ok := queue.FromContext(ctx); ok {
		return info.Started
	}
	return time.Now()
}
