package throttle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// batchSize bounds how long one script keeps Redis busy: about a millisecond.
const batchSize = 128

type redisStore struct {
	client  redis.UniversalClient
	prefix  string
	decider *redis.Script
	asker   *redis.Script
	refunds *redis.Script
	combine combiner
	clock   func() time.Time // of the caller: by it scripts are told which days there are
	sharded bool             // keys live on several servers, found by their hash tags
}

// NewRedisStore returns a store that keeps state in Redis under keys that begin with prefix.
// Every decision is made by one script in one round trip. Decisions that are asked for while
// another is under way share the next round trip, so that many concurrent callers cost Redis
// little more than a few; each is still decided by itself. Every key expires some milliseconds
// after its state no longer affects any decision.
//
// A command whose reply was lost may be sent again by the client (MaxRetries). Then a decision
// may be spent twice, so that less is admitted than the rules allow. A refund may also be done
// twice, and give back another action's slot in the same microsecond, so that more is admitted.
//
// On a Redis Cluster (or a Ring) the subjects of one decision must share a hash tag: the
// part of a key in braces, as in "{school-7}" and "{school-7}/teacher-42", or of the
// prefix. Others are refused.
func NewRedisStore(client redis.UniversalClient, prefix string) Store {
	s := &redisStore{
		client:  client,
		prefix:  prefix,
		decider: script(decideLua),
		asker:   script(turnsLua + askLua),
		refunds: script(refundLua),
		clock:   time.Now,
	}
	s.combine.run = s.run
	switch client.(type) {
	case *redis.Client:
		s.combine.flights = 2
	case *redis.ClusterClient, *redis.Ring:
		s.sharded = true
	}
	return s
}

// key returns the key of a subject. What it keeps in lists of their own has keys that
// begin with it and go on with a percent sign, as no escaped subject does; and all share
// a hash tag, that of the prefix or the subject if there is one.
func (s *redisStore) key(subject string) string {
	if strings.Contains(subject, "%") {
		subject = strings.ReplaceAll(subject, "%", "%25")
	}
	if whole := s.prefix + subject; hashTag(whole) == whole {
		return s.prefix + "{" + strings.ReplaceAll(subject, "}", "%7D") + "}"
	}
	return s.prefix + ":" + subject
}

// shortLog is SHORT in base.lua: logs of more slots are lists with keys of their own.
const shortLog = 128

