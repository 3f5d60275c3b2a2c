package store

import (
	"context"
	"errors"
	"maps"

	"github.com/redis/go-redis/v9"
)

// A leader knows how new its settings are by a number: each change that fences raises it, and a commit with another
// number is refused. So the leader reads the settings only when the number has changed. Jobs that are cancelled do not
// raise it: the leader is told of each, and the commits that start jobs with IDs check.

// Settings are what people have decided: policies, pauses, cancelled jobs.
type Settings struct {
	Meta
	Source    string           // of the policies that Redis holds
	Version   int64            // of these; 0 if there never were any, or Redis has lost them
	Paused    map[string]int64 // scope → until when, pauses that have ended included
	Cancelled []string         // IDs of waiting jobs that never run
}

// Settings reads what people have decided: in one round trip, and more of them if hundreds of scopes are
// paused, or jobs cancelled. Meta is read first: whatever changes while the rest is read has another number
// than its Changes, and Redis refuses the commits of a leader that knows only this one.
func (s *Store) Settings(ctx context.Context) (Settings, error) {
	pipe := s.client.Pipeline()
	meta := s.meta(ctx, pipe)
	policies := pipe.HMGet(ctx, s.key.Policies(), "source", "version")
	paused := pipe.ZScan(ctx, s.key.Paused(), 0, "", scanStep)
	cancelled := pipe.SScan(ctx, s.key.Cancelled(), 0, "", scanStep)
	if err := errors.Join(ask(ctx, pipe), brokenOf("hash", meta, policies), brokenOf("zset", paused), brokenOf("set", cancelled)); err != nil {
		return Settings{}, err
	}
	all := Settings{Meta: readMeta(meta), Paused: make(map[string]int64)}
	all.Source, all.Version = readPolicies(policies)
	err := errors.Join(
		walkOn(paused, func(cursor uint64) *redis.ScanCmd { return s.client.ZScan(ctx, s.key.Paused(), cursor, "", scanStep) },
			func(found []string) { maps.Copy(all.Paused, pairs(found)) }),
		walkOn(cancelled, func(cursor uint64) *redis.ScanCmd {
			return s.client.SScan(ctx, s.key.Cancelled(), cursor, "", scanStep)
		},
			func(found []string) { all.Cancelled = append(all.Cancelled, found...) }))
	return all, err
}
