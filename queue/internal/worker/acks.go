package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Ends are told in groups, since a script for each would cost Redis more than the job did:
//
//   - A worker that leads takes them along with its next commit, and asks for one if none comes.
//   - Another worker gathers them for [AckDelay], or until there are [AckBatch]. If half of its places are taken, it
//     gathers for a third of that time, since jobs may wait for places.
//   - An end that others wait for (the claim is Awaited, at a concurrency limit that is half full) gathers no others.
//
// Until Redis has confirmed an end the claim stays held, so that a comparison does not start it again. An end is told
// by whoever has taken it (TakeEnds), and comes back if that fails (GiveBack): so no two tell it at a time. Told twice,
// since a reply was lost, it has no effect the second time.

// done notes that a job needs no more attempts. The end of a claim that was lost is told to nobody: another worker has
// the job, or will.
func (c *Claims) done(e End) {
	c.mu.Lock()
	if h := c.held[e.Claim]; h != nil {
		h.over, h.cancel = true, nil
		if h.lost.Load() { // its end means nothing any more
			delete(c.held, e.Claim)
			c.mu.Unlock()
			return
		}
	}
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	if now := time.Now().Add(-AckDelay); e.Awaited && c.since.After(now) {
		c.since = now // it waits for no other ends
	}
	c.ended = append(c.ended, e)
	c.mu.Unlock()
	retry.Signal(c.ready)
}

// TakeEnds returns up to five hundred ends to be told, the oldest first. Whoever takes them calls Confirmed or
// GiveBack.
func (c *Claims) TakeEnds() []End {
	const batch = 500
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(batch, len(c.ended))
	taken := c.ended[:n:n]
	c.ended = c.ended[n:]
	return taken
}

// GiveBack takes back ends that could not be told, or whose telling has an unknown outcome. They are told again.
func (c *Claims) GiveBack(ends []End) {
	if len(ends) == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		c.since = time.Now()
	}
	c.ended = append(c.ended, ends...)
	retry.Signal(c.ready)
}

// Confirmed notes that Redis knows these ends: the claims are let go of.
func (c *Claims) Confirmed(ends []End) {
	for _, e := range ends {
		c.drop(e.Claim)
	}
}

// Due reports how many ends wait to be told, and for how long the first of them has. A leader asks it, to find out
// whether it should commit for their sake.
func (c *Claims) Due() (n int, age time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.ended) == 0 {
		return 0, 0
	}
	return len(c.ended), time.Since(c.since)
}

// AckDelay is how long an end waits for others, or for a commit, to be told with, and AckBatch how
// many of them wait at most.
const (
	AckDelay = 3 * time.Millisecond
	AckBatch = 20
)

// AckAll tells the ends that no commit took along, until ctx ends. If this worker leads it kicks the term, and tells
// the ends itself only when the first of them has waited for ten ack delays: the term may be waiting for Redis, or
// ending.
func (c *Claims) AckAll(ctx context.Context) {
	trouble := retry.NewTrouble(c.w.Log, "acknowledging")
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ready:
		}
		for wait := c.gatherOn(); wait > 0; wait = c.gatherOn() {
			if retry.Pause(ctx, wait); ctx.Err() != nil {
				return
			}
		}
		if leader, leads := c.w.leader(); leads {
			leader.Kick()
			retry.Pause(ctx, AckDelay)
			if n, age := c.Due(); n > 0 && age < 10*AckDelay {
				retry.Signal(c.ready)
				continue
			}
		}
		for wait := trouble.After(c.send(ctx)); wait > 0 && ctx.Err() == nil; wait = trouble.After(c.send(ctx)) {
			retry.Pause(ctx, wait)
		}
	}
}

// gatherOn returns how long to wait for more ends before they are told: 0 where there is none, where the first of them
// has waited long enough, or where they fill a message. The commits of a leader take any number along.
func (c *Claims) gatherOn() time.Duration {
	n, age := c.Due()
	if n == 0 || n >= AckBatch && c.w.leading.Load() == nil {
		return 0
	}
	return max(0, c.gathers()-age)
}

// gathers returns how long an end waits for others. Where the claims fill half of the worker's places,
// jobs may wait for them: then it is shorter, and nothing for a worker with few places.
func (c *Claims) gathers() time.Duration {
	const few = 16
	all := c.w.Places.All()
	switch {
	case 2*c.count() < all:
		return AckDelay
	case all < few:
		return 0
	}
	return AckDelay / 3
}

// send tells all ends that wait, with one script for each five hundred, and returns the first error. It tries by
// another connection while no answer comes: a script that ends claims may run twice.
func (c *Claims) send(ctx context.Context) error {
	for {
		ends := c.TakeEnds()
		if len(ends) == 0 {
			return nil
		}
		ack := store.Ack{Worker: c.w.Name}
		for _, e := range ends {
			ack.Claims = append(ack.Claims, e.Claim)
		}
		reading, err := retry.Persist(ctx, c.w.Patience(), func(ctx context.Context) (store.Reading, error) { return c.w.Store.Ack(ctx, ack) })
		if err != nil {
			c.GiveBack(ends)
			return err
		}
		c.w.Clock.Observe(reading)
		c.Confirmed(ends)
	}
}

// untold counts the ends that Redis has not confirmed, those included that are on their way.
func (c *Claims) untold() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.held {
		if h.over && !h.lost.Load() {
			n++
		}
	}
	return n
}

// flush tells the last ends of a worker that stops, and waits until Redis has confirmed those
// that are on their way. Jobs whose ends are not confirmed run again.
func (c *Claims) flush(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lastPatience)
	defer cancel()
	err := c.send(ctx)
	for (err != nil || c.untold() > 0) && ctx.Err() == nil {
		retry.Pause(ctx, 10*time.Millisecond)
		err = c.send(ctx)
	}
	if n := c.untold(); n > 0 {
		c.w.Log.Error("could not acknowledge finished jobs: they will run again", "jobs", n, "err", err)
	}
}
