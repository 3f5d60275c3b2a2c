package runner

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A clock estimates Redis's clock, the only one that counts, from the replies of scripts.
// Between replies it runs on the monotonic clock, so that a worker's wall clock may be
// wrong, or jump, without effect.
//
// A reply that tells Redis's time T, and was asked for at a and arrived at b, proves
// that Redis's clock is not before T at b and not after T + (b-a). The estimate is the
// best such lower bound: it never runs ahead, so nothing starts early. How much further
// Redis's clock may be is the doubt.
type clock struct {
	mu    sync.Mutex
	start time.Time     // local instant that offsets count from
	bound time.Duration // Redis's clock minus local time, at least
	width time.Duration // and at most this much more
	at    time.Duration // when that was observed, local time
	wall  time.Duration // the same instant by the wall clock
	known bool

	setBack func(by time.Duration) // is told that Redis's clock was set back; may be nil
}

// steppedBack is by how much Redis's clock has to be earlier than it was to be said so.
const steppedBack = time.Second

// drift is how much faster than Redis's the local clock may run: it is taken off the
// estimate as that grows old.
const drift = 100e-6

// unknown is the doubt of a clock that knows nothing.
const unknown = 1000 * time.Hour

// slept is how far the wall clock may move on without the monotonic one, which stands
// still while a machine is suspended.
const slept = time.Second / 2

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) wallAt(t time.Time) time.Duration { return t.Round(0).Sub(c.start.Round(0)) }

// observe learns from one reply.
func (c *clock) observe(r store.Reading) {
	if r.Now == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	local := r.Answered.Sub(c.start)
	low := time.Duration(r.Now)*time.Microsecond - local
	high := low + r.Answered.Sub(r.Asked)
	aged := c.aged(local)
	most := c.bound + c.width + (c.bound - aged) // it may have drifted the other way
	if back := aged - high; c.known && back > steppedBack && c.setBack != nil && !c.suspended(r.Answered) {
		c.setBack(back)
	}
	// What both say holds, unless they exclude each other: then Redis's clock was set, or the
	// machine has slept.
	if c.known && !c.suspended(r.Answered) && aged <= high+time.Microsecond && low <= most+time.Microsecond {
		low, high = max(low, aged), min(high, most)
	}
	c.bound, c.width, c.at, c.wall, c.known = low, max(0, high-low), local, c.wallAt(r.Answered), true
}

// reached learns that Redis's clock has reached an instant.
func (c *clock) reached(at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.known || c.suspended(now) {
		return
	}
	local := now.Sub(c.start)
	aged := c.aged(local)
	if low := time.Duration(at)*time.Microsecond - local; low > aged && low <= c.bound+c.width {
		c.bound, c.width, c.at, c.wall = low, c.bound+c.width-low, local, c.wallAt(now)
	}
}

func (c *clock) aged(local time.Duration) time.Duration {
	return c.bound - time.Duration(drift*float64(local-c.at))
}

// suspended reports whether the machine has slept since the last observation, or its wall
// clock was set: one cannot be told from the other.
func (c *clock) suspended(now time.Time) bool {
	return ((c.wallAt(now) - c.wall) - (now.Sub(c.start) - c.at)).Abs() > slept
}

// now returns an instant that Redis's clock has reached, in microseconds, and by how much
// it may be further.
func (c *clock) now() (int64, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	local := now.Sub(c.start)
	aged := c.aged(local)
	doubt := c.width + c.bound - aged
	if !c.known || c.suspended(now) {
		doubt = unknown
	}
	return (aged + local).Microseconds(), doubt
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
