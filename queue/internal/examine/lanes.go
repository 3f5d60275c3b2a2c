package examine

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// priorities are the ranks of a tenant's lanes.
var priorities = [...]int{envelope.High, envelope.Normal, envelope.Low}

// laneOf returns the lane that a member of an index is: <user>, or <user>|<label>.
func laneOf(tenant, member string, priority int) store.Lane {
	user, label, _ := strings.Cut(member, "|")
	return store.Lane{Tenant: tenant, User: envelope.Unescape(user), Priority: priority, Label: label}
}

// lanes looks for lanes that no index names, for tenants with lanes that the index of tenants
// does not name, and for members of indexes that have no lane.
func (l *look) lanes(ctx context.Context) error {
	lanes := slices.Collect(maps.Keys(l.names.lanes))
	scores, err := read(ctx, l, lanes, func(pipe redis.Pipeliner, lane store.Lane) *redis.FloatCmd {
		return pipe.ZScore(ctx, l.key.Due(lane.Tenant, lane.Priority), lane.Member())
	})
	if err != nil {
		return err
	}
	tenants := make(map[string]bool)
	for i, lane := range lanes {
		tenants[lane.Tenant] = true
		if scores[i].Err() == redis.Nil {
			l.outside(lane)
		}
	}
	for tenant := range l.names.due {
		tenants[tenant] = true
		if err := l.members(ctx, tenant); err != nil {
			return err
		}
	}
	return l.unlisted(ctx, slices.Collect(maps.Keys(tenants)))
}

// outside notes a lane that its index does not name.
func (l *look) outside(lane store.Lane) {
	key, index, user := l.key.Lane(lane), l.key.Due(lane.Tenant, lane.Priority), lane.Member()
	l.add(damage{
		Finding: Finding{
			Kind: Lane, Key: key, Seen: "a lane that " + index + " does not name",
			Problem: "its jobs wait for ever", Repair: "it is put into the index, and is due now",
		},
		still: func(ctx context.Context) (bool, error) {
			pipe := l.Client.TxPipeline()
			waiting, listed := pipe.LLen(ctx, key), pipe.ZScore(ctx, index, user)
			_, err := pipe.Exec(ctx)
			return waiting.Val() > 0 && listed.Err() == redis.Nil, serious(err)
		},
		mend: func(ctx context.Context) error {
			return l.repair(ctx, store.Mend{
				If: []store.Condition{{Want: 1, Command: []any{"EXISTS", key}}},
				Do: append([][]any{{"ZADD", index, "NX", l.now, user}}, l.list(lane.Tenant)...),
			})
		},
	})
}

// list returns what puts a tenant into the index of tenants.
func (l *look) list(tenant string) [][]any {
	return [][]any{{"ZADD", l.key.Tenants(), "LT", l.now, envelope.Escape(tenant)}, {"PERSIST", l.key.Tenant(tenant)}}
}

// members looks for members of a tenant's indexes that have no lane. One that is due is looked
// at and removed by the leader; one that lies ahead stays until then.
func (l *look) members(ctx context.Context, tenant string) error {
	for _, priority := range priorities {
		err := l.eachMember(ctx, l.key.Due(tenant, priority), func(users []string) error {
			there, err := read(ctx, l, users, func(pipe redis.Pipeliner, user string) *redis.IntCmd {
				return pipe.Exists(ctx, l.key.Lane(laneOf(tenant, user, priority)))
			})
			for i := range there {
				if there[i].Val() == 0 {
					l.empty(laneOf(tenant, users[i], priority))
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachMember goes through the members of a sorted set in bounded steps. Those that are in it
// all the while are passed at least once.
func (l *look) eachMember(ctx context.Context, key string, do func([]string) error) error {
	for cursor := uint64(0); ; {
		found, next, err := l.Client.ZScan(ctx, key, cursor, "", chunk).Result()
		if err != nil {
			return serious(err)
		}
		names := make([]string, 0, len(found)/2)
		for i := 0; i < len(found); i += 2 {
			names = append(names, found[i])
		}
		if err := do(names); err != nil {
			return err
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// empty notes a member of an index that has no lane.
func (l *look) empty(lane store.Lane) {
	key, index, user := l.key.Lane(lane), l.key.Due(lane.Tenant, lane.Priority), lane.Member()
	l.add(damage{
		Finding: Finding{
			Kind: Index, Key: index, Seen: "it names " + user + ", for whom nothing waits in " + key,
			Problem: "the leader looks at it in vain", Repair: "it is removed",
		},
		still: func(ctx context.Context) (bool, error) {
			pipe := l.Client.TxPipeline()
			waiting, listed := pipe.Exists(ctx, key), pipe.ZScore(ctx, index, user)
			_, err := pipe.Exec(ctx)
			return waiting.Val() == 0 && listed.Err() == nil, serious(err)
		},
		mend: func(ctx context.Context) error {
			return l.repair(ctx, store.Mend{
				If: []store.Condition{{Want: 0, Command: []any{"EXISTS", key}}},
				Do: [][]any{{"ZREM", index, user}},
			})
		},
	})
}

// unlisted looks for tenants with lanes that the index of tenants does not name.
func (l *look) unlisted(ctx context.Context, tenants []string) error {
	scores, err := read(ctx, l, tenants, func(pipe redis.Pipeliner, tenant string) *redis.FloatCmd {
		return pipe.ZScore(ctx, l.key.Tenants(), envelope.Escape(tenant))
	})
	if err != nil {
		return err
	}
	for i, tenant := range tenants {
		if scores[i].Err() != redis.Nil {
			continue
		}
		l.add(damage{
			Finding: Finding{
				Kind: Tenant, Key: l.key.Tenants(), Seen: "it does not name " + envelope.Escape(tenant) + ", which has lanes",
				Problem: "its jobs wait for ever", Repair: "it is put in, and is due now",
			},
			still: func(ctx context.Context) (bool, error) {
				pipe := l.Client.TxPipeline()
				listed := pipe.ZScore(ctx, l.key.Tenants(), envelope.Escape(tenant))
				lanes := pipe.Exists(ctx, l.key.Due(tenant, 0), l.key.Due(tenant, 1), l.key.Due(tenant, 2))
				_, err := pipe.Exec(ctx)
				return lanes.Val() > 0 && listed.Err() == redis.Nil, serious(err)
			},
			mend: func(ctx context.Context) error { return l.repair(ctx, store.Mend{Do: l.list(tenant)}) },
		})
	}
	return nil
}
