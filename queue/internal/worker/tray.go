package worker

import (
	"sync"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A notice of a leader's own job does not go through Redis, since the reader is here. If the term ends before it
// has settled the notice, it is posted for the next leader. The tray is closed before that: a job that ends while the
// term does writes either into the tray, and the term posts it, or to Redis itself.

// A Tray takes notices of this worker's own jobs for its own term. It is open while the worker leads. Any goroutine may
// use it. What is left in it when it is closed stays until Take.
type Tray struct {
	mu      sync.Mutex
	open    bool
	notices []store.Notice
}

// Put puts a notice in, and reports whether the tray is open: otherwise the caller writes the notice to Redis.
func (t *Tray) Put(notice store.Notice) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open {
		t.notices = append(t.notices, notice)
	}
	return t.open
}

// SetOpen opens the tray, or closes it.
func (t *Tray) SetOpen(open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open = open
}

// Take empties the tray.
func (t *Tray) Take() []store.Notice {
	t.mu.Lock()
	defer t.mu.Unlock()
	notices := t.notices
	t.notices = nil
	return notices
}
