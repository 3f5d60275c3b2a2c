// Package retry asks Redis again where it has not answered: [Persist] while no answer comes,
// [Trouble] where the answer is an error.
//
//	trouble := retry.NewTrouble(log, "renewing the lease")
//	for wait := trouble.After(renew()); wait > 0; wait = trouble.After(renew()) {
//		retry.Pause(ctx, wait)
//	}
package retry

import (
	"context"
	"time"
)

// Persist asks Redis something that may be asked any number of times. While no answer comes it
// asks again, by another connection: one that has died without a word would be waited for longer
// than a lease lasts. A try that was given up may go on after Persist has returned: ask must not
// use variables that change.
func Persist[T any](ctx context.Context, patience time.Duration, ask func(ctx context.Context) (T, error)) (answer T, err error) {
	const most = 16 // questions at once
	type result struct {
		answer T
		err    error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, pending := make(chan result, most), 0
	again := time.NewTicker(patience)
	defer again.Stop()
	for {
		if pending < most {
			pending++
			go func() {
				answer, err := ask(ctx)
				results <- result{answer, err}
			}()
		}
		for waits := true; waits; {
			select {
			case <-again.C:
				waits = false
			case r := <-results:
				if pending--; r.err == nil || pending == 0 {
					return r.answer, r.err
				}
			case <-ctx.Done():
				return answer, ctx.Err()
			}
		}
	}
}

// Pause waits for d, or until ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// Signal sets a flag that a channel of capacity 1 is.
func Signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
