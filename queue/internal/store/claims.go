package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A claim is a field of its worker's hash: its name, and the job as it stood in its lane. The name says all that the
// leader needs to take the job back ([envelope.Claim]). The commit that takes a job out of its lane writes the claim;
// an ack, a failure or another commit ends it. Ending a claim that is not there does nothing, so an ack may be
// repeated.

// A Claimed is a job that a worker has.
type Claimed struct {
	Claim
	Job string // as it stood in its lane, or under its collapse key
}

// parseClaim reads the name of a claim in Redis. A malformed one is not valid, see [Claim.Valid]: those who hold it
// end it.
func parseClaim(name string) Claim {
	claim, _ := envelope.ParseClaim(name)
	return claim
}

// Claimed returns all that a worker has, in no order, in one round trip. What changes while the reply is on its way is
// not in it: callers that start or give up claims by it have to allow for that.
func (s *Store) Claimed(ctx context.Context, worker string) ([]Claimed, error) {
	found, err := s.dedicated.HGetAll(ctx, s.key.Running(worker)).Result()
	all := make([]Claimed, 0, len(found))
	for name, job := range found {
		if job != "" {
			all = append(all, Claimed{parseClaim(name), job})
		}
	}
	return all, asBroken(err, s.key.Running(worker), "hash")
}

// Claims returns all claims of workers, without their jobs, in one round trip. Malformed ones are among them.
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

// ClaimedJobs returns the jobs of claims, in one round trip; "" for one that the worker does not have.
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

// An Ack ends claims of one worker.
type Ack struct {
	Worker  string
	Claims  []Claim // at least one
	Payload string  // of the only claim, to be deleted, if it is kept apart
	Refund  string  // what the leader is to refund for the only claim; "" for nothing
	Done    string  // the job of the only claim, if somebody is told that it is done; "" if nobody is
}

// Ack ends claims of jobs that need no more attempts, in one round trip, and tells the leader. Claims that were lost
// are passed over. A refund, the record of a job that is done, and the deletion of a payload happen if a claim was still
// held: so an Ack that is sent twice has its effects once, and after an error the caller sends it again. Those of many jobs
// go by the dedicated connections; of those of one job there may be as many at once as jobs end.
func (s *Store) Ack(ctx context.Context, a Ack) (Reading, error) {
	keys := []string{s.key.Meta(), s.key.Running(a.Worker), s.key.Notices()}
	args := []any{a.Refund}
	run := s.run
	if a.Refund == "" && a.Payload == "" && a.Done == "" {
		run = s.runDedicated
	}
	if a.Payload != "" || a.Done != "" {
		lane := ""
		if a.Done != "" {
			lane = a.Claims[0].Lane.Name()
		}
		keys, args = append(keys, s.key.Done()), append(args, lane, a.Done[:min(len(a.Done), headLen)])
	}
	if a.Payload != "" {
		keys = append(keys, s.key.Body(a.Payload))
	}
	for _, claim := range a.Claims {
		args = append(args, claim.String())
	}
	asked := time.Now()
	reply := readFields(run(ctx, "ack", keys, args...), 2)
	return Reading{reply.int(0), asked, time.Now()}, reply.err
}
