package store

import (
	"context"
	"time"
)

// A failed attempt moves a job from its worker's claims to one of two places: to later, where it waits for its next
// attempt, or to the dead. One change does both: the claim ends only if the job has its place, and the job gets
// its place only if the worker still has the claim. Where Redis has no memory left for the place, the claim stays,
// and the worker tries again.

// A Failure ends a claim whose attempt did not succeed.
type Failure struct {
	Worker string
	Claim  Claim
	Delay  time.Duration // until the next attempt; negative for none: the job is dead
	Job    string        // the envelope for the next attempt, or as it is kept among the dead
	IDs    []string      // the callers' own: of the job, or of the members of a digest
	Parts  int           // how many jobs it is: of a digest its members; 0 for one
	Error  string        // kept with a dead job; its beginning as the last error of the queue
	Refund string        // what the leader is to refund, see [Refund]; "" for nothing
}

// headError is how much of the newest error of a queue is kept in meta, in bytes.
const headError = 300

// Fail ends a claim whose attempt did not succeed, and reports whether the worker had it:
// then the job waits for its next attempt, or is dead. It takes two round trips.
//
// Without an error the claim is over. If held is false it was over before: it was taken back, or this call is the
// second one and the reply to the first was lost. After an error the claim may still be there, and the caller calls
// again: a condition of the change finds out whether it is.
func (s *Store) Fail(ctx context.Context, f Failure) (held bool, err error) {
	view, meta, err := s.look(ctx, nil, attemptFields...)
	if err != nil {
		return false, err
	}
	c := s.newChange()
	claim, running := f.Claim.String(), c.own(s.key.Running(f.Worker), "hash")
	c.own(s.key.Notices(), "stream")
	// A script that begins with a command that needs no memory goes on in a full Redis.
	c.always()
	c.do("HDEL", running, "")
	ends := len(c.steps)
	c.when(1, "HEXISTS", []string{running}, claim)
	if f.Delay < 0 {
		c.dies(f, view.Now)
	} else {
		c.backsOff(f, view.Now+f.Delay.Microseconds())
	}
	c.do("HDEL", running, claim)
	c.do("XADD", s.key.Notices(), "*", NoticeFinished, claim)
	if f.Refund != "" {
		c.do("XADD", s.key.Notices(), "*", NoticeRefund, f.Refund)
	}
	c.do("HSET", s.key.Meta(), "failing", marksAfter(meta, view.Now), "error", f.Error[:min(len(f.Error), headError)])
	c.count(f.Claim.Lane.Tenant, "failed", 1)
	done, err := c.apply(ctx)
	if done[ends] {
		return true, nil // whatever has become of the counters of the tenant
	}
	return false, err
}

// backsOff lets the job of a failed attempt wait for its next one: it is written to later, and the leader is told when
// to look there. The ID, if it is still known, says the lane again, so that the job can be cancelled.
func (c *change) backsOff(f Failure, at int64) {
	c.must("ZADD", c.own(c.s.key.Later(), "zset"), at, f.Claim.Lane.Name()+" "+f.Job)
	c.do("XADD", c.s.key.Notices(), "*", NoticeLater, at)
	for _, id := range f.IDs {
		c.do("SET", c.s.key.ID(id), f.Claim.Lane.Name(), "XX", "KEEPTTL")
	}
}

// dies keeps the job of a failed attempt among the dead, where an Inspector can revive it.
func (c *change) dies(f Failure, now int64) {
	c.must("XADD", c.own(c.s.key.Dead(), "stream"), deadRecord(f.Claim.Lane, f.Error, f.Job, now)...)
	for _, id := range f.IDs {
		c.do("SET", c.s.key.ID(id), WasDead, "XX", "KEEPTTL")
	}
	c.count(f.Claim.Lane.Tenant, "dead", max(1, f.Parts))
}
