package human

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
)

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
		"was cancelled at 2026-03-01T08:00:00.000Z by ann: twice; it is dropped when its turn comes": {State: "cancelled", History: queue.JobHistory{Asked: at, By: queue.Note{Author: "ann", Reason: "twice"}}},
		"was dropped at 2026-03-01T08:00:00.000Z: purged by ann: they left":                          {State: "dropped", History: queue.JobHistory{Dropped: at, Reason: queue.ReasonPurged, Asked: at, By: queue.Note{Author: "ann", Reason: "they left"}}},
		"was dropped at 2026-03-01T08:00:01.000Z: cancelled at 2026-03-01T08:00:00.000Z":             {State: "dropped", History: queue.JobHistory{Dropped: at.Add(time.Second), Reason: queue.ReasonCancelled, Asked: at}},
		"was dropped at 2026-03-01T08:00:00.000Z: rule (window 5/24h)":                               {State: "dropped", History: queue.JobHistory{Dropped: at, Reason: queue.ReasonRule, Rule: "window 5/24h"}},
	} {
		if got := WhatJob(s); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
}
