package notify

import (
	"sync"
	"time"
)

// backoffs remember how long devices that ask for time have been waited for: each time
// twice as long, until they get a message.
type backoffs struct {
	mu   sync.Mutex
	last map[Target]time.Duration
}

const maxBackoffs = 10_000 // devices remembered

func newBackoffs() *backoffs { return &backoffs{last: make(map[Target]time.Duration)} }

// next returns how long to wait for a device that asks for so long.
func (b *backoffs) next(to Target, asked time.Duration) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if asked == 0 {
		asked = firstWait
	}
	wait := max(asked, min(2*b.last[to.device()], longestWait))
	if len(b.last) >= maxBackoffs {
		clear(b.last)
	}
	b.last[to.device()] = wait
	return wait
}

func (b *backoffs) clear(to Target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.last, to.device())
}
