package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

var errProvider = errors.New("429 Too Many Requests")

func TestPauseOf(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	tests := map[string]struct {
		err  error
		want Pause
		end  time.Time
	}{
		"user until":       {PauseUser(in(time.Minute), errProvider), Pause{ScopeUser, in(time.Minute), 0, errProvider}, in(time.Minute)},
		"tenant until":     {PauseTenant(in(time.Minute), nil), Pause{ScopeTenant, in(time.Minute), 0, nil}, in(time.Minute)},
		"queue until":      {PauseQueue(in(time.Minute), nil), Pause{ScopeQueue, in(time.Minute), 0, nil}, in(time.Minute)},
		"user for":         {PauseUserFor(time.Hour, errProvider), Pause{ScopeUser, time.Time{}, time.Hour, errProvider}, in(time.Hour)},
		"tenant for":       {PauseTenantFor(time.Hour, nil), Pause{ScopeTenant, time.Time{}, time.Hour, nil}, in(time.Hour)},
		"queue for":        {PauseQueueFor(time.Hour, nil), Pause{ScopeQueue, time.Time{}, time.Hour, nil}, in(time.Hour)},
		"in the past":      {PauseTenant(in(-time.Hour), nil), Pause{ScopeTenant, in(-time.Hour), 0, nil}, in(time.Second)},
		"the zero time":    {PauseTenant(time.Time{}, nil), Pause{ScopeTenant, time.Time{}, 0, nil}, in(time.Second)},
		"short":            {PauseTenantFor(time.Millisecond, nil), Pause{ScopeTenant, time.Time{}, time.Millisecond, nil}, in(time.Second)},
		"negative":         {PauseTenantFor(-time.Hour, nil), Pause{ScopeTenant, time.Time{}, -time.Hour, nil}, in(time.Second)},
		"for ever":         {PauseTenantFor(1<<63-1, nil), Pause{ScopeTenant, time.Time{}, 1<<63 - 1, nil}, in(longestPause)},
		"beyond all times": {PauseTenant(time.Unix(1<<60, 0), nil), Pause{ScopeTenant, time.Unix(1<<60, 0), 0, nil}, in(longestPause)},
	}
	for name, test := range tests {
		for _, err := range []error{test.err, fmt.Errorf("sending: %w", test.err), RefundUser(test.err)} {
			got, ok := PauseOf(err)
			if !ok || got != test.want {
				t.Errorf("%s: %+v, %v; want %+v", name, got, ok, test.want)
			}
			if end := got.end(now); !end.Equal(test.end) {
				t.Errorf("%s: ends %v after now, want %v", name, end.Sub(now), test.end.Sub(now))
			}
			if errors.Is(err, errProvider) != (test.want.Cause != nil) {
				t.Errorf("%s: the cause is not in the chain", name)
			}
		}
	}
	for _, err := range []error{nil, errProvider, RetryAfter(time.Hour, errProvider), RefundUser(nil)} {
		if pause, ok := PauseOf(err); ok || pause != (Pause{}) {
			t.Errorf("%v asks for %+v", err, pause)
		}
	}
}

func TestRetryAfterOf(t *testing.T) {
	for _, err := range []error{RetryAfter(time.Hour, errProvider), fmt.Errorf("x: %w", RetryAfter(time.Hour, nil)), RefundUser(RetryAfter(time.Hour, nil))} {
		if d, ok := RetryAfterOf(err); !ok || d != time.Hour {
			t.Errorf("%v: %v, %v", err, d, ok)
		}
	}
	if d, ok := RetryAfterOf(errProvider); ok || d != 0 {
		t.Errorf("%v, %v", d, ok)
	}
}

// A refund stands beside what became of the attempt, and nil is success.
func TestRefundUser(t *testing.T) {
	if err := RefundUser(nil); !RefundsUser(err) || !errors.Is(err, asynq.RevokeTask) {
		t.Error("a refund with nil does not end the job")
	}
	if err := RefundUser(errProvider); !RefundsUser(err) || errors.Is(err, asynq.RevokeTask) || !errors.Is(err, errProvider) {
		t.Error("a refund with an error ends the job, or loses the error")
	}
	if RefundsUser(errProvider) || RefundsUser(nil) {
		t.Error("a refund that nobody asked for")
	}
}

// Who yields says so beside what becomes of the attempt.
func TestYields(t *testing.T) {
	err := fmt.Errorf("sending: %w", RefundUser(Yield(RetryAfter(time.Hour, errProvider))))
	if d, ok := RetryAfterOf(err); !Yields(err) || !RefundsUser(err) || !ok || d != time.Hour || !errors.Is(err, errProvider) {
		t.Errorf("%v has lost a part", err)
	}
	if Yields(errProvider) || Yields(nil) || Yields(RefundUser(nil)) {
		t.Error("nobody has yielded")
	}
}

func TestTextsOfAnswers(t *testing.T) {
	at := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	for want, err := range map[string]error{
		"queue: tenant paused until 2026-11-22T08:00:00Z: 429 Too Many Requests": PauseTenant(at, errProvider),
		"queue: user paused for 30s":                   PauseUserFor(30*time.Second, nil),
		"queue: to be attempted again":                 RetryAfter(time.Second, nil),
		"429 Too Many Requests":                        RefundUser(RetryAfter(time.Second, errProvider)),
		"queue: the user has seen nothing":             RefundUser(nil),
		"queue: to be attempted again at low priority": Yield(nil),
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
