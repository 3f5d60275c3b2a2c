package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Durability is where a batch has to be, besides the memory of the master, before its offer returns.
type Durability struct {
	Replicas int  // how many replicas have it: in memory, or with Disk on disk
	Disk     bool // the append-only file of the master has it, on disk
}

func (d Durability) isZero() bool { return d == Durability{} }

// A NotDurableError says that a batch is in Redis, and not yet everywhere it has to be.
type NotDurableError struct {
	Want     Durability
	Replicas int  // that have it
	Disk     bool // the master's disk has it
}

// ErrNotDurable is what every [NotDurableError] wraps.
var ErrNotDurable = errors.New("queue: jobs are in Redis, and not yet everywhere they have to be")

func (e *NotDurableError) Unwrap() error { return ErrNotDurable }

func (e *NotDurableError) Error() string {
	if e.Want.Disk && !e.Disk {
		return "the jobs are in Redis, but not yet on its disk"
	}
	they, where := "replicas have", ""
	if e.Want.Replicas == 1 {
		they = "replica has"
	}
	if e.Want.Disk {
		where = " on disk"
	}
	return fmt.Sprintf("the jobs are in Redis, but only %d of %d %s them%s", e.Replicas, e.Want.Replicas, they, where)
}

// oneWait is how long a connection waits for replicas and disks. It is shorter than the time that clients give an answer
// (3 s, if they do not say otherwise). The caller offers the batch again after it.
const oneWait = 500 * time.Millisecond

// offerDurably sends an offer and waits until it is where it has to be:
//
//  1. offer.lua
//  2. a write to the key of the batch: it is known for as long as if it had just come
//  3. WAIT or WAITAOF, which answers when enough replicas, or disks, have what this connection wrote
//
// The second is for a batch that came before: for it the script writes nothing, and what it wrote the first time was on
// another connection, which WAIT knows nothing of. Replicas get all writes in their order: who has the second has what was
// written before it by anybody.
//
// All three go over one connection of the node that has the queue, which Watch holds: nothing else of
// [redis.UniversalClient] does so for every kind of client. What is watched does not matter; the key of the batch is one
// that nobody else writes.
func (s *Store) offerDurably(ctx context.Context, o Offer, keys []string, args []any) *redis.Cmd {
	batch, script := s.key.Batch(o.Batch), scripts()["offer"]
	var offered *redis.Cmd
	err := s.client.Watch(ctx, func(tx *redis.Tx) error {
		var waited *redis.Cmd
		send := func(run func(context.Context, redis.Scripter, []string, ...any) *redis.Cmd) error {
			pipe := tx.Pipeline()
			offered = run(ctx, pipe, keys, args...)
			pipe.PExpire(ctx, batch, o.Keep)
			waited = pipe.Do(ctx, o.Durable.command()...)
			_, err := pipe.Exec(ctx)
			return err
		}
		err := send(script.EvalSha)
		if redis.HasErrorPrefix(offered.Err(), "NOSCRIPT") {
			err = send(script.Eval)
		}
		if offered.Err() != nil {
			return offered.Err()
		}
		if waited.Err() != nil {
			return o.Durable.explain(waited.Err())
		}
		if err != nil {
			return err
		}
		return o.Durable.read(waited)
	}, batch)
	if err != nil {
		failed := redis.NewCmd(ctx)
		failed.SetErr(err)
		return failed
	}
	return offered
}

// command returns the words of the command that waits.
func (d Durability) command() []any {
	if d.Disk {
		return []any{"waitaof", 1, d.Replicas, oneWait.Milliseconds()}
	}
	return []any{"wait", d.Replicas, oneWait.Milliseconds()}
}

// explain says what Redis lacks to wait.
func (d Durability) explain(err error) error {
	switch text := err.Error(); {
	case strings.Contains(text, "unknown command"):
		return fmt.Errorf("the jobs are in Redis, but it cannot wait for its disk: want Redis 7.2 or later, or Valkey: %w", err)
	case strings.Contains(text, "appendonly is disabled"):
		return fmt.Errorf("the jobs are in Redis, but it writes no append-only file: want appendonly yes in its configuration: %w", err)
	}
	return err
}

// read reads the reply of the command that waits: how many replicas, or on how many disks of the master and of replicas.
func (d Durability) read(waited *redis.Cmd) error {
	have := NotDurableError{Want: d}
	var err error
	if d.Disk {
		var counts []int64
		if counts, err = waited.Int64Slice(); err == nil && len(counts) == 2 {
			have.Disk, have.Replicas = counts[0] > 0, int(counts[1])
		}
	} else {
		have.Replicas, err = waited.Int()
	}
	if err != nil {
		return err
	}
	if have.Replicas < d.Replicas || d.Disk && !have.Disk {
		return &have
	}
	return nil
}
