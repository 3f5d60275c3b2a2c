package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// A Durability is where a batch has to be, besides the memory of the master, before its jobs count as accepted.
type Durability struct {
	Replicas int  // how many replicas have it: in memory, or with Disk on disk
	Disk     bool // the append-only file of the master has it, on disk
}

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
// (3 s, if they do not say otherwise).
const oneWait = 500 * time.Millisecond

// Durable waits until batches that have been offered are where they have to be, by two kinds of commands on one connection:
//
//  1. PEXPIRE of each batch: it is known for as long as if it had just come
//  2. WAIT or WAITAOF, which answers when enough replicas, or disks, have what this connection wrote
//
// The offers themselves were written by other connections, which WAIT knows nothing of. Replicas get all writes in their
// order: who has the first has all that was written before it, by anybody.
//
// PEXPIRE also tells whether this Redis knows the batch. One that it does not know was lost with another master, before that
// was replaced: known is false for it, and the caller offers it again. A master that knows a batch has its jobs, since a script
// is replicated as a whole.
//
// Both go over one connection to the node that has the queue, which Watch holds: nothing else of
// [redis.UniversalClient] does so for every kind of client. What is watched does not matter.
func (s *Store) Durable(ctx context.Context, batches []string, keep time.Duration, want Durability) (known []bool, err error) {
	err = s.client.Watch(ctx, func(tx *redis.Tx) error {
		pipe := tx.Pipeline()
		renewed := make([]*redis.BoolCmd, len(batches))
		for i, batch := range batches {
			renewed[i] = pipe.PExpire(ctx, s.key.Batch(batch), keep)
		}
		waited := pipe.Do(ctx, want.command()...)
		_, err := pipe.Exec(ctx)
		if waited.Err() != nil && renewed[0].Err() == nil {
			return want.explain(waited.Err())
		}
		if err != nil {
			return err
		}
		known = make([]bool, len(batches))
		for i := range renewed {
			known[i] = renewed[i].Val()
		}
		return want.read(waited)
	}, s.key.Batch(batches[0]))
	return known, err
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
