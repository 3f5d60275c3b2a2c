package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// The schedule of Standard Webhooks: each attempt's delay, up to a tenth more, and not
// before the endpoint's own Retry-After. Then the message is dead.
func TestWebhookSchedule(t *testing.T) {
	w, err := NewWebhook(WebhookConfig{})
	must(t, err)
	defer w.Close()
	to := Target{Token: "https://hooks.example/a"}
	answer := errors.New("answered 500")
	for i, want := range []time.Duration{
		5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour, 20 * time.Hour, 24 * time.Hour,
	} {
		a := webhookAttempt{to: to, n: i + 1}
		for _, action := range []Action{Retry, Defer} {
			o := w.consequence(t.Context(), Outcome{Action: action, Err: answer}, a)
			if o.Action != Retry || o.After < want || o.After > want+want/10 {
				t.Errorf("after attempt %d: %+v, want a retry after %v", i+1, o, want)
			}
		}
		o := w.consequence(t.Context(), Outcome{Action: Defer, Err: answer, After: 48 * time.Hour}, a)
		if o.After != 48*time.Hour {
			t.Errorf("after attempt %d, and Retry-After two days: %v", i+1, o.After)
		}
	}
	o := w.consequence(t.Context(), Outcome{Action: Retry, Err: answer}, webhookAttempt{to: to, n: 10})
	if o.Action != Drop || !errors.Is(o.Err, answer) || !errors.Is(o.Err, errGivenUp) {
		t.Errorf("after the last attempt: %+v, want it dead", o)
	}
	if spread := map[time.Duration]bool{}; true {
		for range 50 {
			spread[jittered(time.Hour)] = true
		}
		if len(spread) < 10 {
			t.Errorf("messages that failed together are repeated together: %v", spread)
		}
	}
}

// An endpoint that gone is said of is the app's to delete, unless it is the configured one.
func TestConfiguredEndpointIsKept(t *testing.T) {
	w, err := NewWebhook(WebhookConfig{Redis: redistest.Mini(t)})
	must(t, err)
	defer w.Close()
	gone := Outcome{Action: Forget, Err: errors.New("answered 410")}
	if o := w.consequence(t.Context(), gone, webhookAttempt{}); o.Action != Retry {
		t.Errorf("the configured endpoint: %+v, want a retry", o)
	}
	to := Target{Token: "https://hooks.example/a"}
	if o := w.consequence(t.Context(), gone, webhookAttempt{to: to}); o.Action != Forget {
		t.Errorf("a target: %+v, want it forgotten", o)
	}
	s, err := w.health.read(t.Context(), to)
	if err != nil || !s.disabledFor(to) {
		t.Errorf("afterwards %+v, %v; want it disabled", s, err)
	}
	to.Registered = time.Now().Add(time.Minute)
	if s.disabledFor(to) {
		t.Error("an endpoint that was registered again is still disabled")
	}
}
