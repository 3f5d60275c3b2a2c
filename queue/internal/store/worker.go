package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What workers and leaders write of themselves:
//
//	workers            a sorted set: worker → when its lease ends (beat.lua)
//	worker:<worker>    its record, for the leader and for people
//	running:<worker>   its claims with their jobs: made by commits, ended by ack.lua, changes and commits
//	hand:<worker>      messages for it, written by commits
//	meta               who leads until when (lead.lua, commit.lua)
//
// A claim is in exactly one of the hashes. Whoever ends it names the hash: so a worker that was reaped cannot end
// the claim that another worker has for the same job by now.

// A Beat is a worker's sign of life.
type Beat struct {
	Worker string
	Lease  time.Duration
	Leased bool // it has had a lease before
	Record WorkerRecord
}

// A WorkerRecord is what the fleet knows of a worker.
type WorkerRecord struct {
	Places  int
	Doubt   time.Duration // how far its idea of Redis's clock may be off
	Started int64         // every claim with an earlier slot has started
	Host    string
	Since   int64
	Version string
	Late    time.Duration // the 99th percentile of the time from slot to start, lately
}

// A BeatReply answers a beat.
type BeatReply struct {
	Reading
	Alive    bool  // the lease holds; otherwise the claims are gone
	Held     int   // claims
	Till     int64 // when the leader's lease ends
	Leader   string
	Policies int64 // version
	Listened int64 // until when somebody listens to what happens
}

// Beat renews a worker's lease.
func (s *Store) Beat(ctx context.Context, b Beat) (BeatReply, error) {
	asked := time.Now()
	r := b.Record
	reply := readFields(s.run(ctx, "beat",
		[]string{s.key.Meta(), s.key.Workers(), s.key.Worker(b.Worker), s.key.Running(b.Worker), s.key.Mail()},
		Schema, b.Worker, b.Lease.Microseconds(), flag(b.Leased), silence(b.Lease),
		"places", r.Places, "doubt", r.Doubt.Microseconds(), "started", r.Started, "host", r.Host, "since", r.Since,
		"version", r.Version, "late", r.Late.Microseconds()), 7)
	return BeatReply{
		Reading: Reading{reply.int(0), asked, time.Now()}, Alive: reply.int(1) == 1, Held: int(reply.int(2)),
		Till: reply.int(3), Leader: reply.text(4), Policies: reply.int(5), Listened: reply.int(6),
	}, reply.err
}

// silence returns after how many µs without a beat of any worker nobody has reached Redis:
// then leases say nothing of those who hold them.
func silence(lease time.Duration) int64 { return max(lease*2/5, time.Second).Microseconds() }

// A Term is a time of leadership.
type Term struct {
	Reading
	Token    string // "" if another worker leads
	Till     int64  // when the leader's lease ends
	Seq      int64  // of the last commit
	Changes  int64
	Policies int64 // version
	Mail     string
}

// Lead makes the worker the leader if nobody is. With the token of its present term it
// leads on under a new one, so that nothing sent under the old one can happen any more.
func (s *Store) Lead(ctx context.Context, worker string, lease time.Duration, token string) (Term, error) {
	asked := time.Now()
	reply := readFields(s.run(ctx, "lead", []string{s.key.Meta()}, Schema, worker, lease.Microseconds(), token), 7)
	return Term{
		Reading: Reading{reply.int(0), asked, time.Now()}, Token: reply.text(1), Till: reply.int(2), Seq: reply.int(3),
		Changes: reply.int(4), Policies: reply.int(5), Mail: reply.text(6),
	}, reply.err
}

// Resign ends a term and tells a successor, if there is one. What was sent under the term's
// token can happen no more.
func (s *Store) Resign(ctx context.Context, token, successor string) error {
	c := s.newChange()
	c.when(token, "HGET", []string{s.key.Meta()}, "leader")
	c.do("HSET", s.key.Meta(), "till", 0, "leader", "")
	if successor != "" {
		c.do("RPUSH", s.key.Hand(successor), HandLead)
		c.do("PEXPIRE", s.key.Hand(successor), time.Minute.Milliseconds())
	}
	_, err := c.apply(ctx)
	return err
}

// Leases returns when the workers' leases end.
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
	Claims  int
	Untaken int64 // when it was told the first thing that it has not taken from its hand; 0 for nothing
}

// Records returns what is known of workers, and their loads.
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

func (s *Store) loads(ctx context.Context, pipe redis.Pipeliner, workers []string) ([]Load, error) {
	claims := add(pipe, workers, s.countClaims(ctx))
	hands := add(pipe, workers, func(pipe redis.Pipeliner, worker string) *redis.StringCmd {
		return pipe.LIndex(ctx, s.key.Hand(worker), 0)
	})
	if err := errors.Join(ask(ctx, pipe), brokenOf("hash", claims...), brokenOf("list", hands...)); err != nil {
		return nil, err
	}
	loads := make([]Load, len(workers))
	for i := range workers {
		loads[i].Claims = int(claims[i].Val())
		loads[i].Untaken = toldAt(hands[i].Val())
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
		Host: f["host"], Since: n("since"), Version: f["version"], Late: time.Duration(n("late")) * time.Microsecond,
	}
}

// A Claimed is a job that a worker has.
type Claimed struct {
	Claim
	Job string
}

