package queue

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

var errProvider = errors.New("429 Too Many Requests")

func TestPausesOfHandlers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	tests := map[string]struct {
		pause Pause
		end   time.Time
	}{
		"until":            {Pause{Scope: ScopeUser, Until: in(time.Minute), Cause: errProvider}, in(time.Minute)},
		"for":              {Pause{Scope: ScopeQueue, For: time.Hour}, in(time.Hour)},
		"until and for":    {Pause{Scope: ScopeTenant, Until: in(time.Minute), For: time.Hour}, in(time.Minute)},
		"in the past":      {Pause{Scope: ScopeTenant, Until: in(-time.Hour)}, in(time.Second)},
		"the zero value":   {Pause{}, in(time.Second)},
		"short":            {Pause{Scope: ScopeTenant, For: time.Millisecond}, in(time.Second)},
		"negative":         {Pause{Scope: ScopeTenant, For: -time.Hour}, in(time.Second)},
		"for ever":         {Pause{Scope: ScopeTenant, For: 1<<63 - 1}, in(longestPause)},
		"beyond all times": {Pause{Scope: ScopeTenant, Until: time.Unix(1<<60, 0)}, in(longestPause)},
	}
	for name, test := range tests {
		for _, err := range []error{test.pause, &test.pause, fmt.Errorf("sending: %w", test.pause), RefundUser{test.pause}, &RefundUser{&test.pause}} {
			got, ok := answer[Pause](err)
			if !ok || got != test.pause {
				t.Errorf("%s: %+v, %v; want %+v", name, got, ok, test.pause)
			}
			if end := got.end(now); !end.Equal(test.end) {
				t.Errorf("%s: ends %v after now, want %v", name, end.Sub(now), test.end.Sub(now))
			}
			if errors.Is(err, errProvider) != (test.pause.Cause != nil) {
				t.Errorf("%s: the cause is not in the chain", name)
			}
		}
	}
	for _, err := range []error{nil, errProvider, Retry{After: time.Hour, Cause: errProvider}, RefundUser{}} {
		if pause, ok := answer[Pause](err); ok || pause != (Pause{}) {
			t.Errorf("%v asks for %+v", err, pause)
		}
	}
}

// What a handler asks for is found in its error with errors.As, beside all the rest.
func TestAnswersAreFound(t *testing.T) {
	t.Parallel()
	want := Retry{After: time.Hour, Yield: true, Cause: errProvider}
	for _, err := range []error{want, fmt.Errorf("sending: %w", want), RefundUser{want}, fmt.Errorf("sending: %w", RefundUser{fmt.Errorf("x: %w", want)})} {
		var retry Retry
		if !errors.As(err, &retry) || retry != want || !errors.Is(err, errProvider) {
			t.Errorf("%v: %+v", err, retry)
		}
	}
	if retry, ok := answer[Retry](RefundUser{errProvider}); ok || retry != (Retry{}) {
		t.Errorf("nobody asked for %+v", retry)
	}
}

// A refund stands beside what became of the attempt, and nil is success.
func TestRefundUser(t *testing.T) {
	t.Parallel()
	if err := error(RefundUser{}); !errors.Is(err, asynq.RevokeTask) {
		t.Error("a refund with nil does not end the job")
	}
	if err := error(RefundUser{errProvider}); errors.Is(err, asynq.RevokeTask) || !errors.Is(err, errProvider) {
		t.Error("a refund with an error ends the job, or loses the error")
	}
	for _, err := range []error{errProvider, nil} {
		if _, ok := answer[RefundUser](err); ok {
			t.Error("a refund that nobody asked for")
		}
	}
}

func TestTextsOfAnswers(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	for want, err := range map[string]error{
		"queue: tenant paused until 2026-11-22T08:00:00Z: 429 Too Many Requests": Pause{Scope: ScopeTenant, Until: at, Cause: errProvider},
		"queue: user paused for 30s":       Pause{For: 30 * time.Second},
		"queue: to be attempted again":     Retry{After: time.Second},
		"429 Too Many Requests":            RefundUser{Retry{After: time.Second, Cause: errProvider}},
		"queue: the user has seen nothing": RefundUser{},
	} {
		if err.Error() != want {
			t.Errorf("%q, want %q", err, want)
		}
	}
}
