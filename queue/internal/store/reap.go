package store

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
)

// How the leader takes claims back from dead workers is argued in package leader, reap.go. These are its readers: a
// worker may have had tens of thousands of claims, so their names are read in steps, and their jobs for those alone
// that one commit takes back.

// A ClaimScan is a place in a walk through all claims of a worker. It begins with the worker's name alone.
type ClaimScan struct {
	Worker string
	Done   bool   // nothing is left
	cursor uint64 // as Redis counts
}

// ScanClaims returns some of a worker's claims, and where it goes on, in one round trip. A claim may come twice. One
// that is there during the whole walk comes at least once.
func (s *Store) ScanClaims(ctx context.Context, at ClaimScan) (claims []Claim, next ClaimScan, err error) {
	found, cursor, err := s.client.HScan(ctx, s.key.Running(at.Worker), at.cursor, "", scanStep).Result()
	if err != nil && !wrongType(err) {
		return nil, at, err
	}
	for i := 0; i < len(found); i += 2 {
		claims = append(claims, parseClaim(found[i]))
	}
	return claims, ClaimScan{at.Worker, cursor == 0, cursor}, nil
}

// Reapable is what a worker has whose lease has expired, with what decides whether it may be taken back.
type Reapable struct {
	Meta
	Claims []Claimed // those that were asked for and are there, in that order
	Held   int       // all of them
}

// Amnesty reports whether no claims are taken back at an instant, since the workers, whose leases are that long, could
// not reach Redis. So it is while no beat of any worker has come for some time (silence), and until the instant that
// the first beat after such a time has set (beat.lua): one lease later.
func (m Meta) Amnesty(now int64, lease time.Duration) bool {
	return m.amnesty > now || now-m.beat > silence(lease)
}

// Reapable reads claims of a worker whose lease has expired, in one round trip. The commit that takes them back checks
// again what was read ([Commit.Expired], [Commit.EndClaim]).
func (s *Store) Reapable(ctx context.Context, worker string, claims []Claim) (Reapable, error) {
	pipe := s.client.Pipeline()
	meta, held := s.meta(ctx, pipe), pipe.HLen(ctx, s.key.Running(worker))
	jobs := add(pipe, claims, func(pipe redis.Pipeliner, claim Claim) *redis.StringCmd {
		return pipe.HGet(ctx, s.key.Running(worker), claim.String())
	})
	err := errors.Join(ask(ctx, pipe), brokenOf("hash", meta))
	r := Reapable{Meta: readMeta(meta), Held: int(held.Val())}
	for i, claim := range claims {
		if job, err := jobs[i].Result(); err == nil {
			r.Claims = append(r.Claims, Claimed{claim, job})
		}
	}
	return r, err
}

// Lives checks that a worker has not left the fleet. Only claims of workers in the fleet are reaped: what one that has
// left was given would never come back.
func (c *Commit) Lives(worker string) int {
	return c.is("ZSCORE", c.own(c.s.key.Workers(), "zset"), worker, true)
}

// Expired checks that the lease of a worker is over, and that workers whose leases have that length could have renewed
// them: some worker's beat has reached Redis lately, and no amnesty holds. See [Meta.Amnesty].
func (c *Commit) Expired(worker string, lease time.Duration) int {
	return c.check.add("expired", c.keys.number(c.own(c.s.key.Workers(), "zset")), worker, silence(lease))
}

// Forget removes a worker that is dead from the fleet, with its record and its messages. The commit that ends its last
// claims does it.
func (c *Commit) Forget(worker string) {
	c.op(&c.extra, "ZREM", c.own(c.s.key.Workers(), "zset"), worker)
	c.op(&c.extra, "DEL", c.s.key.Mailbox(worker))
	c.op(&c.extra, "DEL", c.s.key.Worker(worker))
}
