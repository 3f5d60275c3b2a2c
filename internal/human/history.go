package human

import (
	"fmt"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// WhatJob says of a job that does not wait what it is: done, or dropped and why.
func WhatJob(s queue.JobState) string {
	h := s.History
	switch n := len(h.Attempts); {
	case !h.Dropped.IsZero() && s.State == "dropped":
		text := "was dropped at " + Instant(h.Dropped) + ": " + string(h.Reason)
		if h.Rule != "" {
			text += " (" + Clean(h.Rule) + ")"
		}
		if h.Reason == queue.ReasonCancelled && !h.Asked.IsZero() {
			return text + " at " + Instant(h.Asked) + by(h.By)
		}
		return text + by(h.By)
	case s.State == "cancelled" && !h.Asked.IsZero():
		return "was cancelled at " + Instant(h.Asked) + by(h.By) + "; it is dropped when its turn comes"
	case n > 0 && s.State == "started" && h.Attempts[n-1].Outcome == "done":
		return "is done"
	}
	return "is " + s.State
}

// by says who did something, and why, as far as that is known: " by ann: their endpoint is gone".
func by(n queue.Note) string {
	text := ""
	if n.Author != "" {
		text = " by " + Clean(n.Author)
	}
	if n.Reason != "" {
		text += ": " + Clean(n.Reason)
	}
	return text
}

// Offered says when a job was offered, and from when on it was to start; "" if that is not known.
func Offered(h queue.JobHistory) string {
	switch {
	case h.Offered.IsZero():
		return ""
	case h.Begin.After(h.Offered):
		return fmt.Sprintf("It was offered at %s, to start at %s at the earliest.", Instant(h.Offered), Instant(h.Begin))
	}
	return fmt.Sprintf("It was offered at %s.", Instant(h.Offered))
}

// Instant writes an instant, in milliseconds of UTC.
func Instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z07:00") }

// WaitedFor says how long an attempt has waited, and what for: "19m12s: 19m10s for rules (window 10/1m), 2s for places".
func WaitedFor(a queue.JobAttempt) string {
	w := a.Waited
	if a.Ready.IsZero() {
		return "for an unknown time"
	}
	var parts []string
	for _, part := range []struct {
		took time.Duration
		what string
	}{{w.Rules, "rules"}, {w.Pauses, "pauses"}, {w.Concurrency, "concurrency"}, {w.Places, "places"}} {
		if part.took >= time.Millisecond {
			parts = append(parts, Span(part.took)+" for "+part.what)
		}
	}
	text := Span(w.Rules + w.Pauses + w.Concurrency + w.Places)
	switch len(parts) {
	case 0:
		return text
	case 1:
		text = parts[0]
	default:
		text += ": " + strings.Join(parts, ", ")
	}
	if w.Rule != "" && w.Rule != "paused" {
		text += " (" + Clean(w.Rule) + ")"
	}
	return text
}

// Ended says how an attempt has ended: "done after 80ms".
func Ended(a queue.JobAttempt) string {
	if a.Outcome == "" {
		return "has not ended, or its end was not noted"
	}
	text := a.Outcome + " after " + Span(a.Ended.Sub(a.Started))
	if a.Error != "" {
		text += ": " + Clean(a.Error)
	}
	return text
}
