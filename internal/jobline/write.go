package jobline

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// recorded is a line that says when it was offered, without its payload.
type recorded struct {
	At          time.Time `json:"at"`
	Tenant      string    `json:"tenant"`
	User        string    `json:"user"`
	Type        string    `json:"type"`
	ID          string    `json:"id,omitempty"`
	Cost        int       `json:"cost,omitempty"`
	NotBefore   time.Time `json:"not_before,omitzero"`
	Deadline    time.Time `json:"deadline,omitzero"`
	FinishBy    time.Time `json:"finish_by,omitzero"`
	Priority    string    `json:"priority,omitempty"`
	CollapseKey string    `json:"collapse_key,omitempty"`
	MaxRetry    *int      `json:"max_retry,omitempty"`
	Timeout     string    `json:"timeout,omitempty"`

	Keys  map[string]string `json:"keys,omitempty"`
	Costs map[string]int    `json:"costs,omitempty"`
}

// Record returns a job as a line with the instant of its offer, "at", and without its payload:
// what plan replays.
func Record(o simulate.Offer) []byte {
	j := o.Job
	line := recorded{
		At: o.At.UTC(), Tenant: j.Tenant, User: j.User, Type: j.Type, ID: j.ID, NotBefore: inUTC(j.NotBefore), Deadline: inUTC(j.StartBy),
		FinishBy: inUTC(j.FinishBy), CollapseKey: j.CollapseKey, Keys: j.Keys, Costs: j.Costs,
	}
	if j.Cost > 1 {
		line.Cost = j.Cost
	}
	if j.Priority != queue.Normal {
		line.Priority = j.Priority.String()
	}
	if retries := j.MaxAttempts - 1; j.MaxAttempts > 0 {
		line.MaxRetry = &retries
	}
	if j.Timeout > 0 {
		line.Timeout = j.Timeout.String()
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(line) // it can always be written
	return text.Bytes()
}

func inUTC(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
