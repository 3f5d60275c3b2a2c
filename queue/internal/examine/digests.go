package examine

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A digest names an open digest: whose it is, and its lane and key ([envelope.DigestPlace]).
type digest struct {
	user
	place string
}

// lane returns the lane of a digest.
func (d digest) lane() store.Lane {
	rank, _, _ := strings.Cut(d.place, " ")
	lane := store.Lane{Tenant: d.tenant, User: d.user.user, Priority: envelope.Normal}
	if rank != "" && rank[0] >= '0' && rank[0] <= '2' {
		lane.Priority, lane.Label = int(rank[0]-'0'), rank[1:]
	}
	return lane
}

// digests looks for open digests that have no place in their lane, and are not to come into it.
func (l *look) digests(ctx context.Context) error {
	for _, d := range l.names.digests {
		record, err := l.Client.HGet(ctx, l.key.Digest(d.tenant, d.user.user, d.place), "").Result()
		if serious(err) != nil {
			return err
		}
		if len(record) < envelope.StampLen {
			continue // it is gone, or of another type
		}
		name := envelope.DigestName{Stamp: record[:envelope.StampLen], Place: d.place}.String()
		placed, err := l.placed(ctx, d.user, name)
		if err != nil {
			return err
		}
		if !placed {
			l.unplaced(d.user, name, record)
		}
	}
	return nil
}

// there adds what tells whether a job is under a collapse key, or the digest of a name is there, to a pipeline.
func (l *look) there(ctx context.Context, pipe redis.Pipeliner, u user, key string) func() bool {
	closed := pipe.HExists(ctx, l.key.Fold(u.tenant, u.user), key)
	name, is := envelope.ParseDigest(key)
	if !is {
		return closed.Val
	}
	open := pipe.HGet(ctx, l.key.Digest(u.tenant, u.user, name.Place), "")
	return func() bool { return closed.Val() || strings.HasPrefix(open.Val(), name.Stamp) }
}

// isThere returns the condition that a job is still under a collapse key, or the digest of a name there: an open one as its
// record says.
func (l *look) isThere(u user, key, record string) store.Condition {
	name, is := envelope.ParseDigest(key)
	if is && strings.HasPrefix(record, name.Stamp+" ") {
		return store.Condition{Want: record, Command: []any{"HGET", l.key.Digest(u.tenant, u.user, name.Place), ""}}
	}
	return store.Condition{Want: 1, Command: []any{"HEXISTS", l.key.Fold(u.tenant, u.user), key}}
}

// missing returns the stubs of a lane whose jobs are not there.
func (l *look) missing(ctx context.Context, lane store.Lane, stubs []string) (missing []string, err error) {
	if len(stubs) == 0 {
		return nil, nil
	}
	pipe := l.Client.TxPipeline()
	there := make([]func() bool, len(stubs))
	for i, stub := range stubs {
		there[i] = l.there(ctx, pipe, user{lane.Tenant, lane.User}, stub[1:])
	}
	sent, err := pipe.Exec(ctx)
	if serious(err) != nil {
		return nil, err
	}
	for _, cmd := range sent {
		if wrongType(cmd.Err()) {
			return nil, nil // types says so
		}
	}
	for i, stub := range stubs {
		if !there[i]() {
			missing = append(missing, stub)
		}
	}
	return missing, nil
}

// inDigest passes the members of the open digest that a stub of a lane stands for, if it is one.
func (l *look) inDigest(ctx context.Context, lane store.Lane, entry string, do func(job string)) error {
	if !strings.HasPrefix(entry, "=") {
		return nil
	}
	name, is := envelope.ParseDigest(entry[1:])
	if !is {
		return nil
	}
	return l.membersOf(ctx, digest{user{lane.Tenant, lane.User}, name.Place}, do)
}

func (l *look) membersOf(ctx context.Context, d digest, do func(job string)) error {
	return l.eachValue(ctx, l.key.Digest(d.tenant, d.user.user, d.place), func(field, member string) {
		if field != "" {
			do(member)
		}
	})
}
