package examine

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// ahead looks for states and bounds that lie further ahead than anything explains.
func (l *look) ahead(ctx context.Context) error {
	policies, err := l.Policies(ctx)
	if err != nil {
		return err
	}
	if err := l.states(ctx, policies); err != nil {
		return err
	}
	for tenant := range l.names.due {
		if err := l.bounds(ctx, tenant, longest(policies, tenant)); err != nil {
			return err
		}
	}
	return nil
}

// states looks for slots that rules remember, and that nobody can have given.
func (l *look) states(ctx context.Context, policies *schedule.Policies) error {
	texts, err := read(ctx, l, l.names.states, func(pipe redis.Pipeliner, scope string) *redis.StringCmd {
		return pipe.Get(ctx, l.key.State(scope))
	})
	if err != nil {
		return err
	}
	var state rules.State
	for i, scope := range l.names.states {
		if state.Decode(texts[i].Val()) != nil || state.Newest() <= l.horizon() {
			continue
		}
		key := l.key.State(scope)
		l.add(damage{
			Finding: Finding{
				Kind: State, Key: key, Seen: fmt.Sprintf("a slot that lies %v ahead", l.until(state.Newest())),
				Problem: "slots are given at most " + farAhead.String() + " ahead; its jobs wait until then",
				Repair:  "slots that lie ahead are forgotten, and the present instant counts as one",
			},
			still: func(ctx context.Context) (bool, error) {
				text, err := l.Client.Get(ctx, key).Result()
				return state.Decode(text) == nil && state.Newest() > l.horizon(), serious(err)
			},
			mend: func(ctx context.Context) error { return l.mendState(ctx, scope, setOf(policies, scope)) },
		})
	}
	return nil
}

// setOf returns the rules of a scope.
func setOf(policies *schedule.Policies, scope string) *rules.Set {
	switch tenant, user := envelope.ParseScope(scope); {
	case policies == nil:
		return nil
	case strings.HasPrefix(scope, envelope.LimitScope):
		limit, _ := policies.Limit(scope)
		return limit.Rules
	case tenant == "":
		return policies.Queue
	case user == "":
		return policies.Of(tenant).Tenant
	default:
		return policies.Of(tenant).OfUser(user).Rules
	}
}

// mendState forgets the slots of a state that lie ahead. The rules then see a start at the
// present instant: they let the next one start no earlier than if one had just been.
func (l *look) mendState(ctx context.Context, scope string, set *rules.Set) error {
	key := l.key.State(scope)
	text, err := l.Client.Get(ctx, key).Result()
	if err != nil {
		return serious(err)
	}
	var state rules.State
	if err := state.Decode(text); err != nil {
		return nil // the leader takes it for none
	}
	state.ForgetAfter(l.now)
	set.Spend(&state, rules.At(l.now), 1, true)
	do := []any{"DEL", key}
	if left := (set.Full(&state)-l.now)/1000 + 1; !state.Empty() && left > 0 {
		do = []any{"SET", key, string(state.Append(nil)), "PX", left}
	}
	return l.repair(ctx, store.Mend{If: []store.Condition{{Want: text, Command: []any{"GET", key}}}, Do: [][]any{do}})
}

// longest returns the longest period of the rules that limit a tenant and its users.
func longest(policies *schedule.Policies, tenant string) (most time.Duration) {
	if policies == nil {
		return 0
	}
	policy := policies.Of(tenant)
	sets := []*rules.Set{policies.Queue, policy.Tenant, policy.User}
	for _, user := range policy.Users {
		sets = append(sets, user.Rules)
	}
	for _, set := range sets {
		for i := range set.Len() {
			most = max(most, set.Rule(i).Period)
		}
	}
	return most
}

// mostAhead is how many bounds of an index are looked at that lie ahead of all periods.
const mostAhead = 200

// bounds looks for bounds of a tenant and of its lanes that neither the longest period of its
// rules explains, nor what the rules say about the first job.
func (l *look) bounds(ctx context.Context, tenant string, period time.Duration) error {
	from := l.horizon() + period.Microseconds()
	soonest := int64(rules.Never)
	var first store.Lane
	for _, priority := range priorities {
		index := l.key.Due(tenant, priority)
		all, err := l.Client.ZRangeWithScores(ctx, index, 0, 0).Result()
		if err != nil || len(all) == 0 {
			if serious(err) != nil {
				return err
			}
			continue
		}
		if at := int64(all[0].Score); at < soonest {
			soonest, first = at, laneOf(tenant, all[0].Member.(string), priority)
		}
		late, err := l.Client.ZRangeByScoreWithScores(ctx, index, &redis.ZRangeBy{Min: strconv.FormatInt(from, 10), Max: "+inf", Count: mostAhead}).Result()
		if err != nil {
			return err
		}
		for _, z := range late {
			lane := laneOf(tenant, z.Member.(string), priority)
			if err := l.bound(ctx, index, lane, int64(z.Score)); err != nil {
				return err
			}
		}
	}
	at, err := l.Client.ZScore(ctx, l.key.Tenants(), envelope.Escape(tenant)).Result()
	if err != nil || int64(at) < from || int64(at) <= soonest || soonest == rules.Never {
		return serious(err)
	}
	return l.bound(ctx, l.key.Tenants(), first, int64(at))
}

// bound notes a bound in an index, of a lane or of its tenant, that lies ahead of what rules
// and pauses say about the first job of the lane.
func (l *look) bound(ctx context.Context, index string, lane store.Lane, at int64) error {
	member := lane.Member()
	if index == l.key.Tenants() {
		member = envelope.Escape(lane.Tenant)
	}
	unexplained := func(ctx context.Context, at int64) (bool, error) {
		earliest, known, err := l.Earliest(ctx, lane, l.firstOf(ctx, lane))
		return known && at > earliest+l.behind+farAhead.Microseconds(), err
	}
	if suspect, err := unexplained(ctx, at); err != nil || !suspect {
		return err
	}
	l.add(damage{
		Finding: Finding{
			Kind: Bound, Key: index, Seen: fmt.Sprintf("%s is not looked at for %v", member, l.until(at)),
			Problem: "its rules and pauses let its first job start earlier", Repair: "it is looked at now",
		},
		still: func(ctx context.Context) (bool, error) {
			again, err := l.Client.ZScore(ctx, index, member).Result()
			if err != nil || int64(again) <= l.horizon() {
				return false, serious(err)
			}
			return unexplained(ctx, int64(again))
		},
		mend: func(ctx context.Context) error {
			return l.repair(ctx, store.Mend{Do: [][]any{{"ZADD", index, "XX", "LT", l.now, member}}})
		},
	})
	return nil
}

// firstOf returns the first job of a lane, nil if nobody can read it.
func (l *look) firstOf(ctx context.Context, lane store.Lane) *envelope.Envelope {
	entries, err := l.Store.Entries(ctx, []store.Page{{Lane: lane, N: 1}})
	if err != nil || len(entries) == 0 {
		return nil
	}
	job, _ := envelope.Open(entries[0].Job)
	return job
}
