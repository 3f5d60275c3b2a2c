package examine

import (
	"context"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// longestSearch is how many entries of a lane are searched for a stub.
const longestSearch = 20_000

// folds looks for jobs under collapse keys that have no place in a lane, and for places whose
// job is not there.
func (l *look) folds(ctx context.Context) error {
	for u := range l.names.folds {
		var keys, jobs []string
		err := l.eachValue(ctx, l.key.Fold(u.tenant, u.user), func(field, job string) { keys, jobs = append(keys, field), append(jobs, job) })
		if err != nil {
			return err
		}
		for i, key := range keys {
			placed, err := l.placed(ctx, u, key)
			if err != nil {
				return err
			}
			if !placed {
				l.unplaced(u, key, jobs[i])
			}
		}
	}
	if err := l.digests(ctx); err != nil {
		return err
	}
	for lane := range l.names.lanes {
		if err := l.stubs(ctx, lane, l.names.folds[user{lane.Tenant, lane.User}]); err != nil {
			return err
		}
	}
	return nil
}

// placed reports whether a lane of a user has the place of the job under a collapse key, or
// whether there is no such job by now.
func (l *look) placed(ctx context.Context, u user, key string) (bool, error) {
	pipe := l.Client.TxPipeline()
	there := l.there(ctx, pipe, u, key)
	lanes := l.lanesOf(u)
	if name, is := envelope.ParseDigest(key); is {
		lanes = []store.Lane{digest{u, name.Place}.lane()}
	}
	var due []*redis.FloatCmd
	var places, lengths []*redis.IntCmd
	for _, lane := range lanes {
		due = append(due, pipe.ZScore(ctx, l.key.Later(), lane.Name()+" ="+key))
		places = append(places, pipe.LPos(ctx, l.key.Lane(lane), "="+key, redis.LPosArgs{MaxLen: longestSearch}))
		lengths = append(lengths, pipe.LLen(ctx, l.key.Lane(lane)))
	}
	if _, err := pipe.Exec(ctx); serious(err) != nil {
		return false, err
	}
	placed := !there()
	for i := range places {
		placed = placed || due[i].Err() == nil || places[i].Err() == nil || wrongType(places[i].Err()) || lengths[i].Val() > longestSearch
	}
	return placed, nil
}

// lanesOf returns the lanes of a user: one for each priority, and those with labels that there were.
func (l *look) lanesOf(u user) (lanes []store.Lane) {
	for _, priority := range priorities {
		lanes = append(lanes, store.Lane{Tenant: u.tenant, User: u.user, Priority: priority})
	}
	if l.labelled == nil {
		l.labelled = make(map[user][]store.Lane)
		for lane := range l.names.lanes {
			if of := (user{lane.Tenant, lane.User}); lane.Label != "" {
				l.labelled[of] = append(l.labelled[of], lane)
			}
		}
	}
	return append(lanes, l.labelled[u]...)
}

// unplaced notes a job under a collapse key that has no place in a lane.
func (l *look) unplaced(u user, key, job string) {
	fold := l.key.Fold(u.tenant, u.user)
	lane := store.Lane{Tenant: u.tenant, User: u.user, Priority: envelope.Normal}
	if head, ok := envelope.Head(job); ok {
		lane.Priority = head.Priority
	}
	if name, is := envelope.ParseDigest(key); is {
		lane = digest{u, name.Place}.lane()
	}
	l.add(damage{
		Finding: Finding{
			Kind: Fold, Key: fold, Seen: "the job under " + key + " stands in no lane",
			Problem: "it never starts, and newer ones replace it in vain", Repair: "it is put at the end of its lane",
		},
		still: func(ctx context.Context) (bool, error) {
			placed, err := l.placed(ctx, u, key)
			return !placed, err
		},
		mend: func(ctx context.Context) error {
			return l.repair(ctx, store.Mend{
				If: []store.Condition{
					l.isThere(u, key, job),
					{Want: "", Command: []any{"LPOS", l.key.Lane(lane), "=" + key, "MAXLEN", longestSearch}},
				},
				Do: append([][]any{
					{"RPUSH", l.key.Lane(lane), "=" + key},
					{"ZADD", l.key.Due(lane.Tenant, lane.Priority), "LT", l.now, lane.Member()},
				}, l.list(lane.Tenant)...),
			})
		},
	})
}

// stubs looks for places in a lane whose job is not under the collapse key: in all of it if
// the user has such jobs, otherwise at its front.
func (l *look) stubs(ctx context.Context, lane store.Lane, all bool) error {
	fold := l.key.Fold(lane.Tenant, lane.User)
	var stubs []string
	note := func(entry string) {
		if strings.HasPrefix(entry, "=") {
			stubs = append(stubs, entry)
		}
	}
	if all {
		if err := l.jobsIn(ctx, lane, note); err != nil {
			return err
		}
	} else {
		entries, err := l.Client.LRange(ctx, l.key.Lane(lane), 0, page-1).Result()
		if err != nil {
			return serious(err)
		}
		for _, entry := range entries {
			note(entry)
		}
	}
	missing, err := l.missing(ctx, lane, stubs)
	for _, stub := range missing {
		l.orphaned(lane, fold, stub)
	}
	return err
}

// orphaned notes the place of a job that is not there.
func (l *look) orphaned(lane store.Lane, fold, stub string) {
	key := l.key.Lane(lane)
	l.add(damage{
		Finding: Finding{
			Kind: Stub, Key: key, Seen: "the place of the job under " + stub[1:] + ", which " + fold + " does not have",
			Problem: "the job is lost; the leader notes it as dead when its turn comes", Repair: "the place is removed",
		},
		still: func(ctx context.Context) (bool, error) {
			missing, err := l.missing(ctx, lane, []string{stub})
			if err != nil || len(missing) == 0 {
				return false, err
			}
			err = l.Client.LPos(ctx, key, stub, redis.LPosArgs{MaxLen: longestSearch}).Err()
			return err == nil, serious(err)
		},
		mend: func(ctx context.Context) error {
			m := store.Mend{
				If: []store.Condition{
					{Want: 0, Command: []any{"HEXISTS", fold, stub[1:]}},
					{Want: 1, Command: []any{"LREM", key, 1, stub}},
				},
				Do: [][]any{
					{"HINCRBY", l.key.Meta(), "dropped", 1}, {"HINCRBY", l.key.Tenant(lane.Tenant), "dropped", 1},
					{"XADD", l.key.Drops(), "MAXLEN", "~", 100_000, "*", "lane", lane.Name(), "reason", "broken", "rule", "", "at", l.now, "job", ""},
				},
			}
			for _, scope := range lane.Backlogs() {
				m.Do = append(m.Do, []any{"ZINCRBY", l.key.Backlogs(), -1, scope}, []any{"ZREMRANGEBYSCORE", l.key.Backlogs(), "-inf", 0})
			}
			return l.repair(ctx, m)
		},
	})
}
