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
	var any bounds
	if deadline, ok := ctx.Deadline(); ok {
		any = near(0, time.Until(deadline))
	}
	d, err := l.acquire(ctx, any, cost, subjects)
	switch {
	case err != nil:
		return err
	case d.Outcome == Dropped:
		return fmt.Errorf("%w by %s of %q", ErrDropped, d.Rule, d.Subject)
	case d.Outcome == Deferred:
		return fmt.Errorf("%w: %s of %q has it in %v", ErrTooLate, d.Rule, d.Subject, d.RetryAfter)
	}
	return nil
}

// Acquire takes the earliest slot that every rule allows, if that is at most `within` ahead, and returns when it has come: the action
// is Admitted then. Otherwise nothing is taken, and Acquire returns at once what [Limiter.Peek] would.
//
// If ctx ends before the slot has come, it is given back, and the error is that of ctx.
func (l *Limiter) Acquire(ctx context.Context, within time.Duration, cost int, subjects ...Subject) (Decision, error) {
	return l.acquire(ctx, near(0, within), cost, subjects)
}

func (l *Limiter) acquire(ctx context.Context, b bounds, cost int, subjects []Subject) (Decision, error) {
	r := newRequest(verbReserve, cost, subjects)
	r.bounds = b
	d, err := l.decide(ctx, r)
	if err != nil || d.Outcome != Deferred || !d.Spent() {
		return d, err
	}
	timer := time.NewTimer(d.RetryAfter)
	defer timer.Stop()
	select {
	case <-timer.C:
		d.Outcome, d.RetryAfter = Admitted, 0
		return d, nil
	case <-ctx.Done():
		return Decision{}, l.giveBack(ctx, d, fmt.Errorf("throttle: waiting for %s of %q: %w", d.Rule, d.Subject, ctx.Err()))
	}
}

// giveBack refunds a slot that is not used, and returns why.
func (l *Limiter) giveBack(ctx context.Context, d Decision, why error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refundTimeout)
	defer cancel()
	return errors.Join(why, l.Refund(ctx, d))
}
