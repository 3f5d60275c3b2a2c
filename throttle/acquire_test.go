package throttle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// Who acquires has a slot when Acquire returns, or nothing was taken: its slot is too far, a rule refuses it, or it has given up.
func TestAcquire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter, began := throttle.New(store), time.Now()
			subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Leak(1, sec)}}
			acquire := func(ctx context.Context, within time.Duration) (throttle.Decision, error) {
				return limiter.Acquire(ctx, within, 1, subject)
			}
			for i := range 10 {
				if i > 0 {
					if d, err := acquire(t.Context(), 900*ms); err != nil || d.Outcome != throttle.Deferred || d.Spent() || d.RetryAfter.Round(ms) != sec {
						t.Errorf("%s: too far: %+v, %v", name, d, err)
					}
					hurried, cancel := context.WithTimeout(t.Context(), 100*ms)
					if d, err := acquire(hurried, 2*sec); !errors.Is(err, context.DeadlineExceeded) || d.Spent() {
						t.Errorf("%s: given up: %+v, %v", name, d, err)
					}
					cancel()
				}
				d, err := acquire(t.Context(), 2*sec)
				if err != nil || d.Outcome != throttle.Admitted || d.RetryAfter > 0 || !d.Spent() {
					t.Errorf("%s: start %d: %+v, %v", name, i, d, err)
				}
				if at := time.Since(began).Round(ms); at != time.Duration(i)*sec {
					t.Errorf("%s: start %d after %v", name, i, at)
				}
			}
			dropping := throttle.Subject{Key: "d", Rules: []throttle.Rule{throttle.Window(1, 10*sec).OrDrop()}}
			for i, want := range []throttle.Outcome{throttle.Admitted, throttle.Dropped} {
				if d, err := limiter.Acquire(t.Context(), sec, 1, dropping); err != nil || d.Outcome != want {
					t.Errorf("%s: of a window of one, %d: %+v, %v", name, i, d, err)
				}
			}
		}
	})
}
