package dashboard

import (
	"context"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// A cache keeps what was read of a queue for a moment: pages that are open side by side cost
// Redis as much as one. It keeps no more than cacheSize pages; the zero value is empty.
type cache struct {
	flights singleflight.Group
	mu      sync.Mutex
	entries map[string]cached
	forgets int // how often everything was forgotten
}

type cached struct {
	value any
	until time.Time
}

const cacheSize = 256

// How old what a page shows may be. Policies may be long, and change seldom.
const (
	pageAge     = time.Second
	policiesAge = 5 * time.Second
)

// A reading is what is read under a key, and how old it may be.
type reading struct {
	key  string
	age  time.Duration
	read func(context.Context) (any, error)
}

// get returns what was read a moment ago, or reads it. Those who ask meanwhile wait for the same
// reading, which does not end with the first of them.
func (c *cache) get(ctx context.Context, r reading) (any, error) {
	value, ok, forgets := c.known(r.key)
	if ok {
		return value, nil
	}
	result := c.flights.DoChan(strconv.Itoa(forgets)+" "+r.key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readPatience)
		defer cancel()
		value, err := r.read(ctx)
		if err == nil {
			c.put(r, value, forgets)
		}
		return value, err
	})
	select {
	case done := <-result:
		return done.Val, done.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// known returns what is known under a key, if anything is, and how often everything was forgotten by then.
func (c *cache) known(key string) (value any, ok bool, forgets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	return e.value, ok && time.Now().Before(e.until), c.forgets
}

// put keeps what was read, unless everything was forgotten while it was.
func (c *cache) put(r reading, value any, forgets int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if forgets != c.forgets {
		return
	}
	now := time.Now()
	if len(c.entries) >= cacheSize {
		for key, e := range c.entries {
			if now.After(e.until) {
				delete(c.entries, key)
			}
		}
	}
	if c.entries == nil {
		c.entries = make(map[string]cached)
	}
	if len(c.entries) < cacheSize {
		c.entries[r.key] = cached{value, now.Add(r.age)}
	}
}

// forget drops everything: somebody has changed the queue, and wants to see that.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
	c.forgets++
}
