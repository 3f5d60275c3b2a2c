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

// At returns the policies of a version, as long as that is in force.
func (c *PolicyCache) At(ctx context.Context, want int64) (*schedule.Policies, error) {
	if p := c.Known(); p.InForce() == want {
		return p, nil
	}
	err := c.Reload(ctx)
	return c.Known(), err
}

// Reload reads the policies in force.
func (c *PolicyCache) Reload(ctx context.Context) error {
	source, version, err := c.store.Policies(ctx)
	if err != nil {
		return err
	}
	p, err := policies.Compile(c.store.Queue, source, version)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.policies = p
	return nil
}
