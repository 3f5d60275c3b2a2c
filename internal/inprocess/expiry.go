package inprocess

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// An expiry removes keys whose time has come. miniredis looks at all keys for that, so it is asked to at most once in a [grain].
type expiry struct {
	mu   sync.Mutex
	last time.Time // of the last removal; zero if keys do not expire
}

const grain = 10 * time.Millisecond

// remove removes the keys that have expired since the last time. It is called before each command, and waits for no lock that
// another command may hold while it waits for this one:
//
//  1. A script that miniredis runs itself holds m's lock while its commands come here.
//  2. FastForward waits for m's lock. So the script's own commands must not call it: they find m locked, and pass over it.
//  3. Whoever calls FastForward holds mu meanwhile. So those commands must not wait for mu either: they find it locked, and pass
//     over it, too.
//
// A command that has passed over it leaves it to the next one.
func (e *expiry) remove(m *miniredis.Miniredis) {
	if !e.mu.TryLock() {
		return
	}
	defer e.mu.Unlock()
	now := time.Now()
	if e.last.IsZero() || now.Sub(e.last) < grain || !m.TryLock() {
		return
	}
	m.Unlock()
	m.FastForward(now.Sub(e.last))
	e.last = now
}
