package worker

import (
	"slices"
	"sync/atomic"
	"time"
)

// What a worker tells of itself with its beats: waterclock doctor and the dashboard show who starts jobs late. Lateness
// is the time from a job's slot to the start of its handler. A worker that is often late is short of CPU or of
// connections, or its machine's timers are coarse; its jobs come back and start elsewhere, so its users feel little of
// it.

// delays are how long after their slots the newest jobs have started: those of the last minute,
// and no more than a thousand. A job that was returned since it would have been late counts with its lateness.
// It is a ring without a lock, since a start must not wait for one (job.go).
type delays struct {
	kept [delaysKept]atomic.Pointer[delay]
	next atomic.Uint64 // how many there have been
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
	d.kept[(d.next.Add(1)-1)%delaysKept].Store(&delay{time.Now(), took})
}

// p99 returns the delay that 99 of 100 jobs do not exceed; 0 if nothing has started in the last minute. It sorts all of
// them, which a beat can afford.
func (d *delays) p99() time.Duration {
	var all []time.Duration
	for i := range d.kept {
		if one := d.kept[i].Load(); one != nil && time.Since(one.at) < delaysFor {
			all = append(all, one.took)
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)*99-1)/100]
}
