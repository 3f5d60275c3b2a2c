package faults

import (
	"context"
	"sync"
	"time"
)

const (
	beat   = 2 * time.Millisecond   // between two beats of a pulse
	recent = 200 * time.Millisecond // what late looks back on
)

// A pulse measures how late a process runs what is due: a goroutine that wants to wake at
// every beat, and knows nothing of the queue. On two cores with a dozen processes that is
// how much later than it was decided a start may be written down.
type pulse struct {
	mu    sync.Mutex
	next  time.Time // when the coming beat is due
	lates []lateness
}

// lateness is a beat that came late.
type lateness struct {
	at time.Time
	by time.Duration
}

func newPulse() *pulse { return &pulse{next: time.Now()} }

// run beats until ctx ends.
func (p *pulse) run(ctx context.Context) {
	for {
		p.beat()
		select {
		case <-ctx.Done():
			return
		case <-time.After(beat):
		}
	}
}

func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.lates = append(p.lates, lateness{now, now.Sub(p.next)})
	for now.Sub(p.lates[0].at) > recent {
		p.lates = p.lates[1:]
	}
	p.next = now.Add(beat)
}

// late returns by how much the latest beat of the recent past was late, the one that is
// overdue included.
func (p *pulse) late() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	worst := max(0, time.Since(p.next))
	for _, l := range p.lates {
		worst = max(worst, l.by)
	}
	return worst
}
