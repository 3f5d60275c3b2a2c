package worker

import (
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Ends are told in groups, since a script for each would cost Redis more than the job did:
//
//   - They are gathered for [AckDelay], or until there are [AckBatch]. If half of the places are taken it is for
//     [AckHurry], since jobs may wait for places.
//   - A worker that leads takes them along with its next commit, and asks for one if none comes for [AckPatience].
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
	if now := time.Now().Add(-AckPatience); e.Awaited && c.since.After(now) {
		c.since = now // it waits for no other ends
	}
	c.ended = append(c.ended, e)
	hurries := c.patient && (e.Awaited || len(c.ended) >= AckBatch || c.ackDelay() <= AckHurry)
	c.mu.Unlock()
	retry.Signal(c.ready)
	if hurries {
		retry.Signal(c.hurry)
	}
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

// Due reports whether ends are to be told now: the first of them has waited long enough for others, or they are many.
func (c *Claims) Due() bool {
	n, left := c.waiting()
	return n > 0 && left <= 0
}

// waiting returns how many ends wait to be told, and for how long the first of them goes on to wait for others.
func (c *Claims) waiting() (n int, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n = len(c.ended); n == 0 {
		return 0, 0
	}
	if left = c.ackDelay() - time.Since(c.since); n >= AckBatch {
		left = min(left, 0)
	}
	return n, left
}

// ackDelay returns how long an end waits for others. Where this worker leads that is longer, since it knows of its free places before
// Redis does. Where the claims fill half of the places that other queues and partitions leave to this one, jobs may wait for them:
// then it is shorter, and nothing for a worker with few places.
func (c *Claims) ackDelay() time.Duration {
	const few = 16
	switch {
	case 2*len(c.held) < c.w.Places.Left() && c.w.leading.Load() != nil:
		return AckPatience
	case 2*len(c.held) < c.w.Places.Left():
		return AckDelay
	case c.w.Places.All() < few:
		return 0
	}
	return AckHurry
}

const (
	// AckDelay is how long an end waits for others to be told with. If the worker dies meanwhile the job runs again.
	AckDelay = 3 * time.Millisecond
	// AckPatience is how long it waits for a commit of this worker: as long as two commits are apart whose jobs follow a rule.
	AckPatience = 10 * time.Millisecond
	// AckHurry is how long it waits where jobs may wait for places.
	AckHurry = time.Millisecond
	// AckBatch is how many ends wait at most.
	AckBatch = 20
	// ackAgain is how often a leader is asked for a commit, and ackAlone how long an end waits for it.
	ackAgain = 3 * time.Millisecond
	ackAlone = 30 * time.Millisecond
)

// AckAll tells the ends that no commit took along, until ctx ends. If this worker leads it kicks the term, and tells
// the ends itself only when the first of them has waited long enough for that: the term may be waiting for Redis, or ending.
func (c *Claims) AckAll(ctx context.Context) {
	trouble := retry.NewTrouble(c.w.Log, "acknowledging")
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.ready:
		}
		if c.gather(ctx); ctx.Err() != nil {
			return
		}
		if leader, leads := c.w.leader(); leads {
			leader.Kick()
			retry.Pause(ctx, ackAgain)
			if n, left := c.waiting(); n > 0 && left > -ackAlone {
				retry.Signal(c.ready)
				continue
			}
		}
		for wait := trouble.After(c.send(ctx)); wait > 0 && ctx.Err() == nil; wait = trouble.After(c.send(ctx)) {
			retry.Pause(ctx, wait)
		}
	}
}

// gather waits until ends are to be told, or there are none.
func (c *Claims) gather(ctx context.Context) {
	for n, left := c.waiting(); n > 0 && left > 0 && ctx.Err() == nil; n, left = c.waiting() {
		c.setPatient(left > AckHurry)
		timer := time.NewTimer(left)
		select {
		case <-ctx.Done():
		case <-c.hurry:
		case <-timer.C:
		}
		timer.Stop()
	}
	c.setPatient(false)
}

// setPatient notes whether the wait for more ends is so long that an end may cut it short.
func (c *Claims) setPatient(patient bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.patient = patient
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
