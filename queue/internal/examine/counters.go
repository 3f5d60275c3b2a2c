package examine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A tally is what counters say at one instant: how many jobs have entered lanes, and left them.
type tally struct{ came, left int64 }

func (t tally) waiting() int64 { return t.came - t.left }

// tallyFields are the counters that a tally is made of.
var tallyFields = []string{"in", "back", "started", "dropped"}

// readTally reads a tally; false if a counter is no number.
func readTally(values []any) (t tally, ok bool) {
	ok = len(values) == len(tallyFields)
	for i, value := range values {
		n, fine := number(value)
		ok = ok && fine
		if i < 2 {
			t.came += n
		} else {
			t.left += n
		}
	}
	return t, ok
}

// A gap is by how much more counters say than there is. It lies between two bounds: what has
// moved while both were read is in between.
type gap struct{ least, most int64 }

// gapOf compares what was counted between two instants with what counters said at them.
func gapOf(before, after tally, counted int64) gap {
	came, left := sorted(before.came, after.came), sorted(before.left, after.left)
	return gap{came.least - left.most - counted, came.most - left.least - counted}
}

func sorted(a, b int64) gap { return gap{min(a, b), max(a, b)} }

// and returns what both gaps allow: it does not change while nobody mends it.
func (g gap) and(other gap) gap { return gap{max(g.least, other.least), min(g.most, other.most)} }

// closed reports whether there need not be a difference.
func (g gap) closed() bool { return g.least <= 0 && g.most >= 0 }

func (g gap) String() string {
	if g.least == g.most {
		return fmt.Sprint(g.least)
	}
	return fmt.Sprintf("%d to %d", g.least, g.most)
}

