package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job may have an ID of the caller's. The key id:<id> says where it is: while it waits the name of its lane, later
// one of the words below. It answers three questions: was this job offered already, what became of it, and where is the
// job that is to be cancelled.
//
// A waiting job that is cancelled stays in its lane: no key says where in the lane it is. Its ID is put into a set, and
// the leader drops the job when its turn comes. A job is cancelled or starts, never both:
//
//  1. [Store.Cancel] reads the ID, and changes it to "cancelled" only if it still says what was read. The same change
//     puts the ID into the set.
//  2. A commit that starts a job with an ID checks that the ID is not in the set ([Commit.NotCancelled]), and notes
//     that the job has started. If Cancel came first the commit is refused; otherwise Cancel reads "started".
//  3. A commit claims the job under a collapse key whichever it is by then, so the leader may not know its ID. The
//     worker that has the claim asks before it starts the job ([Store.Started]), in the same way as Cancel: of the two
//     changes of the ID only one is made.
//
// The ID of a cancelled job does not expire, since the job may wait for any time. When it is dropped the ID gets a time
// again.

// IDMemory is how long the caller's own ID is known, from its offer on, unless the offer says otherwise.
const IDMemory = 24 * time.Hour

// The words that stand for what became of a job with the caller's own ID. None of them is the name of a lane, which
// has colons.
const (
	WasStarted   = "started"   // claimed: it runs, is done, or comes back
	WasDropped   = "dropped"   // it never runs
	WasDead      = "dead"      // no attempt is left
	WasCancelled = "cancelled" // it waits, and will be dropped
)

// Where returns what became of a job with the caller's own ID: the name of the lane in
// which it waits, or one of the words above; "" if the ID is not known. It takes one round trip.
func (s *Store) Where(ctx context.Context, id string) (string, error) {
	where, err := s.client.Get(ctx, s.key.ID(id)).Result()
	return where, ignoreNil(err)
}

// Cancel makes sure that a waiting job never runs: it is dropped when its turn comes. It
// returns what the job was, as [Store.Where] does: after the name of a lane it was cancelled now, and
// after any other word nothing was done. It takes two round trips, and more where the job moves meanwhile.
func (s *Store) Cancel(ctx context.Context, id string) (string, error) {
	for {
		where, err := s.Where(ctx, id)
		if err != nil {
			return "", err
		}
		if _, err := envelope.ParseLane(where); err != nil {
			return where, nil
		}
		c := s.newChange()
		c.tell(NoticeCancel, id)
		c.when(where, "GET", []string{s.key.ID(id)})
		c.do("SET", s.key.ID(id), WasCancelled) // known until it is dropped, however long it waits
		c.do("SADD", s.key.Cancelled(), id)
		done, err := c.apply(ctx)
		if err != nil || done[0] {
			return where, err
		}
	}
}

// Started notes that the job with the caller's own ID was claimed, unless it was cancelled: then it reports that, and
// the job must not start. It takes two round trips, and one if the ID is not known any more.
func (s *Store) Started(ctx context.Context, id string) (cancelled bool, err error) {
	for {
		where, err := s.client.Get(ctx, s.key.ID(id)).Result()
		if errors.Is(err, redis.Nil) {
			return false, nil // it is not known any more
		}
		if err != nil || where == WasCancelled || where == WasStarted {
			return where == WasCancelled, err
		}
		c := s.newChange()
		c.when(where, "GET", []string{s.key.ID(id)})
		c.do("SET", s.key.ID(id), WasStarted, "KEEPTTL")
		if done, err := c.apply(ctx); err != nil || done[0] {
			return false, err
		}
	}
}

// Dropped notes that jobs with the caller's own IDs were dropped, and deletes payloads that are kept apart. It is for
// those who are not the leader: jobs were purged, or others took their places. All of it is one change, in one round
// trip: an ID that does not expire would stay for ever if the rest came to nothing.
func (s *Store) Dropped(ctx context.Context, ids, spilled []string) error {
	if len(ids)+len(spilled) == 0 {
		return nil
	}
	c := s.newChange()
	for _, name := range spilled {
		c.always()
		c.do("UNLINK", s.key.Body(name))
	}
	for _, id := range ids {
		c.when(1, "SREM", []string{s.key.Cancelled()}, id)
		c.do("PEXPIRE", s.key.ID(id), IDMemory.Milliseconds())
		c.do("XADD", s.key.Notices(), "*", NoticeDropped, id)
		c.always()
		c.do("SET", s.key.ID(id), WasDropped, "XX", "KEEPTTL")
	}
	_, err := c.apply(ctx)
	return err
}

// errChanged says that a value is not what it was.
var errChanged = errors.New("changed")

// ForgetID forgets an ID, if what it says is still the same: a job with that ID can be offered anew. If it has changed
// meanwhile nothing is done, which is no error. Redis watches the key from the read to the deletion.
func (s *Store) ForgetID(ctx context.Context, id, was string) error {
	key := s.key.ID(id)
	err := s.client.Watch(ctx, func(tx *redis.Tx) error {
		if now, err := tx.Get(ctx, key).Result(); err != nil || now != was {
			return errors.Join(errChanged, err)
		}
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error { return pipe.Del(ctx, key).Err() })
		return err
	}, key)
	if errors.Is(err, errChanged) || errors.Is(err, redis.TxFailedErr) {
		return nil
	}
	return err
}

// Track notes what became of a job with the caller's own ID, or in which lane it waits. An ID that is not known any
// more stays unknown, and one that is known keeps its time.
func (c *Commit) Track(id, where string) {
	c.op(&c.extra, "SET", c.s.key.ID(id), where, "XX", "KEEPTTL")
}

// Uncancel forgets that a job was cancelled, when it has been dropped. Its ID had no time, since the job could wait for
// any time: now it is known for so long.
func (c *Commit) Uncancel(id string, keep time.Duration) {
	c.op(&c.extra, "SREM", c.own(c.s.key.Cancelled(), "set"), id)
	c.op(&c.extra, "PEXPIRE", c.s.key.ID(id), keep.Milliseconds())
}

// NotCancelled checks that a job was not cancelled since the leader has read it: a job whose cancelling was
// acknowledged does not start.
func (c *Commit) NotCancelled(id string) int {
	return c.is("SISMEMBER", c.own(c.s.key.Cancelled(), "set"), id, false)
}
