package notify

import (
	"sync"
	"time"
)

// routes remember, by name, which ways to a provider are closed, and until when. Jobs
// that were pulled before a pause began would otherwise still be sent during it.
type routes struct {
	mu    sync.Mutex
	until map[string]time.Time
	last  map[string]time.Duration // the last wait that we chose ourselves
}

func newRoutes() *routes {
	return &routes{until: make(map[string]time.Time), last: make(map[string]time.Duration)}
}

// closed returns until when a route is closed, and the zero time if it is open.
func (r *routes) closed(name string, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.until[name]
	if ok && !until.After(now) {
		delete(r.until, name)
		return time.Time{}
	}
	return until
}

// close closes a route for that long, or, if after is 0, twice as long as the last time,
// and returns until when it is closed. Of several answers to requests that were under
// way together the longest wait counts.
func (r *routes) close(name string, now time.Time, after time.Duration) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	until := r.until[name]
	if after == 0 {
		if until.After(now) {
			return until
		}
		after = max(firstWait, min(2*r.last[name], longestWait))
		r.last[name] = after
	}
	if at := now.Add(after); at.After(until) {
		until = at
	}
	r.until[name] = until
	return until
}