// counters compares what tenants' counters say with the lengths of their lanes, and the
// queue's with the sum of the tenants'.
func (l *look) counters(ctx context.Context) error {
	tenants := maps.Clone(l.names.tenants)
	maps.Copy(tenants, l.names.due)
	for lane := range l.names.lanes {
		tenants[lane.Tenant] = true
	}
	outside := make(map[string][]store.Lane)
	for _, d := range l.found {
		if lane, ok := parseLaneKey(l, d); ok {
			outside[lane.Tenant] = append(outside[lane.Tenant], lane)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		measure := func(ctx context.Context) (gap, bool, error) { return l.tenantGap(ctx, tenant, outside[tenant]) }
		if err := l.compare(ctx, l.key.Tenant(tenant), "jobs in the tenant's lanes", measure); err != nil {
			return err
		}
	}
	names := slices.Collect(maps.Keys(tenants))
	measure := func(ctx context.Context) (gap, bool, error) { return l.queueGap(ctx, names) }
	return l.compare(ctx, l.key.Meta(), "jobs that all tenants' counters say", measure)
}

// parseLaneKey returns the lane that is outside of its index.
func parseLaneKey(l *look, d damage) (store.Lane, bool) {
	if d.Kind != Lane {
		return store.Lane{}, false
	}
	return parseLane(d.Key[len(l.prefix)+len("lane:"):])
}

// compare looks for counters that do not add up.
func (l *look) compare(ctx context.Context, key, what string, measure func(context.Context) (gap, bool, error)) error {
	first, numbers, err := measure(ctx)
	if err != nil || numbers && first.closed() {
		return err
	}
	if !numbers {
		l.noNumbers(key)
		return nil
	}
	seen := first
	l.add(damage{
		Finding: Finding{
			Kind: Counters, Key: key, Seen: fmt.Sprintf("waiting jobs: %s more than the %s", first, what),
			Problem: "what is shown of the backlog is wrong, and capacity is judged by it", Repair: "the difference is taken off",
		},
		still: func(ctx context.Context) (bool, error) {
			again, numbers, err := measure(ctx)
			seen = seen.and(again)
			return numbers && !seen.closed() && seen.least <= seen.most, err
		},
		mend: func(ctx context.Context) error {
			for range patience {
				if seen.least == seen.most {
					break
				}
				again, _, err := measure(ctx)
				if err != nil {
					return err
				}
				seen = seen.and(again)
			}
			if seen.least != seen.most {
				return errMoves
			}
			return l.repair(ctx, store.Mend{Do: [][]any{{"HINCRBY", key, "back", -seen.least}}})
		},
		later: true,
	})
	return nil
}

// errMoves says that a difference is there, and not how large it is.
var errMoves = errors.New("too many jobs come and go")

// patience is how often a difference that is to be mended is measured.
const patience = 200

// noNumbers notes counters that nobody can count with.
func (l *look) noNumbers(key string) {
	broken := func(ctx context.Context) ([]string, error) {
		values, err := l.Client.HMGet(ctx, key, counterFields...).Result()
		var fields []string
		for i, value := range values {
			if _, fine := number(value); !fine {
				fields = append(fields, counterFields[i])
			}
		}
		return fields, serious(err)
	}
	l.add(damage{
		Finding: Finding{
			Kind: Counters, Key: key, Seen: "a counter that is no number",
			Problem: "offers are refused as broken, and nobody can say how much waits", Repair: "the counter begins again",
		},
		still: func(ctx context.Context) (bool, error) {
			fields, err := broken(ctx)
			return len(fields) > 0, err
		},
		mend: func(ctx context.Context) error {
			fields, err := broken(ctx)
			if err != nil || len(fields) == 0 {
				return err
			}
			m := store.Mend{}
			for _, field := range fields {
				m.Do = append(m.Do, []any{"HDEL", key, field})
			}
			return l.repair(ctx, m)
		},
	})
}

// counterFields are all counters of a tenant and of the queue.
var counterFields = []string{"in", "back", "started", "dropped", "other", "out", "failed", "dead", "done"}

// tenantGap compares a tenant's counters with its lanes. It is false where a counter is no
// number.
func (l *look) tenantGap(ctx context.Context, tenant string, lanes []store.Lane) (g gap, numbers bool, err error) {
	before, ok, err := l.tally(ctx, l.key.Tenant(tenant))
	if err != nil || !ok {
		return gap{}, ok, err
	}
	lanes = slices.Clone(lanes)
	for _, priority := range priorities {
		err := l.eachMember(ctx, l.key.Due(tenant, priority), func(users []string) error {
			for _, user := range users {
				lanes = append(lanes, laneOf(tenant, user, priority))
			}
			return nil
		})
		if err != nil {
			return gap{}, true, err
		}
	}
	slices.SortFunc(lanes, envelope.CompareLanes)
	lanes = slices.Compact(lanes)
	if len(lanes) <= chunk {
		return l.smallGap(ctx, tenant, lanes, before)
	}
	lengths, err := read(ctx, l, lanes, func(pipe redis.Pipeliner, lane store.Lane) *redis.IntCmd { return pipe.LLen(ctx, l.key.Lane(lane)) })
	if err != nil {
		return gap{}, true, err
	}
	after, ok, err := l.tally(ctx, l.key.Tenant(tenant))
	return gapOf(before, after, sum(lengths)), ok, err
}

// smallGap reads lanes and counters at one instant: only lanes that are new since before are
// not counted.
func (l *look) smallGap(ctx context.Context, tenant string, lanes []store.Lane, before tally) (gap, bool, error) {
	pipe := l.Client.TxPipeline()
	counters := pipe.HMGet(ctx, l.key.Tenant(tenant), tallyFields...)
	lengths := make([]*redis.IntCmd, len(lanes))
	for i, lane := range lanes {
		lengths[i] = pipe.LLen(ctx, l.key.Lane(lane))
	}
	if _, err := pipe.Exec(ctx); serious(err) != nil {
		return gap{}, true, err
	}
	now, ok := readTally(counters.Val())
	g := gapOf(now, now, sum(lengths))
	g.least -= max(0, now.came-before.came)
	return g, ok, nil
}

func sum(lengths []*redis.IntCmd) (n int64) {
	for _, length := range lengths {
		n += length.Val()
	}
	return n
}

// queueGap compares the queue's counters with the tenants'.
func (l *look) queueGap(ctx context.Context, tenants []string) (g gap, numbers bool, err error) {
	before, ok, err := l.tally(ctx, l.key.Meta())
	if err != nil || !ok {
		return gap{}, ok, err
	}
	tenants = slices.Clone(tenants)
	if err := l.eachMember(ctx, l.key.Tenants(), func(names []string) error {
		for _, name := range names {
			tenants = append(tenants, envelope.Unescape(name))
		}
		return nil
	}); err != nil {
		return gap{}, true, err
	}
	slices.Sort(tenants)
	tenants = slices.Compact(tenants)
	replies, err := read(ctx, l, tenants, func(pipe redis.Pipeliner, tenant string) *redis.SliceCmd {
		return pipe.HMGet(ctx, l.key.Tenant(tenant), tallyFields...)
	})
	if err != nil {
		return gap{}, true, err
	}
	counted := int64(0)
	for _, reply := range replies {
		if tenant, fine := readTally(reply.Val()); fine {
			counted += tenant.waiting()
		}
	}
	after, ok, err := l.tally(ctx, l.key.Meta())
	return gapOf(before, after, counted), ok, err
}

func (l *look) tally(ctx context.Context, key string) (tally, bool, error) {
	values, err := l.Client.HMGet(ctx, key, tallyFields...).Result()
	if err != nil {
		return tally{}, true, serious(err) // of another type: a finding of its own
	}
	t, ok := readTally(values)
	return t, ok, nil
}
