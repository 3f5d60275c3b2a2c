package throttle

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// batchSize bounds how long one script keeps Redis busy: about a millisecond.
const batchSize = 128

type redisStore struct {
	client  redis.UniversalClient
	prefix  string
	decider *redis.Script
	refunds *redis.Script
	sharded bool // keys live on several servers, found by their hash tags
}

// NewRedisStore returns a store that keeps state in Redis under keys that begin with
// prefix. Every decision is one script and one round trip, or a part of one. Every key
// expires when its state can no longer be told from none.
//
// On a Redis Cluster (or a Ring) the subjects of one decision must share a hash tag: the
// part of a key in braces, as in "{school-7}" and "{school-7}/teacher-42", or of the
// prefix. Others are refused.
func NewRedisStore(client redis.UniversalClient, prefix string) Store {
	s := &redisStore{
		client:  client,
		prefix:  prefix,
		decider: NewScript(decideLua),
		refunds: NewScript(refundLua),
	}
	switch client.(type) {
	case *redis.ClusterClient, *redis.Ring:
		s.sharded = true
	}
	return s
}

// keys returns the keys of a subject's log and state. They share a hash tag, its own or
// that of the prefix if there is one. No two subjects share a key: the logs that the
// scripts keep on the side end in a percent sign and a word, which no escaped key does.
func (s *redisStore) keys(subject string) (log, state string) {
	if strings.Contains(subject, "%") {
		subject = strings.ReplaceAll(subject, "%", "%25")
	}
	if whole := s.prefix + subject; hashTag(whole) == whole {
		return s.prefix + ":log{" + subject + "}", s.prefix + ":state{" + subject + "}"
	}
	return s.prefix + ":log:" + subject, s.prefix + ":state:" + subject
}

// hashTag returns the part of a key that places it on a cluster.
func hashTag(key string) string {
	if _, rest, found := strings.Cut(key, "{"); found {
		if tag, _, found := strings.Cut(rest, "}"); found && tag != "" {
			return tag
		}
	}
	return key
}

func (s *redisStore) decide(ctx context.Context, r request) (Decision, error) {
	decisions, err := s.decideMany(ctx, []request{r})
	if err != nil {
		return Decision{Outcome: Undecided}, err
	}
	return decisions[0], nil
}

func (s *redisStore) decideMany(ctx context.Context, requests []request) ([]Decision, error) {
	decisions := make([]Decision, len(requests))
	batches, errs := s.batch(requests, decisions)
	for _, b := range batches {
		reply, err := s.decider.Run(ctx, s.client, b.keys, b.args()...).Slice()
		if err == nil {
			err = b.decode(reply)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("throttle: deciding in Redis: %w", err))
		}
	}
	return decisions, errors.Join(errs...)
}

// batch splits requests into what one script may decide: all keys on one server, and
// not too many. Their decisions go to the places given.
func (s *redisStore) batch(requests []request, decisions []Decision) (batches []*batch, errs []error) {
	open := make(map[string]*batch)
	for i, r := range requests {
		decisions[i].Outcome = Undecided
		keys := make([]string, 0, 2*len(r.subjects))
		for _, subject := range r.subjects {
			log, state := s.keys(subject.Key)
			keys = append(keys, log, state)
		}
		tag := ""
		if s.sharded {
			var err error
			if tag, err = sharedTag(keys); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		b := open[tag]
		if b == nil || len(b.requests) == batchSize {
			b = &batch{sets: make(map[string]int)}
			open[tag], batches = b, append(batches, b)
		}
		b.add(r, keys, &decisions[i])
	}
	return batches, errs
}

// sharedTag returns the hash tag that all keys share.
func sharedTag(keys []string) (string, error) {
	tag := ""
	for i, key := range keys {
		if i == 0 {
			tag = hashTag(key)
		} else if hashTag(key) != tag {
			return "", fmt.Errorf("throttle: %q and %q are not in one slot of the cluster: give them one hash tag, "+
				"such as {school-7} and {school-7}/teacher-42", keys[0], key)
		}
	}
	return tag, nil
}

// A batch is one run of decide.lua.
type batch struct {
	requests  []request
	decisions []*Decision
	keys      []string
	sets      map[string]int // compiled rules → their number
	texts     []string       // compiled rules by number, from 1
	asked     []any
}

func (b *batch) add(r request, keys []string, d *Decision) {
	b.requests, b.decisions = append(b.requests, r), append(b.decisions, d)
	b.keys = append(b.keys, keys...)
	b.asked = append(b.asked, string(r.verb), r.cost, len(r.subjects))
	for _, subject := range r.subjects {
		text := compile(0, subject.Rules, nameless)
		number := b.sets[string(text)]
		if number == 0 {
			number = len(b.texts) + 1
			b.texts = append(b.texts, string(text))
			b.sets[b.texts[number-1]] = number
		}
		b.asked = append(b.asked, number)
	}
}

func (b *batch) args() []any {
	args := make([]any, 0, 1+len(b.texts)+len(b.asked))
	args = append(args, len(b.texts))
	for _, text := range b.texts {
		args = append(args, text)
	}
	return append(args, b.asked...)
}

// decode reads the reply of decide.lua into the decisions.
func (b *batch) decode(reply []any) error {
	if len(reply) != 1+len(b.requests) {
		return fmt.Errorf("a reply of %d, want %d", len(reply), 1+len(b.requests))
	}
	now, _ := reply[0].(int64)
	var errs []error
	for i, r := range b.requests {
		n, ok := reply[1+i].([]any)
		if !ok || len(n) != 8 {
			errs = append(errs, fmt.Errorf("%v", reply[1+i]))
			continue
		}
		number := func(i int) int64 { n, _ := n[i].(int64); return n }
		d, err := r.decision(ruling{
			outcome: Outcome(number(0)), slot: number(1), now: now, full: number(5),
			subject: int(number(2)), rule: int(number(3)), remaining: int(number(4)),
			objector: int(number(6)), shadow: int(number(7)),
		})
		*b.decisions[i] = d
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s *redisStore) refund(ctx context.Context, g *grant) error {
	var keys []string
	args := []any{strconv.FormatInt(g.slot, 10), g.cost, 0}
	if g.objected {
		args[2] = 1
	}
	for _, subject := range g.subjects {
		log, state := s.keys(subject.Key)
		keys = append(keys, log, state)
		args = append(args, compile(0, subject.Rules, nameless))
	}
	if err := s.refunds.Run(ctx, s.client, keys, args...).Err(); err != nil {
		return fmt.Errorf("throttle: refunding in Redis: %w", err)
	}
	return nil
}

func (s *redisStore) reset(ctx context.Context, keys []string) error {
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			log, state := s.keys(key)
			pipe.Del(ctx, log, state, log+"%counting", log+"%shadow")
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("throttle: resetting in Redis: %w", err)
	}
	return nil
}
