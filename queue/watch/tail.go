package watch

import (
	"context"
	"encoding/json"
	"time"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/simulate"
)

// An EventKind says what has happened.
type EventKind string

const (
	EventClaimed EventKind = "claimed" // an attempt got its slot: what it has waited for until then
	EventStarted EventKind = "started" // it begins
	EventDone    EventKind = "done"    // an attempt has ended well, and the job is done
	EventFailed  EventKind = "failed"  // an attempt has failed; the job is attempted again, or dead
	EventPaused  EventKind = "paused"  // an attempt that does not count: its handler has asked for a pause
	EventDropped EventKind = "dropped" // the job never runs
	EventMissed  EventKind = "missed"  // events of a worker were left out: Missed says how many
)

// An Event is something that happened to a job.
type Event struct {
	Kind    EventKind `json:"event"`
	At      time.Time `json:"at"` // on Redis's clock
	ID      string    `json:"id,omitempty"`
	Tenant  string    `json:"tenant,omitempty"`
	User    string    `json:"user,omitempty"`
	Type    string    `json:"type,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	// Of EventClaimed alone: when the job was offered, or revived; from when on it waited for its limits and a place, which
	// is later after a backoff or a NotBefore; and what for. At is its slot. Of a job with a collapse key there is no such event.
	Offered time.Time       `json:"offered,omitzero"`
	Ready   time.Time       `json:"ready,omitzero"`
	Waited  queue.WaitedFor `json:"waited,omitzero"`

	Took   time.Duration `json:"took_ns,omitempty"` // the duration of the attempt that has ended
	Error  string        `json:"error,omitempty"`   // the beginning of the error: of a failed attempt, or the cause of a pause
	Reason queue.Reason  `json:"reason,omitempty"`  // why it was dropped
	Rule   string        `json:"rule,omitempty"`    // by which rule
	Host   string        `json:"host,omitempty"`    // of the worker
	Missed int           `json:"missed,omitempty"`  // how many events were left out, of EventMissed alone
}

// The times of a Tail: how long a request to the workers holds, how often it is repeated, and for
// how long one read of Redis blocks.
const (
	listenFor   = 15 * time.Second
	listenAgain = 5 * time.Second
	listenLook  = 500 * time.Millisecond
)

// Tail calls each with the events of the queue's jobs, from now on, until ctx ends or each
// returns an error, which Tail returns. Workers report starts and ends only while a Tail runs,
// and begin within a quarter of their lease. If a worker has more than some thousand events a
// second, an [EventMissed] says how many were left out.
func (w *Watcher) Tail(ctx context.Context, each func(Event) error) error {
	follower, err := w.store.FollowEvents(ctx)
	if err != nil {
		return w.failed("listening to", err)
	}
	defer follower.Close()
	return w.follow(ctx, follower, store.ToEvents, func(t store.Telling) error {
		if t.Drop != nil {
			return each(dropEvent(*t.Drop))
		}
		var events []Event
		if json.Unmarshal([]byte(t.Events), &events) != nil {
			return nil // of another version
		}
		for _, e := range events {
			if err := each(e); err != nil {
				return err
			}
		}
		return nil
	})
}

func dropEvent(r store.Record) Event {
	e := Event{Kind: EventDropped, At: envelope.Instant(r.At), Tenant: r.Lane.Tenant, User: r.Lane.User, Reason: queue.Reason(r.Reason), Rule: r.Rule}
	if job, ok := envelope.Head(r.Job); ok {
		e.ID, e.Type, e.Attempt = job.Name(), job.Type, job.Failures
	}
	return e
}

// Offers calls each with the jobs that are offered to the queue, from now on, in their order,
// until ctx ends or each returns an error, which Offers returns. The jobs come without payloads
// and headers. Jobs that are dropped at once are among them, duplicates are not. Missed is how
// many offers before these were not read in time.
func (w *Watcher) Offers(ctx context.Context, each func(offered []simulate.Offer, missed int) error) error {
	follower, err := w.store.FollowOffers(ctx)
	if err != nil {
		return w.failed("listening to", err)
	}
	defer follower.Close()
	known := int64(-1)
	return w.follow(ctx, follower, store.ToOffers, func(t store.Telling) error {
		missed := 0
		if n := t.Total - int64(len(t.Offers)); known >= 0 && n > known {
			missed = int(n - known)
		}
		known = t.Total
		var all []simulate.Offer
		for _, o := range t.Offers {
			if head, ok := envelope.Head(o.Job); ok {
				job := queue.Job{
					ID: head.ID, Tenant: o.Lane.Tenant, User: o.Lane.User, Type: head.Type, Cost: head.Cost, NotBefore: envelope.Instant(head.NotBefore),
					StartBy: envelope.Instant(head.Deadline), FinishBy: envelope.Instant(head.Until), Priority: queue.Priority(envelope.Normal - head.Priority),
					CollapseKey: head.CollapseKey, DigestKey: head.DigestKey, MaxAttempts: head.MaxAttempts, Timeout: head.Timeout, Keys: head.Keys, Costs: head.Costs,
				}
				if job.MaxAttempts == envelope.DefaultAttempts {
					job.MaxAttempts = 0
				}
				all = append(all, simulate.Offer{At: envelope.Instant(o.At), Job: job})
			}
		}
		return each(all, missed)
	})
}

// follow reads what is told until ctx ends, and says again and again that somebody listens.
func (w *Watcher) follow(ctx context.Context, f *store.Follower, what store.Listening, each func(store.Telling) error) error {
	said := time.Time{}
	for ctx.Err() == nil {
		if time.Since(said) >= listenAgain {
			if err := w.store.Listen(ctx, what, listenFor); err != nil {
				return w.stopped(ctx, err)
			}
			said = time.Now()
		}
		told, err := f.Next(ctx, listenLook)
		if err != nil {
			return w.stopped(ctx, err)
		}
		for _, t := range told {
			if err := each(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// stopped is nil where the end of ctx is why something failed.
func (w *Watcher) stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return w.failed("listening to", err)
}
