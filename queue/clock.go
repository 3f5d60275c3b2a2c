package queue

import (
	"sync"
	"time"
)

// redisClock estimates Redis's clock, the only one that counts, from the replies of
// scripts. Between replies it runs on the monotonic clock, so that a worker's wall
// clock may be wrong, or jump, without effect.
//
// A reply that tells Redis's time T, and was asked for at a and arrived at b, proves
// that Redis's clock is not before T at b and not after T + (b-a). The estimate is the
// best such lower bound: it never runs ahead, so nothing starts early.
type redisClock struct {
	mu    sync.Mutex
	start time.Time     // local instant that offsets count from
	bound time.Duration // Redis's clock minus local time, at least
	width time.Duration // and at most this much more
	at    time.Duration // when that was observed, local time
	known bool
}

// drift is how much faster than Redis's the local clock may run: it is taken off the
// estimate as that grows old.
const drift = 100e-6

func newRedisClock() *redisClock {
	return &redisClock{start: time.Now()}
}

// observe learns from one reply: asked for at a, arrived at b, read as redis.
func (c *redisClock) observe(a, b, redis time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := b.Sub(c.start)
	low := time.Duration(redis.UnixMicro())*time.Microsecond - local
	high := low + b.Sub(a)
	aged := c.aged(local)
	// An estimate above what is possible comes from before Redis's clock was set back.
	if !c.known || low >= aged || aged > high+time.Microsecond {
		c.bound, c.width, c.at, c.known = low, high-low, local, true
	}
}

func (c *redisClock) aged(local time.Duration) time.Duration {
	return c.bound - time.Duration(drift*float64(local-c.at))
}

// now returns a time that Redis's clock has reached, and by how much it may be further.
func (c *redisClock) now() (time.Time, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := time.Since(c.start)
	aged := c.aged(local)
	return time.UnixMicro((aged + local).Microseconds()), c.width + c.bound - aged
}

// until returns how long it is until t on Redis's clock.
func (c *redisClock) until(t time.Time) time.Duration {
	now, _ := c.now()
	return t.Sub(now)
}
