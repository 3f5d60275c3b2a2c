package human

import (
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A rule of a limit by name is shown with the name, and with the values for which it counts, if it has some.
func TestWhyNamesTheLimit(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	limit := func(key, rule string, running int) queue.RuleState {
		return queue.RuleState{Scope: queue.ScopeLimit, Name: "domain", Key: key, Rule: rule, Running: running, Oldest: now.Add(-31 * time.Second)}
	}
	for _, test := range []struct {
		rule        queue.RuleState
		scope, want string
	}{
		{limit("gmail.com", "leak 10/s", 0), "limit domain (gmail.com)", "it waits for leak 10/s of limit domain (gmail.com)."},
		{limit("", "leak 10/s", 0), "limit domain", "it waits for leak 10/s of limit domain."},
		{limit("a\x1b[2J", "leak 10/s", 0), `limit domain (a\x1b[2J)`, `leak 10/s of limit domain (a\x1b[2J).`},
		{limit("gmail.com", "paused", 0), "limit domain (gmail.com)", "The limit domain (gmail.com) is paused; the next one starts in 1m"},
		{limit("gmail.com", "concurrency 2", 2), "limit domain (gmail.com)", "waits for concurrency 2 of limit domain (gmail.com): 2 jobs run, the oldest for 31s"},
		{limit("", "concurrency 1", 1), "limit domain", "waits for concurrency 1 of limit domain: 1 job runs, for 31s"},
		{queue.RuleState{Scope: queue.ScopeUser, Rule: "window 10/1m"}, "user", "it waits for the user's rule window 10/1m."},
		{queue.RuleState{Scope: queue.ScopeTenant, Rule: "concurrency 2", Running: 2, Oldest: now.Add(-time.Second)}, "tenant", "waits for the tenant's limit concurrency 2: 2 jobs run"},
	} {
		e := queue.Explanation{Now: now, Workers: 1, Waiting: 3, TenantWaiting: 5, Estimate: queue.Estimate{Start: now.Add(time.Minute)}, Binding: &test.rule}
		if got := Scope(&test.rule); got != test.scope {
			t.Errorf("scope %q, want %q", got, test.scope)
		}
		if got := Why(e, "shop", "ann"); !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// Where no worker lives nothing may start now, whatever the rules say.
func TestWhyWithoutWorkers(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC)
	window := queue.RuleState{Scope: queue.ScopeUser, Rule: "window 10/1m", When: now.Add(time.Minute)}
	for _, test := range []struct {
		workers int
		binding *queue.RuleState
		want    string
	}{
		{1, nil, "Waiting: 1 job of shop / ann, 1 of the tenant. The next one may start now, when its turn comes and a place is free."},
		{0, nil, "Waiting: 1 job of shop / ann, 1 of the tenant. Limits let the next one start now, but no worker lives: nothing starts until one does."},
		{1, &window, "Waiting: 1 job of shop / ann, 1 of the tenant. The next one starts in 1m: it waits for the user's rule window 10/1m."},
		{0, &window, "Waiting: 1 job of shop / ann, 1 of the tenant. The next one starts in 1m: it waits for the user's rule window 10/1m. No worker lives: nothing starts until one does."},
	} {
		e := queue.Explanation{Now: now, Workers: test.workers, Waiting: 1, TenantWaiting: 1, Binding: test.binding}
		e.Start = now
		if test.binding != nil {
			e.Start = test.binding.When
		}
		if got := Why(e, "shop", "ann"); got != test.want {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

// What waits for hours, or for a new day, is told by the clock that counts there.
func TestWhyTellsTheLocalTime(t *testing.T) {
	now := time.Date(2026, 11, 22, 8, 0, 0, 0, time.UTC) // 17:00 in Tokyo
	for _, test := range []struct {
		start      time.Time
		zone, want string
	}{
		{now.Add(15 * time.Hour), "Asia/Tokyo", "waits until 08:00 in Asia/Tokyo, tomorrow, in 15h"},
		{now.Add(time.Hour + 30*time.Second), "Europe/Paris", "waits until 10:00:30 in Europe/Paris, today"},
		{now.Add(72 * time.Hour), "UTC", "waits until 08:00 in UTC, on Wednesday, 25 November 2026"},
	} {
		rule := queue.RuleState{Scope: queue.ScopeLimit, Name: "marketing", Rule: "hours 08:00-21:00 " + test.zone, Zone: test.zone}
		e := queue.Explanation{Now: now, Workers: 1, Waiting: 3, TenantWaiting: 5, Estimate: queue.Estimate{Start: test.start}, Binding: &rule}
		if got := Why(e, "shop", "ann"); !strings.Contains(got, test.want) || !strings.Contains(got, "it waits for hours 08:00-21:00 "+test.zone+" of limit marketing") {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}
