package forecast

import (
	"context"
	"sync"

	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A PolicyCache keeps the compiled policies of a queue.
type PolicyCache struct {
	store *store.Store

	mu       sync.Mutex
	policies *schedule.Policies
}

// NewPolicyCache returns a cache of the policies of a queue, empty.
func NewPolicyCache(s *store.Store) *PolicyCache { return &PolicyCache{store: s} }

// Known returns the policies that were in force last time, nil for none.
func (c *PolicyCache) Known() *schedule.Policies {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.policies
}

// At returns the policies of a version as they hold at an instant, as long as that version is in force.
func (c *PolicyCache) At(ctx context.Context, want, now int64) (*schedule.Policies, error) {
	if p := c.Known(); p.InForce() == want && p.HoldAt(now) {
		return p, nil
	}
	err := c.Reload(ctx)
	return c.Known(), err
}

// Reload reads the policies in force. Only overrides make it look at the clock.
func (c *PolicyCache) Reload(ctx context.Context) error {
	source, version, err := c.store.Policies(ctx)
	if err != nil {
		return err
	}
	p, err := policies.Compile(c.store.Queue, source, version, 0)
	if err == nil && !p.HoldAt(schedule.Never-1) {
		var clock store.Reading
		if clock, err = c.store.Clock(ctx); err == nil {
			p, err = policies.Compile(c.store.Queue, source, version, clock.Now)
		}
	}
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies = p
	return nil
}
