package runner

import (
	"context"
	"time"
)

// persist asks Redis something that may be asked any number of times. While no answer comes it
// asks again, by another connection: one that has died without a word would be waited for longer
// than a lease lasts.
func persist[T any](ctx context.Context, patience time.Duration, ask func(ctx context.Context) (T, error)) (answer T, err error) {
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

// patience is how long a beat or the end of a job waits for its answer before it is sent again:
// many times in a lease, and longer than an answer usually takes.
func (r *Runner) patience() time.Duration {
	_, doubt := r.clock.now()
	return max(r.cfg.Lease/20, min(2*doubt, r.cfg.Lease/5))
}
