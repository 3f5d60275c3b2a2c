package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// What workers and leaders write of themselves:
//
//	workers            a sorted set: worker → when its lease ends (beat.lua)
//	worker:<worker>    its record, for the leader and for people
//	running:<worker>   its claims with their jobs: made by commits, ended by ack.lua, changes and commits
//	mailbox:<worker>      messages for it, written by commits
//	meta               who leads until when (lead.lua, commit.lua)
//
// A claim is in exactly one of the hashes. Whoever ends it names the hash: so a worker that was reaped cannot end
// the claim that another worker has for the same job by now.
//
// A worker that was reaped has left the sorted set. Its next beat is told so, and renews nothing: it must first let go
// of its claims. Only then it asks for a new lease.

// A Beat is a worker's sign of life.
type Beat struct {
	Worker string        // its name, which no other worker has had
	Lease  time.Duration // how long the lease holds from the beat on
	Leased bool          // its last beat left it a lease: if that is lost, this beat gives none
	Record WorkerRecord
}

// A WorkerRecord is what the fleet knows of a worker: its own words, written with each beat.
type WorkerRecord struct {
	Places  int           // for this queue: those that the worker's other queues leave to it, taken ones included
	Doubt   time.Duration // how far its idea of Redis's clock may be off
	Started int64         // every claim with an earlier slot has started, or was taken back
	Host    string        // for people
	Of      string        // in a queue with partitions, the worker's name in the whole queue: it has another one in each partition
	Since   int64         // the instant of its first beat
	Version string        // for people
	Late    time.Duration // the 99th percentile of the time from slot to start, in the last minute
}

// A BeatReply answers a beat.
type BeatReply struct {
	Reading
	Alive    bool   // the lease holds; otherwise the claims were taken back, and the worker compares
	Held     int    // how many claims Redis has of the worker
	Till     int64  // when the leader's lease ends; at or before Now nobody leads
	Leader   string // its token
	Policies int64  // the version in force
	Listened int64  // until when somebody listens to events
}

// Beat renews a worker's lease, in one round trip. A worker that is new, or has other places than before, is a notice
// to the leader. A beat may be sent twice. After an error the lease may have been renewed, or not; the caller beats
// again.
func (s *Store) Beat(ctx context.Context, b Beat) (BeatReply, error) {
	asked := time.Now()
	r := b.Record
	reply := readFields(s.runDedicated(ctx, "beat",
		[]string{s.key.Meta(), s.key.Workers(), s.key.Worker(b.Worker), s.key.Running(b.Worker), s.key.Notices()},
		Schema, b.Worker, b.Lease.Microseconds(), flag(b.Leased), silence(b.Lease),
		"places", r.Places, "doubt", r.Doubt.Microseconds(), "started", r.Started, "host", r.Host, "of", r.Of, "since", r.Since,
		"version", r.Version, "late", r.Late.Microseconds()), 7)
	return BeatReply{
		Reading: Reading{reply.int(0), asked, time.Now()}, Alive: reply.int(1) == 1, Held: int(reply.int(2)),
		Till: reply.int(3), Leader: reply.text(4), Policies: reply.int(5), Listened: reply.int(6),
	}, reply.err
}

// Leases returns when the leases of all workers of the fleet end, in one round trip. A lease in the past is that of a
// worker that died, or cannot reach Redis.
func (s *Store) Leases(ctx context.Context) (map[string]int64, error) {
	all, err := s.client.ZRangeWithScores(ctx, s.key.Workers(), 0, -1).Result()
	leases := make(map[string]int64, len(all))
	for _, z := range all {
		name, _ := z.Member.(string)
		leases[name] = int64(z.Score)
	}
	return leases, asBroken(err, s.key.Workers(), "zset")
}

// A Load is what a worker has to do.
type Load struct {
	Claims  int   // that it holds
	Untaken int64 // when it was told the first thing that it has not taken from its mailbox; 0 for nothing
}

