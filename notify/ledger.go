package notify

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// A ledger remembers which devices of a job's user need no attempt any more, so that a
// retry goes only to the others, and whether the job has taken its place in the user's
// window. It is a set per job in Redis, written only for jobs with several devices.
type ledger struct {
	rdb redis.UniversalClient // nil remembers nothing
}

const (
	ledgerLife = 24 * time.Hour
	seen       = "seen" // the user has seen, or may have seen, the message
)

func ledgerKey(queue, id string) string { return "wc:notify:{" + queue + "}:job:" + id }

// read returns the devices, by their number in the message, that are settled.
func (l ledger) read(ctx context.Context, queue, id string) (map[string]bool, error) {
	if l.rdb == nil {
		return nil, nil
	}
	members, err := l.rdb.SMembers(ctx, ledgerKey(queue, id)).Result()
	if err != nil {
		return nil, fmt.Errorf("notify: reading which devices have the message: %w", err)
	}
	settled := make(map[string]bool, len(members))
	for _, m := range members {
		settled[m] = true
	}
	return settled, nil
}

// settle notes that a device needs no attempt any more.
func (l ledger) settle(ctx context.Context, queue, id string, device int, reached bool) error {
	if l.rdb == nil {
		return nil
	}
	members := []any{strconv.Itoa(device)}
	if reached {
		members = append(members, seen)
	}
	return l.write(ctx, ledgerKey(queue, id), members)
}

// mark notes that the user may have seen the message, though no device is settled.
func (l ledger) mark(ctx context.Context, queue, id string) error {
	if l.rdb == nil {
		return nil
	}
	return l.write(ctx, ledgerKey(queue, id), []any{seen})
}

func (l ledger) write(ctx context.Context, key string, members []any) error {
	// What a provider has accepted is noted even if the attempt is over meanwhile.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	pipe := l.rdb.Pipeline()
	pipe.SAdd(ctx, key, members...)
	pipe.Expire(ctx, key, ledgerLife)
	_, err := pipe.Exec(ctx)
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("notify: noting which devices have the message: %w", err)
	}
	return nil
}
