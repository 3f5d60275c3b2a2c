package queue

import (
	"crypto/rand"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// spillAbove is the size of a payload in bytes above which it is kept apart: lanes are
// read often, and moved.
const spillAbove = 4 << 10

// seal returns a job as Redis keeps it, without the instant of its offer, which is
// Redis's to say.
func seal(j Job) *envelope.Envelope {
	e := &envelope.Envelope{
		ID: j.ID, Cost: max(1, j.Cost), Deadline: envelope.Micros(j.StartBy), Until: envelope.Micros(j.FinishBy),
		MaxAttempts: j.MaxAttempts, Priority: rank(j.Priority), CollapseKey: j.CollapseKey, DigestKey: j.DigestKey,
		Timeout: j.Timeout, Headers: j.Headers, Keys: j.Keys, Costs: j.Costs, Callback: j.Callback.text(), Type: j.Type, Payload: string(j.Payload),
	}
	if e.MaxAttempts == 0 {
		e.MaxAttempts = envelope.DefaultAttempts
	}
	if len(j.Payload) > spillAbove {
		e.Payload, e.Spilled = "", rand.Text()
	}
	return e
}

// open returns the job that an envelope of a lane is. A payload that is kept apart is
// missing.
func open(lane store.Lane, e *envelope.Envelope) Job {
	j := Job{
		ID: e.Name(), Tenant: lane.Tenant, User: lane.User, Type: e.Type, Headers: e.Headers, Keys: e.Keys, Costs: e.Costs, Cost: e.Cost,
		StartBy: envelope.Instant(e.Deadline), FinishBy: envelope.Instant(e.Until), Priority: priorityOf(e.Priority),
		CollapseKey: e.CollapseKey, DigestKey: e.DigestKey, MaxAttempts: e.MaxAttempts, Timeout: e.Timeout, Callback: readCallback(e.Callback),
	}
	if e.Payload != "" {
		j.Payload = []byte(e.Payload)
	}
	return j
}

// rank returns a priority as lanes know it: 0 is served first.
func rank(p Priority) int { return envelope.Normal - int(p) }

func priorityOf(rank int) Priority { return Priority(envelope.Normal - rank) }
