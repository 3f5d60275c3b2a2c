package jobline

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
)

// written is a line without its payload; At says when it was offered.
type written struct {
	At          time.Time `json:"at,omitzero"`
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
	DigestKey   string    `json:"digest_key,omitempty"`
	MaxRetry    *int      `json:"max_retry,omitempty"`
	Timeout     string    `json:"timeout,omitempty"`

	Headers map[string]string `json:"headers,omitempty"`
	Keys    map[string]string `json:"keys,omitempty"`
	Costs   map[string]int    `json:"costs,omitempty"`

	Zone  string `json:"zone,omitempty"`
	Quiet string `json:"quiet,omitempty"`

	Callback *callback `json:"callback,omitempty"`
}

type callback struct {
	URL    string `json:"url"`
	Secret string `json:"secret,omitempty"`
}

// Record returns a job as a line with the instant of its offer, "at", and without its payload, headers and callback:
// what plan replays.
func Record(o simulate.Offer) []byte {
	line := lineOf(o.Job)
	line.At, line.Headers, line.Callback = o.At.UTC(), nil, nil
	return line.text()
}

// Write returns a valid job as a line without its payload, for [Parse]. Names that are not UTF-8 are not what they were.
func Write(j queue.Job) []byte { return lineOf(j).text() }

func lineOf(j queue.Job) written {
	line := written{
		Tenant: j.Tenant, User: j.User, Type: j.Type, ID: j.ID, NotBefore: inUTC(j.NotBefore), Deadline: inUTC(j.StartBy),
		FinishBy: inUTC(j.FinishBy), CollapseKey: j.CollapseKey, DigestKey: j.DigestKey, Headers: j.Headers, Keys: j.Keys, Costs: j.Costs, Zone: j.Zone, Quiet: j.Quiet,
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
	if j.Callback != (queue.Callback{}) {
		line.Callback = &callback{j.Callback.URL, j.Callback.Secret}
	}
	if j.Timeout > 0 {
		line.Timeout = j.Timeout.String()
	}
	return line
}

func (line written) text() []byte {
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
