package watch

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

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
// second, an [EventMissed] says how many were left out. A Tail has a connection of its own to
// each partition.
func (w *Watcher) Tail(ctx context.Context, each func(Event) error) error {
	read := func() func(store.Telling) error { return func(t store.Telling) error { return tell(t, each) } }
	return w.follow(ctx, following{(*store.Store).FollowEvents, store.ToEvents, read})
}

// tell calls each with the events of what is told.
func tell(t store.Telling, each func(Event) error) error {
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
}

func dropEvent(r store.Record) Event {
	e := Event{Kind: EventDropped, At: envelope.Instant(r.At), Tenant: r.Lane.Tenant, User: r.Lane.User, Reason: queue.Reason(r.Reason), Rule: r.Rule}
	if job, ok := envelope.Head(r.Job); ok {
		e.ID, e.Type, e.Attempt = job.Name(), job.Type, job.Failures
	}
	return e
}

// Offers calls each with the jobs that are offered to the queue, from now on, in their order: in a
// queue with partitions in that of each partition. It does so until ctx ends or each returns an error,
// which Offers returns. The jobs come without payloads and headers. Jobs that are dropped at once are
// among them, duplicates are not. Missed is how many offers before these were not read in time. Offers
// has a connection of its own to each partition.
func (w *Watcher) Offers(ctx context.Context, each func(offered []simulate.Offer, missed int) error) error {
	read := func() func(store.Telling) error {
		known := int64(-1)
		return func(t store.Telling) error {
			missed := 0
			if n := t.Total - int64(len(t.Offers)); known >= 0 && n > known {
				missed = int(n - known)
			}
			known = t.Total
			return each(offersOf(t), missed)
		}
	}
	return w.follow(ctx, following{(*store.Store).FollowOffers, store.ToOffers, read})
}

// offersOf returns the offers of what is told.
func offersOf(t store.Telling) (all []simulate.Offer) {
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
	return all
}

// errDivided says that the queue has several partitions by now. Before that nobody had used it.
var errDivided = errors.New("watch: the queue was divided")

// A following is what reads what is told in the partitions of a queue.
type following struct {
	open func(*store.Store, context.Context) (*store.Follower, error)
	what store.Listening
	read func() func(store.Telling) error // returns what takes it, anew for each partition; one of these functions runs at a time
}

// follow reads what is told in each partition until ctx ends.
func (w *Watcher) follow(ctx context.Context, f following) error {
	for {
		all, err := w.each(ctx)
		if err != nil {
			return err
		}
		var mu sync.Mutex
		var stopped error // what one of the functions has returned
		group, inGroup := errgroup.WithContext(ctx)
		for _, l := range all {
			read := f.read()
			group.Go(func() error {
				return w.followOne(inGroup, l, f, func(t store.Telling) error {
					mu.Lock()
					defer mu.Unlock()
					if stopped == nil {
						stopped = read(t)
					}
					return stopped
				})
			})
		}
		if err := group.Wait(); !errors.Is(err, errDivided) {
			return err
		}
	}
}

// followOne reads what is told in one partition until ctx ends, and says again and again that somebody listens.
func (w *Watcher) followOne(ctx context.Context, l *look, f following, each func(store.Telling) error) error {
	failed := func(err error) error {
		if ctx.Err() != nil {
			return nil // that is why
		}
		return l.wrapped("listening to", err)
	}
	follower, err := f.open(l.store, ctx)
	if err != nil {
		return failed(err)
	}
	defer follower.Close()
	said := time.Time{}
	for ctx.Err() == nil {
		if time.Since(said) >= listenAgain {
			if all, err := w.each(ctx); err == nil && len(all) != l.store.Of {
				return errDivided
			}
			if err := l.store.Listen(ctx, f.what, listenFor); err != nil {
				return failed(err)
			}
			said = time.Now()
		}
		told, err := follower.Next(ctx, listenLook)
		if err != nil {
			return failed(err)
		}
		for _, t := range told {
			if err := each(t); err != nil {
				return err
			}
		}
	}
	return nil
}
