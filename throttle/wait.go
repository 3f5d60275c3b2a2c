package throttle

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// ErrDropped is returned by [Limiter.Wait] for an action that a rule made with
// [Rule.OrDrop] refused.
var ErrDropped = errors.New("throttle: dropped")

// ErrTooLate is returned by [Limiter.Wait] when the slot lies behind the deadline of the
// context.
var ErrTooLate = errors.New("throttle: the slot lies behind the deadline")

// refundTimeout bounds how long Wait tries to give a slot back after its context has ended.
const refundTimeout = time.Second

// Wait blocks until the action may start: it reserves the earliest slot that every rule allows,
// and returns nil when the slot has come.
//
// It returns an error wrapping [ErrTooLate] at once if the slot lies behind the deadline
// of ctx, one wrapping [ErrDropped] if a rule refuses the action, and that of ctx if it
// ends before the slot. In all of these cases the action must not start, and what was
// reserved is given back.
func (l *Limiter) Wait(ctx context.Context, cost int, subjects ...Subject) error {
	if deadline, ok := ctx.Deadline(); ok {
		// Reserved and given back, a slot far ahead would be in the way of others.
		d, err := l.Peek(ctx, cost, subjects...)
		if err != nil {
			return err
		}
		if d.late(deadline) {
			return d.tooLate()
		}
	}
	d, err := l.Reserve(ctx, cost, subjects...)
	if err != nil {
		return err
	}
	if d.Outcome == Dropped {
		return fmt.Errorf("%w by %s of %q", ErrDropped, d.Rule, d.Subject)
	}
	if deadline, ok := ctx.Deadline(); ok && d.late(deadline) {
		return l.giveBack(ctx, d, d.tooLate())
	}
	timer := time.NewTimer(d.RetryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return l.giveBack(ctx, d, fmt.Errorf("throttle: waiting for %s of %q: %w", d.Rule, d.Subject, ctx.Err()))
	}
}

// late reports whether the slot lies behind a deadline.
func (d Decision) late(deadline time.Time) bool {
	return d.Outcome == Deferred && time.Until(deadline) < d.RetryAfter
}

func (d Decision) tooLate() error {
	return fmt.Errorf("%w: %s of %q has it in %v", ErrTooLate, d.Rule, d.Subject, d.RetryAfter)
}

// giveBack refunds a slot that is not used, and returns why.
func (l *Limiter) giveBack(ctx context.Context, d Decision, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	return errors.Join(why, l.Refund(ctx, d))
}
