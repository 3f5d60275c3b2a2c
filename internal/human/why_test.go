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
		e := queue.Explanation{Now: now, Waiting: 3, TenantWaiting: 5, Estimate: queue.Estimate{Start: now.Add(time.Minute)}, Binding: &test.rule}
		if got := Scope(&test.rule); got != test.scope {
			t.Errorf("scope %q, want %q", got, test.scope)
		}
		if got := Why(e, "shop", "ann"); !strings.Contains(got, test.want) {
			t.Errorf("%q, want %q", got, test.want)
		}
	}
}

func TestWaitedFor(t *testing.T) {
	ready := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	for want, a := range map[string]queue.JobAttempt{
		"for an unknown time":                  {},
		"696µs":                                {Ready: ready, Waited: queue.WaitedFor{Places: 696 * time.Microsecond, Rule: "leak 5000/s"}},
		"6s for rules (spacing 3s)":            {Ready: ready, Waited: queue.WaitedFor{Rules: 6 * time.Second, Places: 20 * time.Microsecond, Rule: "spacing 3s"}},
		"1m30s: 1m for pauses, 30s for places": {Ready: ready, Waited: queue.WaitedFor{Pauses: time.Minute, Places: 30 * time.Second, Rule: "paused"}},
		"19m12s: 19m10s for rules, 2s for concurrency (a: window 10/1m)": {Ready: ready, Waited: queue.WaitedFor{Rules: 1150 * time.Second, Concurrency: 2 * time.Second, Rule: "a: window 10/1m"}},
	} {
		if got := WaitedFor(a); got != want {
			t.Errorf("%+v: %q, want %q", a.Waited, got, want)
		}
	}
}

func TestWhatJob(t *testing.T) {
	at := time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)
	attempts := func(outcomes ...string) (h queue.JobHistory) {
		for _, o := range outcomes {
			h.Attempts = append(h.Attempts, queue.JobAttempt{Outcome: o})
		}
		return h
	}
	for want, s := range map[string]queue.JobState{
		"is started":   {State: "started", History: attempts("failed", "")},
		"is done":      {State: "started", History: attempts("failed", "done")},
		"is dead":      {State: "dead", History: attempts("done", "dead")},
		"is cancelled": {State: "cancelled"},
		"is dropped":   {State: "dropped"},
		"was dropped at 2026-03-01T08:00:00.000Z: rule (window 5/24h)": {State: "dropped", History: queue.JobHistory{Dropped: at, Reason: queue.ReasonRule, Rule: "window 5/24h"}},
	} {
		if got := WhatJob(s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
