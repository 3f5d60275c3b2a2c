package throttle_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// Of many who wait each starts at a slot of its own, and those whose deadline is nearer
// give up at once and leave no gap.
func TestWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter, began := throttle.New(store), time.Now()
			subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Leak(1, sec)}}
			for i := range 10 {
				if i%3 == 2 {
					hurried, cancel := context.WithTimeout(t.Context(), 500*ms)
					before := time.Now()
					err := limiter.Wait(hurried, 1, subject)
					if !errors.Is(err, throttle.ErrTooLate) || time.Since(before) > 0 {
						t.Errorf("%s: a deadline before the slot: %v after %v", name, err, time.Since(before))
					}
					cancel()
				}
				if err := limiter.Wait(t.Context(), 1, subject); err != nil {
					t.Fatal(err)
				}
				if at := time.Since(began).Round(ms); at != time.Duration(i)*sec {
					t.Errorf("%s: start %d after %v", name, i, at)
				}
			}
		}
	})
}

// Who gives up while waiting gives the slot back.
func TestWaitGivesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter := throttle.New(store)
			subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(1, 10*sec)}}
			ask(t, limiter, "allow", 1, subject)
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(3*sec, cancel)
			if err := limiter.Wait(ctx, 1, subject); !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v, want it canceled", name, err)
			}
			if d := ask(t, limiter, "peek", 1, subject); d.RetryAfter.Round(ms) != 7*sec {
				t.Errorf("%s: the slot was not given back: %+v", name, d)
			}
			dropping := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(1, 10*sec).OrDrop()}}
			if err := limiter.Wait(t.Context(), 1, dropping); !errors.Is(err, throttle.ErrDropped) {
				t.Errorf("%s: %v, want it dropped", name, err)
			}
			if err := limiter.Wait(t.Context(), 2, subject); !errors.Is(err, throttle.ErrImpossibleCost) {
				t.Errorf("%s: %v, want the cost impossible", name, err)
			}
		}
	})
}

// Whoever waits exactly RetryAfter is admitted, also where the refused tries count.
func TestRetryAfterCountsTheRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter := throttle.New(store)
			for _, rules := range [][]throttle.Rule{
				{throttle.Window(1, 10*ms).CountingDropped()},
				{throttle.Leak(3, 10*ms).CountingDropped(), throttle.Spacing(4 * ms).CountingDropped()},
				{throttle.TokenBucket(1, 10*ms, 2).CountingDropped()},
				{throttle.SlidingCounter(2, 10*ms, 2).CountingDropped()},
				{throttle.FixedWindow(1, 10*ms).CountingDropped(), throttle.Window(2, 15*ms)},
			} {
				subject := throttle.Subject{Key: rules[0].String(), Rules: rules}
				refused := false
				for i := range 20 {
					d := ask(t, limiter, "allow", 1, subject)
					if refused && d.Outcome != throttle.Admitted {
						t.Errorf("%s, %v: try %d after waiting: %+v", name, rules, i, d)
					}
					refused = d.Outcome == throttle.Deferred
					time.Sleep(d.RetryAfter)
				}
			}
		}
	})
}

// A leak keeps its rate when its state expires at the very slot.
func TestLeakAcrossExpiry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for name, store := range stores(t) {
			limiter := throttle.New(store)
			subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Leak(3, 10*ms)}}
			began := time.Now()
			for range 3 * 100 {
				d := ask(t, limiter, "reserve", 1, subject)
				time.Sleep(time.Until(d.Slot))
			}
			d := ask(t, limiter, "peek", 1, subject)
			if took := d.Slot.Sub(began); took != sec {
				t.Errorf("%s: 300 at 300 a second took %v", name, took)
			}
		}
	})
}

// The zero decision and the zero outcome let nothing start, an empty key is an error, and
// a cost of 0 is 1.
func TestZeroValues(t *testing.T) {
	t.Parallel()
	if outcome := (throttle.Decision{}).Outcome; outcome != throttle.Undecided {
		t.Errorf("the zero decision is %v", outcome)
	}
	limiter := throttle.New(throttle.NewMemoryStore())
	subject := throttle.Subject{Key: "u", Rules: []throttle.Rule{throttle.Window(3, time.Hour)}}
	if d := ask(t, limiter, "allow", 0, subject); d.Remaining != 2 {
		t.Errorf("cost 0: %+v", d)
	}
	if d, err := limiter.AllowMany(t.Context(), throttle.Request{Subjects: []throttle.Subject{subject}}); err != nil || d[0].Remaining != 1 {
		t.Errorf("cost 0 of many: %+v, %v", d, err)
	}
	d, err := limiter.Allow(t.Context(), 1, subject, throttle.Subject{Rules: subject.Rules})
	if err == nil || d.Outcome != throttle.Undecided {
		t.Errorf("an empty key: %+v, %v", d, err)
	}
	if d := ask(t, limiter, "peek", 1, subject); d.Remaining != 1 {
		t.Errorf("a refused request has spent: %+v", d)
	}
}
