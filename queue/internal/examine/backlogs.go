package examine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// backlogs compares how many jobs the backlogs of users and limits have, where these have a capacity, with the lengths of
// the lanes that they count.
func (l *look) backlogs(ctx context.Context) error {
	wrong, err := l.wrongBacklogs(ctx)
	if err != nil || len(wrong) == 0 {
		return err
	}
	key := l.key.Backlogs()
	l.add(damage{
		Finding: Finding{
			Kind: Counters, Key: key, Seen: "waiting jobs more than there are: " + listed(wrong),
			Problem: "capacity is judged by it: too much is accepted, or refused", Repair: "the difference is taken off",
		},
		still: func(ctx context.Context) (bool, error) {
			again, err := l.wrongBacklogs(ctx)
			maps.DeleteFunc(wrong, func(scope string, by int64) bool { return again[scope] != by })
			return len(wrong) > 0, err
		},
		mend: func(ctx context.Context) error {
			m := store.Mend{}
			for scope, by := range wrong {
				m.Do = append(m.Do, []any{"ZINCRBY", key, -by, scope})
			}
			m.Do = append(m.Do, []any{"ZREMRANGEBYSCORE", key, "-inf", 0})
			return l.repair(ctx, m)
		},
		later: true,
	})
	return nil
}

// listed writes some of the scopes, and by how much each is wrong.
func listed(wrong map[string]int64) string {
	const most = 3
	var all []string
	for _, scope := range slices.Sorted(maps.Keys(wrong)) {
		if len(all) == most {
			all = append(all, fmt.Sprintf("and %d others", len(wrong)-most))
			break
		}
		all = append(all, fmt.Sprintf("%s %d", scope, wrong[scope]))
	}
	return strings.Join(all, ", ")
}

// wrongBacklogs returns the scopes whose backlogs are not as long as their lanes together, and by how much more they say.
// Those that differ at a first look are read again, each at one instant. A lane that is new since then may explain it.
func (l *look) wrongBacklogs(ctx context.Context) (map[string]int64, error) {
	says, err := l.saidBacklogs(ctx)
	if err != nil || len(says) == 0 && !l.countsLanes() {
		return nil, err
	}
	lanes, err := l.countedLanes(ctx)
	if err != nil {
		return nil, err
	}
	for scope := range lanes {
		says[scope] += 0
	}
	wrong := make(map[string]int64)
	for scope, said := range says {
		lengths, err := read(ctx, l, lanes[scope], func(pipe redis.Pipeliner, lane store.Lane) *redis.IntCmd { return pipe.LLen(ctx, l.key.Lane(lane)) })
		if err != nil {
			return nil, err
		}
		by := said - sum(lengths)
		if by != 0 && len(lanes[scope]) <= mostAtOnce {
			if by, err = l.backlogGap(ctx, scope, lanes[scope]); err != nil {
				return nil, err
			}
		}
		if by != 0 {
			wrong[scope] = by
		}
	}
	if len(wrong) == 0 {
		return nil, nil
	}
	later, err := l.countedLanes(ctx)
	maps.DeleteFunc(wrong, func(scope string, _ int64) bool {
		return slices.ContainsFunc(later[scope], func(lane store.Lane) bool { return !slices.Contains(lanes[scope], lane) })
	})
	return wrong, err
}

// mostAtOnce is how many lanes are read at one instant, while which Redis serves nobody else. Where there are more, a
// backlog is wrong if each look finds the same difference.
const mostAtOnce = 10_000

// countsLanes reports whether a backlog counts one of the lanes that were found.
func (l *look) countsLanes() bool {
	for lane := range l.names.lanes {
		if lane.Backlogs() != nil {
			return true
		}
	}
	return false
}

// backlogGap returns how much more a backlog says than its lanes hold, at one instant.
func (l *look) backlogGap(ctx context.Context, scope string, lanes []store.Lane) (int64, error) {
	pipe := l.Client.TxPipeline()
	said := pipe.ZScore(ctx, l.key.Backlogs(), scope)
	lengths := make([]*redis.IntCmd, len(lanes))
	for i, lane := range lanes {
		lengths[i] = pipe.LLen(ctx, l.key.Lane(lane))
	}
	_, err := pipe.Exec(ctx)
	return int64(said.Val()) - sum(lengths), serious(err)
}

// saidBacklogs returns what the backlogs say.
func (l *look) saidBacklogs(ctx context.Context) (map[string]int64, error) {
	says := make(map[string]int64)
	for cursor := uint64(0); ; {
		found, next, err := l.Client.ZScan(ctx, l.key.Backlogs(), cursor, "", chunk).Result()
		if err != nil {
			return says, serious(err)
		}
		for i := 0; i+1 < len(found); i += 2 {
			says[found[i]], _ = number(found[i+1])
		}
		if cursor = next; cursor == 0 {
			return says, nil
		}
	}
}

// countedLanes returns the lanes that backlogs count, by scope: those in the indexes, and those that were found outside.
func (l *look) countedLanes(ctx context.Context) (map[string][]store.Lane, error) {
	all := make(map[store.Lane]bool)
	for lane := range l.names.lanes {
		all[lane] = true
	}
	tenants := maps.Clone(l.names.tenants)
	note := func(names []string) error {
		for _, name := range names {
			tenants[envelope.Unescape(name)] = true
		}
		return nil
	}
	if err := l.eachMember(ctx, l.key.Tenants(), note); err != nil {
		return nil, err
	}
	for tenant := range tenants {
		for _, priority := range priorities {
			err := l.eachMember(ctx, l.key.Due(tenant, priority), func(members []string) error {
				for _, member := range members {
					all[laneOf(tenant, member, priority)] = true
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
	}
	lanes := make(map[string][]store.Lane)
	for lane := range all {
		for _, scope := range lane.Backlogs() {
			lanes[scope] = append(lanes[scope], lane)
		}
	}
	return lanes, nil
}
