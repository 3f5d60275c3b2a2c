package queue

import (
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A JobHistory is what became of a job with the caller's own ID, as far as workers have noted it: see
// [WorkerConfig].History. It is about the first 19 attempts, and the last. What a worker noted less than a tenth of a second
// before it was killed is missing. All times are on Redis's clock.
type JobHistory struct {
	Offered  time.Time    `json:"offered,omitzero"` // when it was offered, or revived
	Begin    time.Time    `json:"begin,omitzero"`   // from when on it was to start: its offer, or its NotBefore
	Attempts []JobAttempt `json:"attempts,omitempty"`

	Dropped time.Time `json:"dropped,omitzero"` // when its turn came, and it was dropped
	Reason  Reason    `json:"reason,omitempty"` // why
	Rule    string    `json:"rule,omitempty"`   // and by which rule

	Asked time.Time `json:"asked,omitzero"` // when somebody cancelled or purged it
	By    Note      `json:"by,omitzero"`    // who, and why
}

// A JobAttempt is one attempt of a job. Times that are not known are zero.
type JobAttempt struct {
	Attempt int       `json:"attempt"`          // its number, from 1
	Ready   time.Time `json:"ready,omitzero"`   // from when on it waited for its limits and a place: after its backoff
	Waited  WaitedFor `json:"waited,omitzero"`  // what for, until it could start
	Started time.Time `json:"started,omitzero"` // when its handler began. Of an attempt that has not ended: when it was to
	Ended   time.Time `json:"ended,omitzero"`   // when its handler returned

	// Outcome is "done", "failed", "dead" (the last one failed), "paused" (the handler asked for a pause), "sent_on" (another
	// worker gets it, see [SendOn]) or "interrupted" (its worker stopped); empty for an attempt that has not ended.
	Outcome string `json:"outcome,omitempty"`
	Error   string `json:"error,omitempty"` // its first 300 bytes
}

// WaitedFor says what an attempt waited for.
type WaitedFor struct {
	Rules       time.Duration `json:"rules_ns"`
	Pauses      time.Duration `json:"pauses_ns"`
	Concurrency time.Duration `json:"concurrency_ns"` // until concurrency limits were reached no more
	Places      time.Duration `json:"places_ns"`      // for a free place of a worker, and its turn

	// Rule names the rule or the concurrency limit that held it back for longest, or "paused"; empty if none did.
	Rule string `json:"rule,omitempty"`
}

func historyOf(p store.Past) JobHistory {
	h := JobHistory{
		Offered: envelope.Instant(p.Offered), Begin: envelope.Instant(p.Begin),
		Dropped: envelope.Instant(p.Dropped), Reason: Reason(p.Reason), Rule: p.Rule,
		Asked: envelope.Instant(p.Asked), By: Note{p.By.Author, p.By.Reason},
	}
	for _, a := range p.Attempts {
		attempt := JobAttempt{
			Attempt: a.Number, Ready: envelope.Instant(a.Ready), Started: envelope.Instant(a.Started), Ended: envelope.Instant(a.Ended),
			Waited:  WaitedFor{micros(a.Rules), micros(a.Pauses), micros(a.Concurrency), micros(a.Places), a.Rule},
			Outcome: a.Outcome, Error: a.Error,
		}
		if a.Ended == 0 {
			attempt.Started = envelope.Instant(a.Slot)
		}
		h.Attempts = append(h.Attempts, attempt)
	}
	return h
}

func micros(us int64) time.Duration { return time.Duration(us) * time.Microsecond }
