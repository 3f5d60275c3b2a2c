package store

import (
	"context"
	"fmt"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Of a digest that was claimed the worker settles the members before the handler runs, as it does for a job under a collapse
// key: the commit that claimed it could not know all of them. A member with an ID is cancelled or starts, never both, see
// ids.go. Those that were cancelled, or may not start so late, leave the digest: one change rewrites the claim without them
// and records each.

// StartMembers notes that members with the callers' own IDs have started, and returns those that were cancelled: the set says so,
// also where the digest was given back since, and the ID says its lane again. It takes two round trips, and more where somebody
// cancels meanwhile.
func (s *Store) StartMembers(ctx context.Context, ids []string) (cancelled map[string]bool, err error) {
	cancelled = make(map[string]bool)
	for len(ids) > 0 {
		keys, names := make([]string, len(ids)), make([]any, len(ids))
		for i, id := range ids {
			keys[i], names[i] = s.key.ID(id), id
		}
		pipe := s.client.Pipeline()
		found, never := pipe.MGet(ctx, keys...), pipe.SMIsMember(ctx, s.key.Cancelled(), names...)
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		var left []string
		c := s.newChange()
		for i, where := range textsOf(any(found.Val())) {
			switch {
			case never.Val()[i]:
				cancelled[ids[i]] = true
			case where == "" || where == WasStarted: // it is not known any more, or this is the second time
			default:
				c.when(where, "GET", []string{keys[i]})
				c.and(0, "SISMEMBER", []string{s.key.Cancelled()}, ids[i])
				c.do("SET", keys[i], WasStarted, "KEEPTTL")
				left = append(left, ids[i])
			}
		}
		if ids = nil; len(left) == 0 {
			break
		}
		done, err := c.apply(ctx)
		if err != nil {
			return nil, err
		}
		for i, id := range left {
			if !done[i] {
				ids = append(ids, id)
			}
		}
	}
	return cancelled, nil
}

// A DroppedMember is a member of a digest that never runs.
type DroppedMember struct {
	Job    *envelope.Envelope
	Reason string
}

// DropMembers takes members out of a digest that a worker has claimed. It reports whether the worker still has the claim. After an
// error it is called again: if it was done already, nothing is done.
func (s *Store) DropMembers(ctx context.Context, ref ClaimRef, digest, left string, dropped []DroppedMember, now int64) (held bool, err error) {
	claim, lane := ref.Claim.String(), ref.Claim.Lane
	c := s.newChange()
	running := c.own(s.key.Running(ref.Worker), "hash")
	c.when(digest, "HGET", []string{running}, claim)
	c.must("HSET", running, claim, left)
	c.count(lane.Tenant, "out", len(dropped))
	var ids, spilled []string
	for _, m := range dropped {
		c.record(lane, m.Reason, m.Job.String(), now)
		ids, spilled = appendOwn(ids, m.Job.ID), appendOwn(spilled, m.Job.Spilled)
	}
	done, err := c.apply(ctx)
	if err != nil && !done[0] {
		return false, err
	}
	if !done[0] {
		is, err := s.ClaimedJobs(ctx, []ClaimRef{ref})
		if err != nil || is[0] != left {
			return false, err
		}
	}
	return true, s.Dropped(ctx, ids, spilled)
}

// A DigestEnd is the end of the claim of a digest that is done.
type DigestEnd struct {
	ClaimRef
	Job    *envelope.Envelope
	Refund string // what the leader is to refund, see [Refund]; "" for nothing
	Now    int64
}

// EndDigest ends the claim of a digest that is done: each member counts as done, and is recorded if somebody is told of it. All
// happens if the claim was still held, so after an error it is called again.
func (s *Store) EndDigest(ctx context.Context, e DigestEnd) error {
	claim := e.Claim.String()
	c := s.newChange()
	running := c.own(s.key.Running(e.Worker), "hash")
	c.own(s.key.Notices(), "stream")
	c.always()
	c.do("HDEL", running, "") // needs no memory: a full Redis goes on
	c.when(1, "HDEL", []string{running}, claim)
	c.do("HINCRBY", s.key.Meta(), "done", len(e.Job.Members))
	c.do("XADD", s.key.Notices(), "*", NoticeFinished, claim)
	if e.Refund != "" {
		c.do("XADD", s.key.Notices(), "*", NoticeRefund, e.Refund)
	}
	for _, m := range e.Job.Members {
		if m.Callback != "" {
			head := *m
			head.Payload = ""
			text := head.String()
			c.do("XADD", s.key.Done(), "MAXLEN", "~", 100_000, "*", "lane", e.Claim.Lane.Name(), "at", e.Now, "job", text[:min(len(text), headLen)])
		}
		if m.Spilled != "" {
			c.do("UNLINK", s.key.Body(m.Spilled))
		}
	}
	done, err := c.apply(ctx)
	if err != nil && !done[1] {
		return fmt.Errorf("ending a digest: %w", err)
	}
	return nil
}
