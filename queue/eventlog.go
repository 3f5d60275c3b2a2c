package queue

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// An event is what a worker tells of an attempt. Package watch reads it.
type event struct {
	Kind    string        `json:"event"`
	At      time.Time     `json:"at"`
	ID      string        `json:"id,omitempty"`
	Tenant  string        `json:"tenant,omitempty"`
	User    string        `json:"user,omitempty"`
	Type    string        `json:"type,omitempty"`
	Attempt int           `json:"attempt,omitempty"`
	Offered time.Time     `json:"offered,omitzero"`
	Ready   time.Time     `json:"ready,omitzero"`
	Waited  WaitedFor     `json:"waited,omitzero"`
	Took    time.Duration `json:"took_ns,omitempty"`
	Error   string        `json:"error,omitempty"`
	Host    string        `json:"host,omitempty"`
	Missed  int           `json:"missed,omitempty"`
}

// An eventLog tells of a worker's attempts while somebody listens: ten times a second, and at
// most mostEvents each time. Otherwise it costs a look at a number.
type eventLog struct {
	store *store.Store
	host  string
	until atomic.Int64  // until when a Tail listens, in unix nanoseconds of this machine; 0 if none does
	wake  chan struct{} // there is something to tell

	mu     sync.Mutex
	events []event
	missed int
}

const (
	mostEvents = 500
	tellEvery  = 100 * time.Millisecond
)

func newEventLog(s *store.Store, host string) *eventLog {
	return &eventLog{store: s, host: host, wake: make(chan struct{}, 1)}
}

// listened notes for how long somebody listens yet.
func (l *eventLog) listened(left time.Duration) {
	until := int64(0)
	if left > 0 {
		until = time.Now().Add(left).UnixNano()
	}
	l.until.Store(until)
}

// listens reports whether somebody does: of every job it is asked twice.
func (l *eventLog) listens() bool {
	until := l.until.Load()
	return until > 0 && time.Now().UnixNano() <= until
}

// note keeps an event to be told.
func (l *eventLog) note(e event) {
	e.Host, e.Error = l.host, clip(e.Error)
	l.mu.Lock()
	if len(l.events) < mostEvents {
		l.events = append(l.events, e)
	} else {
		l.missed++
	}
	l.mu.Unlock()
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// during tells of what is noted while run runs, which may outlive ctx: jobs end when their worker
// was told to stop. What cannot be told is left out.
func (l *eventLog) during(ctx context.Context, run func(context.Context) error) error {
	ended, told := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(told)
		l.run(context.WithoutCancel(ctx), ended)
	}()
	err := run(ctx)
	close(ended)
	<-told
	return err
}

// run tells of what was noted until the end, and then once more.
func (l *eventLog) run(ctx context.Context, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			l.tell(ctx)
			return
		case <-l.wake:
		}
		select {
		case <-ended:
		case <-time.After(tellEvery):
		}
		l.tell(ctx)
	}
}

// tell tells of what was noted since the last time.
func (l *eventLog) tell(ctx context.Context) {
	l.mu.Lock()
	events := l.events
	if l.missed > 0 {
		events = append(events, event{Kind: "missed", At: events[len(events)-1].At, Host: l.host, Missed: l.missed})
	}
	l.events, l.missed = nil, 0
	l.mu.Unlock()
	text, err := json.Marshal(events)
	if err != nil || len(events) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = l.store.TellEvents(ctx, string(text)) // an event that cannot be sent is lost
}

// claimed tells what a job has waited for, if somebody listens.
func (l *eventLog) claimed(s *schedule.Start) {
	if !l.listens() {
		return
	}
	e := s.Head.Env
	l.note(event{
		Kind: "claimed", At: envelope.Instant(s.Slot), ID: e.Name(), Tenant: s.Lane.Tenant, User: s.Lane.User, Type: e.Type, Attempt: e.Failures + 1,
		Offered: envelope.Instant(max(e.Offered(), e.Revived)), Ready: envelope.Instant(e.Since()), Waited: waitedFor(&s.Wait),
	})
}

func waitedFor(w *schedule.Wait) WaitedFor {
	return WaitedFor{micros(w.Rules), micros(w.Pauses), micros(w.Concurrency), micros(w.Places), w.Blame.Rule}
}

// started tells that an attempt begins, if somebody listens.
func (l *eventLog) started(info *Info) {
	if !l.listens() {
		return
	}
	l.note(event{
		Kind: "started", At: info.Started, ID: info.ID, Tenant: info.Tenant, User: info.User, Type: info.Type, Attempt: info.Attempt,
	})
}

// ended tells how an attempt has ended, at what the clock says, if somebody listens.
func (l *eventLog) ended(info *Info, o *worker.Outcome, clock func() int64) {
	if !l.listens() {
		return
	}
	at := time.UnixMicro(clock())
	l.note(event{
		Kind: eventOf(o), At: at, ID: info.ID, Tenant: info.Tenant, User: info.User, Type: info.Type, Attempt: info.Attempt,
		Took: at.Sub(info.Started), Error: o.Error,
	})
}

// eventOf returns what an outcome is as an event.
func eventOf(o *worker.Outcome) string {
	switch {
	case o.Pause != nil:
		return "paused"
	case o.SentOn > 0:
		return "sent_on"
	case o.Failed:
		return "failed"
	}
	return "done"
}
