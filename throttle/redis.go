package throttle

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"
)

type redisStore struct {
	client redis.UniversalClient
	prefix string
	script *redis.Script
}

// NewRedisStore returns a store that keeps state in Redis under keys that begin with
// prefix. Every decision is one script and one round trip. Every key expires when its
// state can no longer be told from none.
//
// On a Redis Cluster all keys of a decision must be in one slot: put a hash tag into
// the prefix or into the keys of the subjects.
func NewRedisStore(client redis.UniversalClient, prefix string) Store {
	return &redisStore{client: client, prefix: prefix, script: NewScript(decideLua)}
}

func (s *redisStore) decide(ctx context.Context, v verb, cost int, subjects []Subject) (Decision, error) {
	keys := make([]string, 0, 2*len(subjects))
	args := make([]any, 0, 2+len(subjects))
	args = append(args, string(v), cost)
	for _, subject := range subjects {
		keys = append(keys, s.prefix+":log:"+subject.Key, s.prefix+":state:"+subject.Key)
		args = append(args, Compile(0, subject.Rules...))
	}
	reply, err := s.script.Run(ctx, s.client, keys, args...).Int64Slice()
	if err != nil {
		return Decision{}, fmt.Errorf("throttle: deciding in Redis: %w", err)
	}
	if len(reply) != 8 {
		return Decision{}, fmt.Errorf("throttle: deciding in Redis: a reply of %d numbers, want 8", len(reply))
	}
	return decode(reply, subjects), nil
}

// decode reads the reply of decide.lua.
func decode(reply []int64, subjects []Subject) Decision {
	slot, now, full := reply[1], reply[2], reply[7]
	d := Decision{
		Outcome:    Outcome(reply[0]),
		Slot:       time.UnixMicro(slot),
		RetryAfter: micros(slot - now),
		Limit:      int(reply[5]),
		Remaining:  int(reply[6]),
		ResetAfter: micros(max(0, full-now)),
	}
	if s, r := reply[3], reply[4]; r > 0 {
		d.Subject = subjects[s-1].Key
		d.Rule = subjects[s-1].Rules[r-1].String()
	}
	return d
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }
