package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Readers send what they ask for in one round trip. What another type of a key means depends on
// whose the key is (types.go). A key of a tenant or a user counts as empty then. A key of the queue itself must have
// its type: its readers ask brokenOf. The commands of a pipeline are not one transaction: others may write in between.

// each sends a command for each item, all in one round trip, and returns them with their replies, in the order of the
// items. After an error it returns the commands all the same; their values mean nothing then.
func each[T any, C redis.Cmder](ctx context.Context, s *Store, items []T, command func(redis.Pipeliner, T) C) ([]C, error) {
	pipe := s.client.Pipeline()
	sent := add(pipe, items, command)
	return sent, ask(ctx, pipe)
}

// add adds a command for each item to a pipeline.
func add[T any, C redis.Cmder](pipe redis.Pipeliner, items []T, command func(redis.Pipeliner, T) C) []C {
	added := make([]C, len(items))
	for i, item := range items {
		added[i] = command(pipe, item)
	}
	return added
}

// ask sends the commands of a pipeline, which only read. It is no error that a key is not there or has
// another type.
func ask(ctx context.Context, pipe redis.Pipeliner) error {
	sent, err := pipe.Exec(ctx)
	for i := 0; harmless(err); i++ {
		if i == len(sent) {
			return nil
		}
		err = sent[i].Err()
	}
	return err
}

// harmless reports whether a command that only reads has read something, or has found the key missing or of another
// type.
func harmless(err error) bool { return err == nil || errors.Is(err, redis.Nil) || wrongType(err) }

// values returns the values of replies; the zero value for a key that is not there, or has another type.
func values[V any, C interface{ Val() V }](replies []C) []V {
	all := make([]V, len(replies))
	for i, reply := range replies {
		all[i] = reply.Val()
	}
	return all
}

// brokenOf returns a [BrokenKeyError] if the key of one of the commands is not of the wanted type.
func brokenOf[C redis.Cmder](want string, replies ...C) error {
	for _, reply := range replies {
		if err := reply.Err(); err != nil && wrongType(err) {
			key, _ := reply.Args()[1].(string)
			return &BrokenKeyError{key, want}
		}
	}
	return nil
}

// walk goes through the members of a large key in many short steps, since Redis does nothing else during a command. A
// member that is there all the while is passed at least once, any other perhaps.
func walk(scan func(cursor uint64) *redis.ScanCmd, take func(found []string)) error {
	return walkOn(scan(0), scan, take)
}

// walkOn does so after the first step, which the caller may have sent with other commands.
func walkOn(step *redis.ScanCmd, scan func(cursor uint64) *redis.ScanCmd, take func(found []string)) error {
	for {
		found, next, err := step.Result()
		if err != nil {
			return err
		}
		if take(found); next == 0 {
			return nil
		}
		step = scan(next)
	}
}

// scanStep is about how many members of a large key are read at a time. Redis returns a small key as a whole.
const scanStep = 300

// A Meta is what the queue's own record says of the leader and of what has changed. Fields that are not there are 0.
type Meta struct {
	Leader   string // the worker that leads, or has led last; "" after a leader that resigned
	Till     int64  // when the leader's lease ends; at or before now nobody leads
	Changes  int64  // the number of the last change that a leader has to know of
	Policies int64  // the version that was put in force last; the key of the policies may have lost it
	Swept    string // under which policies and zones all bounds of lanes are right, in the words of [Store.SetSwept]
	Stamp    string // no job was offered yet with this stamp or a later one

	amnesty, beat int64 // see [Reapable]
}

// Meta returns the queue's own record, in one round trip.
func (s *Store) Meta(ctx context.Context) (Meta, error) {
	cmd := s.meta(ctx, s.client)
	return readMeta(cmd), asBroken(cmd.Err(), s.key.Meta(), "hash")
}

// meta sends the command that reads it, or adds the command to a pipeline.
func (s *Store) meta(ctx context.Context, client redis.Cmdable) *redis.SliceCmd {
	return client.HMGet(ctx, s.key.Meta(), "leader", "stamp", "till", "changes", "policies", "amnesty", "beat", "swept")
}

// readMeta reads the fields that meta asks for.
func readMeta(cmd *redis.SliceCmd) (m Meta) {
	texts := textsOf(cmd.Val())
	if len(texts) == 0 {
		return m
	}
	_, m.Leader, _ = strings.Cut(texts[0], ":") // the token is the epoch and the worker
	m.Stamp = envelope.Stamp(number(texts[1]))
	for i, field := range [...]*int64{&m.Till, &m.Changes, &m.Policies, &m.amnesty, &m.beat} {
		*field = number(texts[2+i])
	}
	m.Swept = texts[7]
	return m
}

// number reads a number as Redis keeps it; any other text, such as that of a missing field, is 0.
func number(text string) int64 {
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// States returns what the rules of scopes remember, in one round trip; "" for nothing.
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

// silence returns after how many µs without a beat of any worker it counts as sure that nobody could reach Redis: a
// lease that has run out then says nothing about its worker. A worker beats each quarter of its lease, so with one that
// lives beats come sooner.
func silence(lease time.Duration) int64 { return max(lease*2/5, time.Second).Microseconds() }

// pairs reads the members of a sorted set, each followed by its score, which is an instant.
func pairs(texts []string) map[string]int64 {
	all := make(map[string]int64, len(texts)/2)
	for i := 0; i+1 < len(texts); i += 2 {
		score, _ := strconv.ParseFloat(texts[i+1], 64)
		all[texts[i]] = int64(score)
	}
	return all
}
