package notify

import (
	"sync"
	"time"
)

// backoffs remember until when devices that asked for time get nothing: each time twice
// as long, until they get a message.
type backoffs struct {
	mu   sync.Mutex
	last map[Target]backoff
}

type backoff struct {
	wait  time.Duration
	until time.Time
}

const maxBackoffs = 10_000 // devices remembered

func newBackoffs() *backoffs { return &backoffs{last: make(map[Target]backoff)} }

// until returns until when a device gets nothing, and the zero time if it may.
func (b *backoffs) until(to Target, now time.Time) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.last[to.device()].until; at.After(now) {
		return at
	}
	return time.Time{}
}

// next returns how long to wait for a device that asks for so long.
func (b *backoffs) next(to Target, now time.Time, asked time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked == 0 {
		asked = firstWait
	}
	wait := max(asked, min(2*b.last[to.device()].wait, longestWait))
	if len(b.last) >= maxBackoffs {
		clear(b.last)
	}
	b.last[to.device()] = backoff{wait, now.Add(wait)}
	return wait
}

func (b *backoffs) clear(to Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, to.device())
}
