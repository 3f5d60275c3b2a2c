package dashboard

import (
	"sync"
	"time"
)

// Rates are how fast counters of tenants grow that somebody looks at: from the differences
// between looks. They know as many tenants as ratesKept; the zero value knows none.
type rates struct {
	mu   sync.Mutex
	seen map[string]counted
}

type counted struct {
	n, before   int64
	at, earlier time.Time
}

const (
	ratesKept = 256
	rateOver  = 5 * time.Second // a rate is that of so long, at least
)

// of notes a counter and returns its rate; negative if it was not seen a while ago.
func (r *rates) of(name string, n int64) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	c, known := r.seen[name]
	switch {
	case !known || n < c.n || now.Sub(c.at) > time.Minute:
		r.forget(now)
		c = counted{n, n, now, now}
	case now.Sub(c.at) >= rateOver:
		c = counted{n, c.n, now, c.at}
	}
	if r.seen == nil {
		r.seen = make(map[string]counted)
	}
	r.seen[name] = c
	seconds := now.Sub(c.earlier).Seconds()
	if seconds < 1 {
		return -1
	}
	return float64(n-c.before) / seconds
}

// forget makes room.
func (r *rates) forget(now time.Time) {
	for name, c := range r.seen {
		if len(r.seen) < ratesKept {
			return
		}
		if now.Sub(c.at) > time.Minute || len(r.seen) >= 2*ratesKept {
			delete(r.seen, name)
		}
	}
}