// lists appends the keys of the lists that the logs of a subject may be, under its rules.
func lists(keys []string, key string, of []Rule) []string {
	known := len(keys)
	for _, r := range of {
		if !r.logged() || r.limit < shortLog {
			continue
		}
		list := key + "%"
		switch {
		case r.shadow:
			list += "shadow"
		case r.counts:
			list += "counting"
		}
		if !slices.Contains(keys[known:], list) {
			keys = append(keys, list)
		}
	}
	return keys
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

// errHours is the error for rules that the scripts do not know.
var errHours = errors.New("hours are decided by a queue, or by a store in memory")

// known returns an error if one of the rules is none of those that the scripts know.
func known(r request) error {
	for _, subject := range r.subjects {
		for i := range subject.Rules {
			if rule := &subject.Rules[i]; rule.kind == KindHours {
				return fmt.Errorf("%w: %s of %q: %w", ErrInvalidRule, rule, subject.Key, errHours)
			}
		}
	}
	return nil
}

func (s *redisStore) decide(ctx context.Context, r request) (Decision, error) {
	if err := known(r); err != nil {
		return Decision{}, err
	}
	return s.combine.decide(ctx, r)
}

func (s *redisStore) decideMany(ctx context.Context, requests []request) ([]Decision, error) {
	calls := make([]*call, len(requests))
	for i, r := range requests {
		if err := known(r); err != nil {
			return nil, fmt.Errorf("request %d: %w", i, err)
		}
		calls[i] = &call{request: r}
	}
	if len(requests) > 0 && requests[0].by != "" {
		s.ask(ctx, calls)
	} else {
		s.run(ctx, calls)
	}
	decisions, errs := make([]Decision, len(calls)), []error(nil)
	for i, c := range calls {
		decisions[i] = c.decision
		if c.err != nil {
			errs = append(errs, fmt.Errorf("request %d: %w", i, c.err))
		}
	}
	return decisions, errors.Join(errs...)
}

// run decides all calls, in as few round trips as it takes.
func (s *redisStore) run(ctx context.Context, calls []*call) {
	for _, b := range s.batches(calls) {
		reply, err := s.decider.Run(ctx, s.client, append(b.keys, b.lists...), b.args()...).Slice()
		if want := 1 + fields*len(b.calls); err == nil && len(reply) != want {
			err = fmt.Errorf("a reply of %d, want %d", len(reply), want)
		}
		for i, c := range b.calls {
			if err != nil {
				c.fail(err)
			} else {
				c.decode(reply[0], reply[1+fields*i:][:fields])
			}
		}
	}
}

// batches splits calls into what one script may decide: all keys on one server, and not
// too many. Calls whose keys are on several have failed.
func (s *redisStore) batches(calls []*call) (batches []*batch) {
	open := make(map[string]*batch, 1)
	for _, c := range calls {
		keys, tag, err := s.place(c)
		if err != nil {
			c.fail(err)
			continue
		}
		b := open[tag]
		if b == nil || len(b.calls) == batchSize {
			b = &batch{known: make(map[string]int, 1), now: s.clock().UnixMicro()}
			open[tag], batches = b, append(batches, b)
		}
		b.add(c, keys)
	}
	return batches
}

// place returns the keys of the subjects of a call, and on a cluster the hash tag that they share.
func (s *redisStore) place(c *call) (keys []string, tag string, err error) {
	keys = make([]string, len(c.subjects))
	for i, subject := range c.subjects {
		keys[i] = s.key(subject.Key)
	}
	if s.sharded {
		tag, err = sharedTag(keys)
	}
	return keys, tag, err
}

// errSlots is returned for subjects on several servers of a cluster.
var errSlots = errors.New("the subjects of a decision are not in one slot of the cluster: " +
	"give them one hash tag, such as {school-7} and {school-7}/teacher-42")

// sharedTag returns the hash tag that all keys share.
func sharedTag(keys []string) (string, error) {
	for _, key := range keys {
		if hashTag(key) != hashTag(keys[0]) {
			return "", fmt.Errorf("%w: %q and %q", errSlots, keys[0], key)
		}
	}
	if len(keys) == 0 {
		return "", nil
	}
	return hashTag(keys[0]), nil
}

// A batch is one run of decide.lua.
type batch struct {
	calls  []*call
	keys   []string
	lists  []string       // keys of logs that may be long
	known  map[string]int // shapes → their number
	shapes []byte         // the shapes, a JSON list without its end
	runs   []run
	shape  []byte // of the last call
	now    int64  // on the caller's clock, in µs
}

// A run is so many calls of one shape in a row.
type run struct{ shape, calls int }

// add puts a call into the batch. Its shape is all of it but the keys: most calls have
// the shape of the one before, and that is then written and read only once.
func (b *batch) add(c *call, keys []string) {
	b.calls, b.keys = append(b.calls, c), append(b.keys, keys...)
	b.shape = append(append(append(b.shape[:0], `["`...), c.verb...), c.words()...)
	b.shape = append(b.shape, '"')
	for i, subject := range c.subjects {
		b.lists = lists(b.lists, keys[i], subject.Rules)
		b.shape = subject.compile(append(b.shape, ','), b.now)
	}
	b.shape = append(b.shape, ']')
	number := b.known[string(b.shape)]
	if number == 0 {
		number = len(b.known) + 1
		b.known[string(b.shape)] = number
		b.shapes = append(append(b.shapes, ','), b.shape...)
	}
	if last := len(b.runs) - 1; last >= 0 && b.runs[last].shape == number {
		b.runs[last].calls++
	} else {
		b.runs = append(b.runs, run{number, 1})
	}
}

// words are the bounds, as decide.lua reads them, behind the verb.
func (r request) words() string {
	if !r.bounds.bounded {
		return ""
	}
	return fmt.Sprintf(" %d %d", r.bounds.after.Microseconds(), r.bounds.within.Microseconds())
}

// args returns the arguments of decide.lua.
func (b *batch) args() []any {
	b.shapes[0] = '['
	args := append(make([]any, 0, 1+2*len(b.runs)), append(b.shapes, ']'))
	for _, r := range b.runs {
		args = append(args, r.shape, r.calls)
	}
	return args
}

func (s *redisStore) refund(ctx context.Context, g *grant) error {
	var keys, long []string
	args := []any{strconv.FormatInt(g.slot, 10), 0}
	if g.objected {
		args[1] = 1
	}
	for _, subject := range g.subjects {
		keys = append(keys, s.key(subject.Key))
		long = lists(long, keys[len(keys)-1], subject.Rules)
		args = append(args, subject.compile(nil, s.clock().UnixMicro()))
	}
	if err := s.refunds.Run(ctx, s.client, append(keys, long...), args...).Err(); err != nil {
		return fmt.Errorf("throttle: refunding in Redis: %w", err)
	}
	return nil
}

func (s *redisStore) reset(ctx context.Context, keys []string) error {
	_, err := s.client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
		for _, key := range keys {
			key = s.key(key)
			pipe.Del(ctx, key, key+"%", key+"%counting", key+"%shadow", key+turnsOf)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("throttle: resetting in Redis: %w", err)
	}
	return nil
}
