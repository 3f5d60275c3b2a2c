package callback

import (
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The types of callbacks' jobs.
const (
	Done    = "job.done"    // its handler has returned nil
	Dropped = "job.dropped" // it never ran: "reason" and "rule" say why
	Dead    = "job.dead"    // it has no attempts left: "error" is the last one
)

// jobOf returns the job that tells of an end.
func (l *line) jobOf(end store.End) (queue.Job, error) {
	head, _ := envelope.Head(end.Job)
	url, secret, _ := strings.Cut(head.Callback, " ")
	data := map[string]string{
		"queue": l.queue, "id": head.Name(), "type": head.Type, "offered": instant(head.Offered()), "ended": instant(end.At),
	}
	kind := Done
	switch end.Stream {
	case store.EndDropped:
		kind, data["reason"] = Dropped, end.Reason
		if end.Rule != "" {
			data["rule"] = end.Rule
		}
	case store.EndDead:
		kind, data["error"], data["attempts"] = Dead, end.Error, strconv.Itoa(head.Failures)
	default:
		data["attempts"] = strconv.Itoa(head.Failures + 1)
	}
	job, err := notify.NewJob(end.Lane.Tenant, end.Lane.User, notify.Message{
		Data: data, Targets: []notify.Target{{Provider: "webhook", Token: url, Secret: secret}},
	})
	job.ID, job.Type = l.idOf(end), kind
	return job, err
}

func instant(micros int64) string { return time.UnixMicro(micros).UTC().Format(time.RFC3339Nano) }
