package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// mailEach is how many letters are read at a time, at most: what they ask for is done in one commit.
const mailEach = 200

// ReadMail returns the letters after the last one, and the ID of the newest. It waits for
// one if there is none; a patience below zero does not wait. First jobs of lanes that were
// offered together come in the order of the offer.
func (s *Store) ReadMail(ctx context.Context, after string, patience time.Duration) (string, []Letter, error) {
	streams, err := s.waits.XRead(ctx, &redis.XReadArgs{Streams: []string{s.key.Mail(), after}, Count: mailEach, Block: patience}).Result()
	if errors.Is(err, redis.Nil) {
		return after, nil, nil
	}
	if err != nil {
		return after, nil, asBroken(err, s.key.Mail(), "stream")
	}
	var letters []Letter
	for _, stream := range streams {
		for _, message := range stream.Messages {
			after = message.ID
			together := len(letters)
			for subject, text := range message.Values {
				if strings.HasPrefix(subject, "!") {
					subject, _, _ = strings.Cut(subject, " ")
				}
				value, _ := text.(string)
				letters = append(letters, Letter{subject, value})
			}
			// A job begins with its stamp; the client has put them into a map.
			slices.SortFunc(letters[together:], func(a, b Letter) int { return strings.Compare(a.Text, b.Text) })
		}
	}
	return after, letters, nil
}

// Write writes letters to the leader.
func (s *Store) Write(ctx context.Context, letters ...Letter) error {
	values := make([]any, 0, 2*len(letters))
	for i, letter := range letters {
		values = append(values, letter.Subject+" "+strconv.Itoa(i), letter.Text)
	}
	return asBroken(s.client.XAdd(ctx, &redis.XAddArgs{Stream: s.key.Mail(), Values: values}).Err(), s.key.Mail(), "stream")
}

// TrimMail deletes the letters whose effects were committed.
func (s *Store) TrimMail(ctx context.Context, through string) error {
	return s.client.XTrimMinID(ctx, s.key.Mail(), through).Err()
}

// Policies returns the source of the policies in force and its version; 0 if there never
// were any.
func (s *Store) Policies(ctx context.Context) (source string, version int64, err error) {
	cmd := s.client.HMGet(ctx, s.key.Policies(), "source", "version")
	source, version = readPolicies(cmd)
	return source, version, asBroken(cmd.Err(), s.key.Policies(), "hash")
}

func readPolicies(cmd *redis.SliceCmd) (source string, version int64) {
	texts := textsOf(cmd.Val())
	if len(texts) < 2 {
		return "", 0
	}
	return texts[0], number(texts[1])
}

// Pauses returns the scopes that are paused, and until when. It takes many short steps.
func (s *Store) Pauses(ctx context.Context) (map[string]int64, error) {
	all := make(map[string]int64)
	err := walk(func(cursor uint64) *redis.ScanCmd { return s.client.ZScan(ctx, s.key.Paused(), cursor, "", scanStep) },
		func(found []string) { maps.Copy(all, pairs(found)) })
	return all, asBroken(err, s.key.Paused(), "zset")
}

