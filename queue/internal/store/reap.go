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

// A ClaimScan is a place in a walk through all claims of a worker.
type ClaimScan struct {
	Worker string
	Done   bool
	cursor uint64
}

// ScanClaims returns some of a worker's claims, and where it goes on. A claim may come twice.
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

// Reapable is what a worker has whose lease has expired.
type Reapable struct {
	Meta
	Claims []Claimed // those that were asked for and are there, in that order
	Held   int       // all of them
}

// Amnesty reports whether no claims are taken back at an instant, since the workers, whose
// leases are that long, could not reach Redis.
func (m Meta) Amnesty(now int64, lease time.Duration) bool {
	return m.amnesty > now || now-m.beat > silence(lease)
}

// Reapable reads claims of a worker whose lease has expired.
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
