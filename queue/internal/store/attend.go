package store

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// Of a queue with several partitions, wc:{q}: has three keys about its workers, beside their records:
//
//	workers            a sorted set: worker → when its lease ends. It has another name in each partition in which it takes part
//	wanted             a hash: partition → how many workers it wants, and until when
//	sizes              a hash: worker → how many places it has
//
// A worker that does not renew its lease there takes part in no partition any more, as others see it. What it holds in the partitions
// stays its own until its leases there end.

// An Attendance is a worker's sign of life in a divided queue.
type Attendance struct {
	Worker string
	Lease  time.Duration
	Record WorkerRecord
	Wishes map[int]int   // partition → how many workers it wants
	Hold   time.Duration // a wish that is not repeated is halved after that
	Least  int           // how many workers each partition has without a wish
}

// A Roll is who takes part in a divided queue.
type Roll struct {
	Now     int64
	Workers []string    // those that live, in the order of their names
	Wanted  map[int]int // partition → how many workers it wants, if that is more than the least
	Places  int         // of all of them
}

// Attend renews a worker's lease in a divided queue, and returns who else is there, in one round trip. It may be sent twice.
func (s *Store) Attend(ctx context.Context, a Attendance) (Roll, error) {
	args := []any{a.Worker, a.Lease.Microseconds(), a.Hold.Microseconds(), a.Least, len(a.Wishes)}
	for partition, n := range a.Wishes {
		args = append(args, partition, n)
	}
	args = append(args, a.Record.Places, "host", a.Record.Host, "of", a.Worker, "places", a.Record.Places, "since", a.Record.Since, "version", a.Record.Version)
	reply := readFields(s.runDedicated(ctx, "attend", []string{s.key.Workers(), s.key.Wanted(), s.key.Worker(a.Worker), s.key.Sizes()}, args...), 4)
	roll := Roll{Now: reply.int(0), Workers: reply.texts(1), Wanted: make(map[int]int)}
	slices.Sort(roll.Workers)
	for pair := range slices.Chunk(reply.texts(2), 2) {
		if partition, err := strconv.Atoi(pair[0]); err == nil {
			roll.Wanted[partition] = int(number(pair[1]))
		}
	}
	roll.Places = int(reply.int(3))
	return roll, reply.err
}

// FleetPlaces returns how many places the workers have that live, of the whole queue.
func (s *Store) FleetPlaces(ctx context.Context, now int64) (n int, err error) {
	key := s.whole().key
	pipe := s.client.Pipeline()
	alive := pipe.ZRangeByScore(ctx, key.Workers(), &redis.ZRangeBy{Min: strconv.FormatInt(now, 10), Max: "+inf"})
	sizes := pipe.HGetAll(ctx, key.Sizes())
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, asBroken(asBroken(err, key.Workers(), "zset"), key.Sizes(), "hash")
	}
	for _, worker := range alive.Val() {
		n += int(number(sizes.Val()[worker]))
	}
	return n, nil
}

// Absent takes a worker out of those of a divided queue, in one round trip.
func (s *Store) Absent(ctx context.Context, worker string) error {
	pipe := s.client.Pipeline()
	pipe.ZRem(ctx, s.key.Workers(), worker)
	pipe.Del(ctx, s.key.Worker(worker))
	pipe.HDel(ctx, s.key.Sizes(), worker)
	_, err := pipe.Exec(ctx)
	return err
}
