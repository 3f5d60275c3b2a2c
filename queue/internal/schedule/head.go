package schedule

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A Head is one of the first jobs of a lane, as it was read. A job under a collapse key may be another one by the time
// at which it is claimed.
type Head struct {
	Entry string             // as it stands in the lane: the job, or "=" and a collapse key
	Job   string             // the job
	Env   *envelope.Envelope // read; nil if it cannot be
	Err   error              // why not
}

// Collapse returns the collapse key under which the job is kept apart, if it is.
func (h Head) Collapse() (key string, folded bool) {
	if len(h.Entry) > 0 && h.Entry[0] == '=' {
		return h.Entry[1:], true
	}
	return "", false
}

// Begin returns how the entry begins: what tells it from any other.
func (h Head) Begin() string {
	if len(h.Entry) > 0 && h.Entry[0] == '=' {
		return h.Entry
	}
	return h.Entry[:min(len(h.Entry), envelope.StampLen)]
}
