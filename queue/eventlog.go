package queue

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// An eventLog tells of a worker's attempts while somebody listens: ten times a second, and at
// most mostEvents each time. Otherwise it costs a look at a number.
type eventLog struct {
	store *store.Store
	host  string
	until atomic.Int64  // unix nanoseconds, here, until when somebody listens
	wake  chan struct{} // there is something to tell

	mu     sync.Mutex
	events []Event
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
	if left > 0 {
		l.until.Store(time.Now().Add(left).UnixNano())
	}
}

// note keeps an event to be told, if somebody listens.
func (l *eventLog) note(e Event) {
	if time.Now().UnixNano() > l.until.Load() {
		return
	}
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

// run tells of what was noted until ctx ends. What cannot be told is left out.
func (l *eventLog) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		}
		select {
		case <-ctx.Done():
		case <-time.After(tellEvery):
		}
		l.tell(context.WithoutCancel(ctx))
	}
}

// tell tells of what was noted since the last time.
func (l *eventLog) tell(ctx context.Context) {
	l.mu.Lock()
	events := l.events
	if l.missed > 0 {
		events = append(events, Event{Kind: EventMissed, At: events[len(events)-1].At, Host: l.host, Missed: l.missed})
	}
	l.events, l.missed = nil, 0
	l.mu.Unlock()
	text, err := json.Marshal(events)
	if err != nil || len(events) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_ = l.store.TellEvents(ctx, string(text)) // whoever listens sees that nothing comes
}

// started notes that an attempt begins.
func (l *eventLog) started(info Info) {
	l.note(Event{
		Kind: EventStarted, At: info.Started, ID: info.ID, Tenant: info.Tenant, User: info.User, Type: info.Type, Attempt: info.Attempt,
	})
}

// ended notes how an attempt has ended.
func (l *eventLog) ended(info Info, kind EventKind, at time.Time, text string) {
	l.note(Event{
		Kind: kind, At: at, ID: info.ID, Tenant: info.Tenant, User: info.User, Type: info.Type, Attempt: info.Attempt,
		Took: at.Sub(info.Started), Error: text,
	})
}
