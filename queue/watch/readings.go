package watch

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// readings are what a collector has read of its queues, and when. What else it remembers is guarded by their mutex, too.
type readings struct {
	mu    sync.Mutex
	taken time.Time
	last  []prometheus.Metric
}

// collectEvery is for how long a collector repeats what it has read: scraping it more often
// costs Redis nothing more.
const collectEvery = 5 * time.Second

// collectPatience is how long one reading may take.
const collectPatience = 3 * time.Second

// collect sends the readings of all queues. If the last ones are too old, read adds new ones of each queue before.
func (r *readings) collect(to chan<- prometheus.Metric, watchers []*Watcher, read func(context.Context, *Watcher)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.taken) >= collectEvery {
		r.last = r.last[:0]
		ctx, cancel := context.WithTimeout(context.Background(), collectPatience)
		defer cancel()
		for _, w := range watchers {
			read(ctx, w)
		}
		r.taken = time.Now()
	}
	for _, m := range r.last {
		to <- m
	}
}
