package notify

import (
	"context"
	"time"
)

const detention = 30 * time.Second // of a message that another worker can send

// detain keeps the place of a message that this worker cannot send, because it does not reach the
// provider. The queue gives jobs to the workers with most of their places free. A worker on which
// every job ends at once has all of them free: it would get most jobs, and none would be sent. A
// worker that detains some of them gets few.
//
// Afterwards the message goes back to its lane, for the next worker. At most half of the places are
// used so, because the worker may have other providers and queues. Further messages wait in their
// lanes for the end of the suspension, so that a fleet in which no worker reaches the provider
// starts few jobs in vain.
func (d *delivery) detain(ctx context.Context, h *hold) {
	if !h.local || !d.breakers.detain(d.cfg.Concurrency/2, d.visit) {
		return
	}
	defer d.breakers.dismiss(d.visit)
	_ = waitFor(ctx, min(detention, h.until.Sub(clockNow(ctx))))
	h.until, h.spread = clockNow(ctx).Add(shareWait), 0
}

const detained = "detained" // the share

func (bs *breakers) detain(most int, v visit) bool {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	return bs.take([]share{{detained, max(1, most)}}, v)
}

func (bs *breakers) dismiss(v visit) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.give([]share{{of: detained}}, v)
}