// Settings are what people have decided: policies, pauses, cancelled jobs.
type Settings struct {
	Meta
	Source    string // of the policies that Redis holds
	Version   int64  // of these; 0 if there never were any
	Paused    map[string]int64
	Cancelled []string // IDs of waiting jobs that never run
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

// A Bounded is a member of an index: it is not due before an instant.
type Bounded struct {
	Name string // escaped
	At   int64
}

// bounded reads members of a sorted set.
func bounded(all []redis.Z) []Bounded {
	front := make([]Bounded, len(all))
	for i, z := range all {
		front[i].Name, _ = z.Member.(string)
		front[i].At = int64(z.Score)
	}
	return front
}

// A Front is the lanes of a tenant and priority whose bounds are not before an
// instant, in their order, n at most.
type Front struct {
	Tenant   string
	Priority int
	From     int64
	N        int
}

// A LaneScan is a place in a walk through all lanes of a tenant.
type LaneScan struct {
	Tenant   string
	Done     bool
	priority int
	cursor   uint64
}

// ScanLanes returns some of the lanes, and where it goes on. A lane may come twice.
func (s *Store) ScanLanes(ctx context.Context, at LaneScan) (lanes []Lane, next LaneScan, err error) {
	found, cursor, err := s.client.ZScan(ctx, s.key.Due(at.Tenant, at.priority), at.cursor, "", scanStep).Result()
	if err != nil && !wrongType(err) {
		return nil, at, err
	}
	for i := 0; i < len(found); i += 2 {
		lanes = append(lanes, Lane{Tenant: at.Tenant, User: Unescape(found[i]), Priority: at.priority})
	}
	next = at
	if next.cursor = cursor; cursor == 0 {
		next.priority++
		next.Done = next.priority == len(suffixes)
	}
	return lanes, next, nil
}

// wrongType tells the answer of a key that holds something else. It is one tenant's
// trouble, and counts as nothing.
func wrongType(err error) bool { return strings.HasPrefix(err.Error(), "WRONGTYPE") }

// A Folded names a job by its collapse key.
type Folded struct{ Tenant, User, Key string }

// FoldedJobs returns jobs under their collapse keys; "" for one that is not there.
func (s *Store) FoldedJobs(ctx context.Context, folded []Folded) ([]string, error) {
	found, err := each(ctx, s, folded, func(pipe redis.Pipeliner, f Folded) *redis.StringCmd {
		return pipe.HGet(ctx, s.key.Fold(f.Tenant, f.User), f.Key)
	})
	return values(found), err
}

// States returns what the rules of subjects remember, by their scopes; "" for nothing.
func (s *Store) States(ctx context.Context, scopes []string) ([]string, error) {
	if len(scopes) == 0 {
		return nil, nil
	}
	keys := make([]string, len(scopes))
	for i, scope := range scopes {
		keys[i] = s.key.State(scope)
	}
	values, err := s.client.MGet(ctx, keys...).Result()
	if err != nil {
		return nil, err
	}
	return textsOf(values), nil
}

// Waiting returns the backlogs of tenants.
func (s *Store) Waiting(ctx context.Context, tenants []string) ([]int64, error) {
	found, err := each(ctx, s, tenants, func(pipe redis.Pipeliner, tenant string) *redis.SliceCmd {
		return pipe.HMGet(ctx, s.key.Tenant(tenant), "in", "back", "started", "dropped")
	})
	waiting := make([]int64, len(tenants))
	for i, counters := range found {
		waiting[i] = backlog(textsOf(counters.Val()))
	}
	return waiting, err
}

// Ripe returns what waits for its time and is due at an instant, in order, n at most, and
// when the next is due after those: 0 if nothing waits.
func (s *Store) Ripe(ctx context.Context, at int64, n int) (ripe []Bounded, next int64, err error) {
	all, err := s.client.ZRangeWithScores(ctx, s.key.Later(), 0, int64(n)).Result()
	if err != nil {
		return nil, 0, asBroken(err, s.key.Later(), "zset")
	}
	for i, b := range bounded(all) {
		if b.At > at || i == n {
			return ripe, b.At, nil
		}
		ripe = append(ripe, b)
	}
	return ripe, 0, nil
}

// ParseLater reads a member of what waits for its time: its lane and the job.
func ParseLater(member string) (Lane, string, error) {
	name, job, _ := strings.Cut(member, " ")
	lane, err := envelope.ParseLane(name)
	return lane, job, err
}

// SetSwept notes that all bounds are right under that version.
func (s *Store) SetSwept(ctx context.Context, version int64) error {
	return s.client.HSet(ctx, s.key.Meta(), "swept", version).Err()
}

// ScanTenants returns some of the tenants with waiting jobs, and the cursor of the next
// page: 0 after the last one. A tenant may come twice.
func (s *Store) ScanTenants(ctx context.Context, cursor uint64) (names []string, next uint64, err error) {
	found, next, err := s.client.ZScan(ctx, s.key.Tenants(), cursor, "", 100).Result()
	for i := 0; i < len(found); i += 2 {
		names = append(names, Unescape(found[i]))
	}
	return names, next, err
}

// LowerBounds lowers the bounds of a tenant's lanes that lie after an instant to it, and
// reports whether there were any. It takes many short steps.
func (s *Store) LowerBounds(ctx context.Context, tenant string, to int64) (any bool, err error) {
	const step = 500
	for priority := range suffixes {
		for more := true; more; {
			key := s.key.Due(tenant, priority)
			found, err := s.client.ZRangeByScore(ctx, key, &redis.ZRangeBy{
				Min: "(" + strconv.FormatInt(to, 10), Max: "+inf", Count: step}).Result()
			if err != nil {
				if wrongType(err) {
					break
				}
				return any, err
			}
			if more = len(found) == step; len(found) == 0 {
				break
			}
			any = true
			members := make([]redis.Z, len(found))
			for i, user := range found {
				members[i] = redis.Z{Score: float64(to), Member: user}
			}
			if err := s.client.ZAddArgs(ctx, key, redis.ZAddArgs{XX: true, LT: true, Members: members}).Err(); err != nil {
				return any, err
			}
		}
	}
	return any, nil
}

// tenantMemory is how long the counters of a tenant with nothing to do are kept.
const tenantMemory = 24 * time.Hour

// forgetStep is how many tenants one script forgets. Each of them has four keys.
const forgetStep = 50

// ForgetTenants takes those of the tenants out of the index that have no lanes. It takes many
// short steps.
func (s *Store) ForgetTenants(ctx context.Context, names []string) error {
	for some := range slices.Chunk(names, forgetStep) {
		c := s.newChange()
		for _, name := range some {
			c.when(0, "EXISTS", []string{s.key.Due(name, 0), s.key.Due(name, 1), s.key.Due(name, 2)})
			c.do("ZREM", s.key.Tenants(), Escape(name))
			c.do("PEXPIRE", s.key.Tenant(name), tenantMemory.Milliseconds())
		}
		if _, err := c.apply(ctx); err != nil {
			return err
		}
	}
	return nil
}