// parseClaim reads the name of a claim in Redis. A malformed one is not valid: those who hold it
// end it.
func parseClaim(name string) Claim {
	claim, _ := envelope.ParseClaim(name)
	return claim
}

// Claimed returns all that a worker has.
func (s *Store) Claimed(ctx context.Context, worker string) ([]Claimed, error) {
	found, err := s.client.HGetAll(ctx, s.key.Running(worker)).Result()
	all := make([]Claimed, 0, len(found))
	for name, job := range found {
		if job != "" {
			all = append(all, Claimed{parseClaim(name), job})
		}
	}
	return all, asBroken(err, s.key.Running(worker), "hash")
}

// Claims returns all claims of workers, without their jobs.
func (s *Store) Claims(ctx context.Context, workers []string) (all []ClaimRef, err error) {
	found, err := each(ctx, s, workers, func(pipe redis.Pipeliner, worker string) *redis.StringSliceCmd {
		return pipe.HKeys(ctx, s.key.Running(worker))
	})
	for i, worker := range workers {
		for _, name := range found[i].Val() {
			all = append(all, ClaimRef{Worker: worker, Claim: parseClaim(name)})
		}
	}
	return all, errors.Join(err, brokenOf("hash", found...))
}

// ClaimedJobs returns the jobs of claims; "" for one that the worker does not have.
func (s *Store) ClaimedJobs(ctx context.Context, refs []ClaimRef) ([]string, error) {
	found, err := each(ctx, s, refs, s.claimedJob(ctx))
	return values(found), errors.Join(err, brokenOf("hash", found...))
}

// claimedJob returns the command that reads the job of a claim.
func (s *Store) claimedJob(ctx context.Context) func(redis.Pipeliner, ClaimRef) *redis.StringCmd {
	return func(pipe redis.Pipeliner, ref ClaimRef) *redis.StringCmd {
		return pipe.HGet(ctx, s.key.Running(ref.Worker), ref.Claim.String())
	}
}

// Started notes that the job with the caller's own ID was claimed, unless somebody was told that it
// is cancelled.
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

// An Ack ends claims.
type Ack struct {
	Worker  string
	Claims  []Claim
	Payload string // of the only claim, to be deleted, if it is kept apart
	Refund  string // what the leader is to refund for the only claim; "" for nothing
}

// Ack ends claims of jobs that need no more attempts.
func (s *Store) Ack(ctx context.Context, a Ack) (Reading, error) {
	keys := []string{s.key.Meta(), s.key.Running(a.Worker), s.key.Mail()}
	if a.Payload != "" {
		keys = append(keys, s.key.Body(a.Payload))
	}
	args := []any{a.Refund}
	for _, claim := range a.Claims {
		args = append(args, claim.String())
	}
	asked := time.Now()
	reply := readFields(s.run(ctx, "ack", keys, args...), 2)
	return Reading{reply.int(0), asked, time.Now()}, reply.err
}

// Hand waits for a message in the worker's hand, at most for the given time; "" if none
// came. Redis's clock had reached the returned instant when the message was written.
func (s *Store) Hand(ctx context.Context, worker string, patience time.Duration) (message string, at int64, err error) {
	popped, err := s.waits.BLPop(ctx, patience, s.key.Hand(worker)).Result()
	if errors.Is(err, redis.Nil) {
		return "", 0, nil
	}
	if errors.Is(err, redis.ErrPoolTimeout) {
		return "", 0, fmt.Errorf("%w: all connections of the client wait; want a PoolSize above twice the number of queues", err)
	}
	if err != nil {
		return "", 0, asBroken(err, s.key.Hand(worker), "list")
	}
	message, at = readMessage(popped[1])
	return message, at, nil
}

// HandRest takes what else is in the worker's hand by now, n messages at most.
func (s *Store) HandRest(ctx context.Context, worker string, n int) (messages []string, err error) {
	popped, err := s.client.LPopCount(ctx, s.key.Hand(worker), n).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	for _, text := range popped {
		message, _ := readMessage(text)
		messages = append(messages, message)
	}
	return messages, err
}

// readMessage parts a message of a commit from its instant; 0 for any other message.
func readMessage(text string) (message string, at int64) {
	when, message, _ := strings.Cut(text, " ")
	at, err := strconv.ParseInt(when, 10, 64)
	if err != nil {
		return text, 0
	}
	return message, at
}

// Nudge puts a message into a worker's hand that only wakes it.
func (s *Store) Nudge(ctx context.Context, worker string) error {
	pipe := s.client.TxPipeline()
	pipe.RPush(ctx, s.key.Hand(worker), "!")
	pipe.PExpire(ctx, s.key.Hand(worker), 10*time.Second)
	_, err := pipe.Exec(ctx)
	return err
}

// Leave takes a worker out of the fleet, and reports whether it had nothing any more:
// otherwise it stays.
func (s *Store) Leave(ctx context.Context, worker string) (bool, error) {
	c := s.newChange()
	c.when(0, "HLEN", []string{s.key.Running(worker)})
	c.do("ZREM", s.key.Workers(), worker)
	c.do("DEL", s.key.Worker(worker))
	c.do("DEL", s.key.Hand(worker))
	left, err := c.apply(ctx)
	return left[0], err
}
