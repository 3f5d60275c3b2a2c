package worker

import (
	"slices"
	"sync"
	"time"
)

// What a worker tells of itself with its beats: waterclock doctor and the dashboard show who starts jobs late. Lateness
// is the time from a job's slot to the start of its handler. A worker that is often late is short of CPU or of
// connections, or its machine's timers are coarse; its jobs come back and start elsewhere, so its users feel little of
// it.

// delays are how long after their slots the newest jobs have started: those of the last minute,
// and no more than a thousand. A job that was returned since it would have been late counts with its lateness.
type delays struct {
	mu   sync.Mutex
	kept []delay // a ring
	next int
}

// delay is how long after its slot a job has started, and when that was.
type delay struct {
	at   time.Time
	took time.Duration
}

const (
	delaysKept = 1000
	delaysFor  = time.Minute
)

// add notes one delay.
func (d *delays) add(took time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.kept) < delaysKept {
		d.kept = append(d.kept, delay{time.Now(), took})
		return
	}
	d.kept[d.next] = delay{time.Now(), took}
	d.next = (d.next + 1) % delaysKept
}

// p99 returns the delay that 99 of 100 jobs do not exceed; 0 if nothing has started in the last minute. It sorts all of
// them, which a beat can afford.
func (d *delays) p99() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []time.Duration
	for _, one := range d.kept {
		if time.Since(one.at) < delaysFor {
			all = append(all, one.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99-1)/100]
}
