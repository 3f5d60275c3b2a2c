package examine

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// workers looks for claims that nobody will end, and for workers without a record.
func (l *look) workers(ctx context.Context) error {
	for _, worker := range l.names.running {
		still := func(ctx context.Context) (bool, error) {
			pipe := l.Client.TxPipeline()
			held, known := pipe.HLen(ctx, l.key.Running(worker)), pipe.ZScore(ctx, l.key.Workers(), worker)
			_, err := pipe.Exec(ctx)
			return held.Val() > 0 && known.Err() == redis.Nil, serious(err)
		}
		if suspect, err := still(ctx); err != nil {
			return err
		} else if suspect {
			l.add(damage{
				Finding: Finding{
					Kind: Claims, Key: l.key.Running(worker), Seen: "claims of a worker that is not among the workers",
					Problem: "nobody takes them back: their jobs are not started",
					Repair:  "the worker is listed with a lease that has ended, and the leader takes the jobs back",
				},
				still: still,
				mend: func(ctx context.Context) error {
					return l.repair(ctx, store.Mend{Do: [][]any{{"ZADD", l.key.Workers(), "NX", 1, worker}}})
				},
			})
		}
		if err := l.claims(ctx, worker); err != nil {
			return err
		}
	}
	return l.records(ctx)
}

// farAhead is how far ahead of Redis's clock slots may lie: claims are given some
// milliseconds before, and by up to a minute more to a leader that does not know the clock.
const farAhead = 2 * time.Minute

// horizon is the latest instant at which a slot may lie. A clock that was set back explains
// as much more.
func (l *look) horizon() int64 { return l.now + l.behind + farAhead.Microseconds() }

// claims looks for claims whose slots lie too far ahead.
func (l *look) claims(ctx context.Context, worker string) error {
	key := l.key.Running(worker)
	for cursor := uint64(0); ; {
		fields, next, err := l.Client.HScan(ctx, key, cursor, "", chunk).Result()
		if err != nil {
			return serious(err)
		}
		for i := 0; i < len(fields); i += 2 {
			name := fields[i]
			claim, bad := envelope.ParseClaim(name)
			if bad != nil || max(claim.Slot, claim.Spent) <= l.horizon() {
				continue
			}
			l.add(damage{
				Finding: Finding{
					Kind: Claims, Key: key, Seen: fmt.Sprintf("claim %q, whose slot lies %v ahead", name, l.until(claim.Slot)),
					Problem: "its job does not start before; restart the worker, and the job gets another slot when its lease has ended",
				},
				still: func(ctx context.Context) (bool, error) { return l.Client.HExists(ctx, key, name).Result() },
			})
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// until returns how long it is until an instant.
func (l *look) until(at int64) time.Duration {
	return (time.Duration(at-l.now) * time.Microsecond).Round(time.Second)
}

// records looks for workers of which nothing is known, and whose leases are long: one that
// lives writes its record with each beat, and one that is dead is forgotten when its lease ends.
func (l *look) records(ctx context.Context) error {
	leases, err := l.Client.ZRangeWithScores(ctx, l.key.Workers(), 0, -1).Result()
	if err != nil {
		return serious(err)
	}
	for _, lease := range leases {
		worker, until := lease.Member.(string), int64(lease.Score)
		still := func(ctx context.Context) (bool, error) {
			pipe := l.Client.TxPipeline()
			record, lease := pipe.Exists(ctx, l.key.Worker(worker)), pipe.ZScore(ctx, l.key.Workers(), worker)
			_, err := pipe.Exec(ctx)
			return record.Val() == 0 && int64(lease.Val()) > l.horizon(), serious(err)
		}
		if suspect, err := still(ctx); err != nil {
			return err
		} else if !suspect {
			continue
		}
		l.add(damage{
			Finding: Finding{
				Kind: Worker, Key: l.key.Worker(worker), Seen: fmt.Sprintf("no record, and the worker has a lease for %v", l.until(until)),
				Problem: "it is given no jobs, and those that it has come back when its lease ends",
				Repair:  "its lease ends in a minute, unless it renews it",
			},
			still: still,
			mend: func(ctx context.Context) error {
				return l.repair(ctx, store.Mend{
					If: []store.Condition{{Want: 0, Command: []any{"EXISTS", l.key.Worker(worker)}}},
					Do: [][]any{{"ZADD", l.key.Workers(), "XX", "LT", l.now + time.Minute.Microseconds(), worker}},
				})
			},
		})
	}
	return nil
}