// Records returns what is known of workers, and their loads, in one round trip. A worker without a record has the zero
// value: no places.
func (s *Store) Records(ctx context.Context, workers []string) ([]WorkerRecord, []Load, error) {
	pipe := s.client.Pipeline()
	fields := add(pipe, workers, func(pipe redis.Pipeliner, worker string) *redis.MapStringStringCmd {
		return pipe.HGetAll(ctx, s.key.Worker(worker))
	})
	loads, err := s.loads(ctx, pipe, workers)
	if err = errors.Join(err, brokenOf("hash", fields...)); err != nil {
		return nil, nil, err
	}
	records := make([]WorkerRecord, len(workers))
	for i := range workers {
		records[i] = readRecord(fields[i].Val())
	}
	return records, loads, nil
}

// loads adds the commands about loads to a pipeline, and sends it.
func (s *Store) loads(ctx context.Context, pipe redis.Pipeliner, workers []string) ([]Load, error) {
	claims := add(pipe, workers, s.countClaims(ctx))
	mailboxes := add(pipe, workers, func(pipe redis.Pipeliner, worker string) *redis.StringCmd {
		return pipe.LIndex(ctx, s.key.Mailbox(worker), 0)
	})
	if err := errors.Join(ask(ctx, pipe), brokenOf("hash", claims...), brokenOf("list", mailboxes...)); err != nil {
		return nil, err
	}
	loads := make([]Load, len(workers))
	for i := range workers {
		loads[i].Claims = int(claims[i].Val())
		loads[i].Untaken = toldAt(mailboxes[i].Val())
	}
	return loads, nil
}

// countClaims returns the command that counts the claims of a worker.
func (s *Store) countClaims(ctx context.Context) func(redis.Pipeliner, string) *redis.IntCmd {
	return func(pipe redis.Pipeliner, worker string) *redis.IntCmd { return pipe.HLen(ctx, s.key.Running(worker)) }
}

// readRecord reads a worker's record. Fields that a worker of another version has not written are 0.
func readRecord(f map[string]string) WorkerRecord {
	n := func(name string) int64 { return number(f[name]) }
	return WorkerRecord{
		Places: int(n("places")), Doubt: time.Duration(n("doubt")) * time.Microsecond, Started: n("started"),
		Host: f["host"], Of: f["of"], Since: n("since"), Version: f["version"], Late: time.Duration(n("late")) * time.Microsecond,
	}
}

// Leave takes a worker out of the fleet, in one round trip, and reports whether it had no claims any more: otherwise
// it stays, and the caller first lets its claims be taken back. A commit that gives it something later is refused
// ([Commit.Lives]): so no claim is left with a worker that nobody reaps.
func (s *Store) Leave(ctx context.Context, worker string) (bool, error) {
	c := s.newChange()
	c.when(0, "HLEN", []string{s.key.Running(worker)})
	c.do("ZREM", s.key.Workers(), worker)
	c.do("DEL", s.key.Worker(worker))
	c.do("DEL", s.key.Mailbox(worker))
	left, err := c.apply(ctx)
	return left[0], err
}

// A WorkerView is a worker of the fleet.
type WorkerView struct {
	Name  string
	Lease int64 // until when it holds
	WorkerRecord
	Load
}

// Fleet returns all workers that hold a lease, and those that died and were not reaped yet, by their names. It takes
// two round trips: a worker that has left in between has no record.
func (s *Store) Fleet(ctx context.Context) ([]WorkerView, error) {
	leases, err := s.Leases(ctx)
	if err != nil {
		return nil, err
	}
	names := slices.Sorted(maps.Keys(leases))
	records, loads, err := s.Records(ctx, names)
	if err != nil {
		return nil, err
	}
	workers := make([]WorkerView, len(names))
	for i, name := range names {
		workers[i] = WorkerView{name, leases[name], records[i], loads[i]}
	}
	return workers, nil
}
