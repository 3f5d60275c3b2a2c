package runner

import (
	"context"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// places returns how many places the fleet has for this queue.
func (f *fleet) places() int {
	n := f.r.places.left()
	for _, m := range f.members[1:] {
		n += m.places
	}
	return n
}

// countRunning tells the scheduler which claims there are. It is told of their ends; what is read
// again now and then makes up for what a Redis that was restored has forgotten.
func (t *term) countRunning(ctx context.Context, workers []string, now int64) error {
	claims, err := t.r.store.Claims(ctx, workers)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(c envelope.ClaimRef) bool { return !c.Valid() })
	t.sched.Running(claims, now)
	t.uncounted = false
	return nil
}
