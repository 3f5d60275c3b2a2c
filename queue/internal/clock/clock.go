// Package clock estimates Redis's clock, the only one that decides when a job starts.
//
// Each reply of a script tells what Redis's clock said ([store.Reading]). A [Clock] learns from
// them, and says between them what Redis's clock says by now, and how badly it knows:
//
//	c := clock.New(nil)
//	c.Observe(reply.Reading)
//	now, doubt := c.Now() // Redis's clock is between now and now + doubt
package clock

import (
	"sync"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A Clock estimates Redis's clock from the replies of scripts. Between replies it runs on the
// monotonic clock, so that a worker's wall clock may be wrong, or jump, without effect.
//
// A reply that tells Redis's time T, and was asked for at a and arrived at b, proves
// that Redis's clock is not before T at b and not after T + (b-a). The estimate is the
// best such lower bound: it never runs ahead, so nothing starts early. How much further
// Redis's clock may be is the doubt.
type Clock struct {
	mu    sync.Mutex
	start time.Time     // local instant that offsets count from
	bound time.Duration // Redis's clock minus local time, at least
	width time.Duration // and at most this much more
	at    time.Duration // when that was observed, local time
	wall  time.Duration // the same instant by the wall clock
	known bool

	setBack func(by time.Duration)
	shifted struct{ mono, wall time.Duration } // by tests
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

// Good is the doubt that a worker should have at most, and Usable the one with which it may still be
// given jobs.
const (
	Good   = 2 * time.Millisecond
	Usable = time.Second
)

// New returns a clock that knows nothing yet. It calls setBack, which may be nil, when Redis's clock
// was set back by a second or more.
func New(setBack func(by time.Duration)) *Clock {
	return &Clock{start: time.Now(), setBack: setBack}
}

// Shift lets the machine's monotonic clock and its wall clock jump. Tests suspend machines with it,
// and set their clocks.
func (c *Clock) Shift(mono, wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shifted.mono += mono
	c.shifted.wall += wall
}

// local returns an instant by the monotonic clock.
func (c *Clock) local(t time.Time) time.Duration { return t.Sub(c.start) + c.shifted.mono }

func (c *Clock) wallAt(t time.Time) time.Duration {
	return t.Round(0).Sub(c.start.Round(0)) + c.shifted.wall
}

// Observe learns from one reply.
func (c *Clock) Observe(r store.Reading) {
	if r.Now == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	local := c.local(r.Answered)
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

// Reached learns that Redis's clock has reached an instant.
func (c *Clock) Reached(at int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.known || c.suspended(now) {
		return
	}
	local := c.local(now)
	aged := c.aged(local)
	if low := time.Duration(at)*time.Microsecond - local; low > aged && low <= c.bound+c.width {
		c.bound, c.width, c.at, c.wall = low, c.bound+c.width-low, local, c.wallAt(now)
	}
}

func (c *Clock) aged(local time.Duration) time.Duration {
	return c.bound - time.Duration(drift*float64(local-c.at))
}

// suspended reports whether the machine has slept since the last observation, or its wall
// clock was set: one cannot be told from the other.
func (c *Clock) suspended(now time.Time) bool {
	return ((c.wallAt(now) - c.wall) - (c.local(now) - c.at)).Abs() > slept
}

// Now returns an instant that Redis's clock has reached, in microseconds, and by how much
// it may be further.
func (c *Clock) Now() (int64, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	local := c.local(now)
	aged := c.aged(local)
	doubt := c.width + c.bound - aged
	if !c.known || c.suspended(now) {
		doubt = unknown
	}
	return (aged + local).Microseconds(), doubt
}

// Micros returns a number of microseconds as a duration.
func Micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
