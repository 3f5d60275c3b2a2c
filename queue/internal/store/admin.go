package store

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job may have an ID of the caller's. The key id:<id> says where it is: while it waits the name of its lane, later one of
// the words below. It answers three questions: was this job offered already, what became of it, and where is the
// job that is to be cancelled.

// IDMemory is how long the caller's own ID is known.
const IDMemory = 24 * time.Hour

// The words that stand for what became of a job with the caller's own ID. While it waits
// the name of its lane stands there.
const (
	WasStarted   = "started"
	WasDropped   = "dropped"
	WasDead      = "dead"
	WasCancelled = "cancelled" // it waits, and will be dropped
)

// NewPolicies are policies to be put in force.
type NewPolicies struct {
	Source   string
	Expected int64 // the version in force until now; negative for any
	Note
}

// ErrPoliciesChanged is returned if policies of another version are in force than expected.
var ErrPoliciesChanged = errors.New("queue: other policies were put in force meanwhile")

// SetPolicies puts the source of policies in force, under a version higher than all
// before. It reports false if they are in force already. It fails with
// [ErrPoliciesChanged] if other policies are in force than of the version that was expected;
// any are if that is negative.
func (s *Store) SetPolicies(ctx context.Context, p NewPolicies) (bool, error) {
	for {
		view, err := s.Look(ctx, nil)
		if err != nil {
			return false, err
		}
		before, old, err := s.Policies(ctx)
		if err != nil || old > 0 && before == p.Source && view.Policies == old {
			return false, err
		}
		if p.Expected >= 0 && p.Expected != old {
			return false, ErrPoliciesChanged
		}
		was := ""
		if old > 0 {
			was = strconv.FormatInt(old, 10)
		}
		version := max(old+1, view.Policies+1, view.Now)
		c := s.newChange()
		c.tell(MailPolicies, strconv.FormatInt(version, 10))
		c.fences = true
		c.when(was, "HGET", []string{s.key.Policies()}, "version")
		c.do("HSET", s.key.Policies(), "source", p.Source, "version", version)
		c.do("XADD", s.key.History(), "MAXLEN", "~", historyLen, "*", "version", version, "source", p.Source, "author", p.Author, "reason", p.Reason)
		c.do("HSET", s.key.Meta(), "policies", version)
		done, err := c.apply(ctx)
		if err != nil || done[0] {
			return true, err
		}
	}
}

// Pause lets nothing of a scope start before an instant; one that has passed lifts the
// pause. Pauses that have ended are forgotten.
func (s *Store) Pause(ctx context.Context, scope string, until int64, n Note) error {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return err
	}
	paused := s.key.Paused()
	over, err := s.client.ZRangeByScore(ctx, paused, &redis.ZRangeBy{Min: "-inf", Max: strconv.FormatInt(view.Now, 10), Count: scanStep}).Result()
	if err != nil {
		return err
	}
	c := s.newChange()
	c.tell(MailPaused, scope)
	c.fences = true
	c.always()
	c.do("ZREMRANGEBYSCORE", paused, "-inf", view.Now)
	for _, ended := range over {
		c.do("HDEL", s.key.Notes(), ended)
	}
	if until > view.Now {
		c.do("ZADD", paused, until, scope)
		c.do("HSET", s.key.Notes(), scope, pauseNote(until, n))
		c.do("HSET", s.key.Meta(), "paused", 1)
	} else {
		c.do("ZREM", paused, scope)
		c.do("HDEL", s.key.Notes(), scope)
	}
	c.when(0, "ZCARD", []string{paused})
	c.do("HSET", s.key.Meta(), "paused", 0)
	_, err = c.apply(ctx)
	return err
}

// Where returns what became of a job with the caller's own ID: the name of the lane in
// which it waits, or one of the words above; "" if the ID is not known.
func (s *Store) Where(ctx context.Context, id string) (string, error) {
	where, err := s.client.Get(ctx, s.key.ID(id)).Result()
	return where, ignoreNil(err)
}

// Cancel makes sure that a waiting job never runs: it is dropped when its turn comes. It
// returns what the job was, as [Store.Where] does.
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
		c.tell(MailCancel, id)
		c.when(where, "GET", []string{s.key.ID(id)})
		c.do("SET", s.key.ID(id), WasCancelled) // known until it is dropped, however long it waits
		c.do("SADD", s.key.Cancelled(), id)
		done, err := c.apply(ctx)
		if err != nil || done[0] {
			return where, err
		}
	}
}

// Dropped notes that jobs with the caller's own IDs were dropped, and deletes payloads
// that are kept apart.
func (s *Store) Dropped(ctx context.Context, ids, spilled []string) error {
	if len(ids)+len(spilled) == 0 {
		return nil
	}
	pipe := s.client.Pipeline()
	cancelled := make([]*redis.BoolCmd, len(ids))
	for i, id := range ids {
		pipe.SetArgs(ctx, s.key.ID(id), WasDropped, redis.SetArgs{Mode: "XX", KeepTTL: true})
		cancelled[i] = pipe.SIsMember(ctx, s.key.Cancelled(), id)
	}
	for _, name := range spilled {
		pipe.Unlink(ctx, s.key.Body(name))
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	for i, id := range ids {
		if !cancelled[i].Val() {
			continue
		}
		c := s.newChange()
		c.tell(MailCancel, id)
		c.when(1, "SREM", []string{s.key.Cancelled()}, id)
		c.do("PEXPIRE", s.key.ID(id), IDMemory.Milliseconds())
		if _, err := c.apply(ctx); err != nil {
			return err
		}
	}
	return nil
}

// errChanged says that a value is not what it was.
var errChanged = errors.New("changed")

// ForgetID forgets an ID, if what it says is still the same.
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

// RecordRefused notes that a job was refused before it was offered, and why. Its stamp is
// given to it here.
func (s *Store) RecordRefused(ctx context.Context, lane Lane, reason string, job *envelope.Envelope) error {
	view, err := s.Look(ctx, nil)
	if err != nil {
		return err
	}
	named := *job
	named.Stamp = envelope.Stamp(view.Now)
	pipe := s.client.TxPipeline()
	pipe.Do(ctx, append([]any{"XADD", s.key.Refused()}, dropRecord(refusedKept, lane, reason, "", named.String(), view.Now)...)...)
	pipe.HIncrBy(ctx, s.key.Meta(), droppedFor+reason, 1)
	if reason == ReasonDuplicate {
		pipe.HIncrBy(ctx, s.key.Meta(), "duplicates", 1)
	}
	_, err = pipe.Exec(ctx)
	return err
}

// ReasonDuplicate is the reason of a refused job that counts as a duplicate.
const ReasonDuplicate = "duplicate"
