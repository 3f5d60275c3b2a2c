package dashboard

import (
	"context"
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
}

type cached struct {
	value any
	taken time.Time
}

const cacheSize = 256

// cacheFor is how old what a page shows may be.
const cacheFor = time.Second

// get returns what is known under a key, or reads it. Those who ask meanwhile wait for the
// same reading, which does not end with the first of them.
func (c *cache) get(ctx context.Context, key string, read func(context.Context) (any, error)) (any, error) {
	if value, ok := c.known(key); ok {
		return value, nil
	}
	result := c.flights.DoChan(key, func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readPatience)
		defer cancel()
		value, err := read(ctx)
		if err == nil {
			c.put(key, value)
		}
		return value, err
	})
	select {
	case r := <-result:
		return r.Val, r.Err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (c *cache) known(key string) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[key]
	return e.value, ok && time.Since(e.taken) < cacheFor
}

func (c *cache) put(key string, value any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.entries) >= cacheSize {
		for key, e := range c.entries {
			if time.Since(e.taken) >= cacheFor {
				delete(c.entries, key)
			}
		}
	}
	if c.entries == nil {
		c.entries = make(map[string]cached)
	}
	if len(c.entries) < cacheSize {
		c.entries[key] = cached{value, time.Now()}
	}
}

// forget drops everything: somebody has changed the queue, and wants to see that.
func (c *cache) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.entries)
}
