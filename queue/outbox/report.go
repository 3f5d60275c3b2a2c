package outbox

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// count registers the counter of a relay's rows.
func (r *Relay) count(registerer prometheus.Registerer) error {
	r.rows = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "waterclock_outbox_rows_total", Help: "Rows by how they ended: accepted, replaced (accepted in the place of a job with its collapse key), duplicate (its ID was accepted before), dropped, invalid, unknown.",
	}, []string{"queue", "outcome"})
	for _, queue := range r.config.Queues { // an increase from 0 is one
		for _, outcome := range []string{"accepted", "replaced", "duplicate", "dropped", "invalid", "unknown"} {
			r.rows.WithLabelValues(queue, outcome)
		}
	}
	if registerer == nil {
		return nil
	}
	var already prometheus.AlreadyRegisteredError
	if err := registerer.Register(r.rows); errors.As(err, &already) {
		return fmt.Errorf("outbox: the registerer has a relay's metrics already: %w", err)
	} else if err != nil {
		return fmt.Errorf("outbox: registering metrics: %w", err)
	}
	return nil
}

// told is how many refused rows of a round are logged one by one.
const told = 3

// report counts how rows have ended, and tells of those that were refused.
func (f *feed) report(ends []ending) {
	refused := 0
	for _, e := range ends {
		f.rows.WithLabelValues(f.queue, cmp.Or(e.outcome, string(e.state))).Inc()
		if e.state == Accepted {
			continue
		}
		if refused++; refused <= told {
			f.log.Warn("a row of the outbox is "+string(e.state), "id", e.id, "reason", e.reason)
		}
		if f.config.Refused != nil {
			f.config.Refused(Refusal{Queue: f.queue, ID: e.id, State: e.state, Reason: e.reason, Job: e.job})
		}
	}
	if refused > told {
		f.log.Warn("more rows of the outbox are refused; the table says why", "rows", refused-told)
	}
}

// storable returns a text as every column of text takes it: UTF-8, without zero bytes, and not endless.
func storable(text string) any {
	if text == "" {
		return nil
	}
	const most = 1000
	return strings.ToValidUTF8(strings.ReplaceAll(text[:min(len(text), most)], "\x00", "␀"), "\ufffd")
}
