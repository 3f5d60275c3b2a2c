package store

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"
)

// Somebody may write into a key of the queue by mistake, so that it has another type. What follows depends on whose
// the key is:
//
//   - A key of a tenant or a user concerns its owner alone. Readers take it for empty. What a commit
//     cannot do with it is left out, and the reply names it ([CommitReply].Errors); a job that cannot be put
//     into such a lane is dead.
//   - A key of the queue itself concerns all. Taken for empty it would lose jobs: so scripts look at the types of
//     these keys before they write, and do nothing if one is wrong. Nothing starts until it is repaired.
//
// A key that is not there is an empty one: Redis deletes a key with its last member.

// CheckTypes returns a [BrokenKeyError] if a key that the leader decides by has another type. Each muster calls it,
// since some reads take such a key for an empty one. It takes one round trip.
func (s *Store) CheckTypes(ctx context.Context) error {
	types := map[string]string{
		s.key.Meta(): "hash", s.key.Policies(): "hash", s.key.Tenants(): "zset", s.key.Later(): "zset", s.key.Workers(): "zset",
		s.key.Notices(): "stream", s.key.Paused(): "zset", s.key.Cancelled(): "set", s.key.Dead(): "stream",
	}
	keys := slices.Sorted(maps.Keys(types))
	found, err := s.types(ctx, keys...)
	if err != nil {
		return err
	}
	for i, key := range keys {
		if found[i] != types[key] && found[i] != "none" {
			return &BrokenKeyError{key, types[key]}
		}
	}
	return nil
}

// Holds reports whether the keys of a lane can hold jobs: they have their types, or are not
// there. The leader asks before it buries a job whose lane seemed broken. It takes one round trip.
func (s *Store) Holds(ctx context.Context, lane Lane) (bool, error) {
	found, err := s.types(ctx, s.key.Lane(lane), s.key.Due(lane.Tenant, lane.Priority), s.key.Fold(lane.Tenant, lane.User))
	for i, want := range [...]string{"list", "zset", "hash"} {
		if err != nil || found[i] != want && found[i] != "none" {
			return false, err
		}
	}
	return true, nil
}

// types returns the types of keys, "none" for one that is not there, in one round trip.
func (s *Store) types(ctx context.Context, keys ...string) ([]string, error) {
	found, err := each(ctx, s, keys, func(pipe redis.Pipeliner, key string) *redis.StatusCmd { return pipe.Type(ctx, key) })
	return values(found), err
}
