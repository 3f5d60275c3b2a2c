package examine

import (
	"context"
	"maps"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// An ownerless set is what some job should name, and none was seen that does.
type ownerless struct {
	bodies map[string]bool
	ids    map[string]string // escaped ID → what it says: the name of a lane
}

// owners looks for payloads that no job names, and for IDs of waiting jobs that do not wait.
// It reads all jobs, if there are such payloads or IDs at all.
func (l *look) owners(ctx context.Context) error {
	alone := ownerless{bodies: make(map[string]bool), ids: make(map[string]string)}
	for _, name := range l.names.bodies {
		alone.bodies[name] = true
	}
	says, err := read(ctx, l, l.names.ids, func(pipe redis.Pipeliner, id string) *redis.StringCmd {
		return pipe.Get(ctx, l.prefix+"id:"+id)
	})
	if err != nil {
		return err
	}
	for i, id := range l.names.ids {
		if _, bad := envelope.ParseLane(says[i].Val()); bad == nil {
			alone.ids[id] = says[i].Val()
		}
	}
	// A job that moves against the order of the walk is passed: it would have to do so each time.
	for walk := 0; walk < 3 && len(alone.bodies)+len(alone.ids) > 0; walk++ {
		if walk > 0 {
			if err := l.survey(ctx); err != nil { // there are new lanes
				return err
			}
		}
		if err := l.eachJob(ctx, alone.names); err != nil {
			return err
		}
	}
	l.addOwnerless(alone)
	return nil
}

// names notes that a job was seen.
func (o ownerless) names(job string) {
	head, ok := envelope.Head(job)
	if !ok {
		return
	}
	for _, part := range head.Parts() {
		delete(o.bodies, part.Spilled)
		delete(o.ids, envelope.Escape(part.ID))
	}
}

func (l *look) addOwnerless(alone ownerless) {
	for name := range alone.bodies {
		key := l.key.Body(name)
		l.add(damage{
			Finding: Finding{Kind: Payload, Key: key, Seen: "a payload that no job names", Problem: "it takes memory for ever", Repair: "it is deleted"},
			still: func(ctx context.Context) (bool, error) {
				n, err := l.Client.Exists(ctx, key).Result()
				return n == 1, err
			},
			mend: func(ctx context.Context) error { return l.repair(ctx, store.Mend{Do: [][]any{{"UNLINK", key}}}) },
		})
	}
	for id, says := range alone.ids {
		key := l.prefix + "id:" + id
		l.add(damage{
			Finding: Finding{
				Kind: ID, Key: key, Seen: "it says that its job waits in " + says + ", where it is not",
				Problem: "the job is lost, and offered again it counts as a duplicate", Repair: "the ID is forgotten: the job can be offered again",
			},
			still: func(ctx context.Context) (bool, error) { return l.strayed(ctx, id, says) },
			mend: func(ctx context.Context) error {
				return l.repair(ctx, store.Mend{If: []store.Condition{{Want: says, Command: []any{"GET", key}}}, Do: [][]any{{"DEL", key}}})
			},
		})
	}
}

// strayed reports whether an ID still says that its job waits in a lane, and the job neither
// waits in a lane of that user nor for its time, nor was claimed.
func (l *look) strayed(ctx context.Context, id, says string) (bool, error) {
	lane, err := envelope.ParseLane(says)
	if err != nil {
		return false, nil
	}
	alone := ownerless{ids: map[string]string{id: says}}
	if err := l.laterJobs(ctx, alone.names); err != nil {
		return false, err
	}
	for _, lane.Priority = range priorities {
		if err := l.jobsIn(ctx, lane, alone.names); err != nil {
			return false, err
		}
	}
	if err := l.eachValue(ctx, l.key.Fold(lane.Tenant, lane.User), func(_, job string) { alone.names(job) }); err != nil {
		return false, err
	}
	if err := l.claimedJobs(ctx, alone.names); err != nil {
		return false, err
	}
	now, err := l.Client.Get(ctx, l.prefix+"id:"+id).Result()
	return now == says && len(alone.ids) > 0, serious(err)
}

// page is how many jobs are read at a time.
const page = 100

// eachJob passes the jobs of the queue, in the order in which they move from place to place.
func (l *look) eachJob(ctx context.Context, do func(job string)) error {
	for _, walk := range []func(context.Context, func(string)) error{l.jobsInLanes, l.jobsInFolds, l.claimedJobs, l.laterJobs, l.deadJobs} {
		if err := walk(ctx, do); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) jobsInLanes(ctx context.Context, do func(string)) error {
	for lane := range l.names.lanes {
		if err := l.jobsIn(ctx, lane, do); err != nil {
			return err
		}
	}
	return nil
}

// jobsIn passes the entries of a lane from its end, so that none is missed where jobs leave at
// the front or come at the end. Some may come twice.
func (l *look) jobsIn(ctx context.Context, lane store.Lane, do func(string)) error {
	for to := int64(-1); ; to -= page {
		jobs, err := l.Client.LRange(ctx, l.key.Lane(lane), to-page+1, to).Result()
		if err != nil {
			return serious(err)
		}
		for _, job := range jobs {
			do(job)
			if err := l.inDigest(ctx, lane, job, do); err != nil {
				return err
			}
		}
		if len(jobs) < page {
			return nil
		}
	}
}

func (l *look) jobsInFolds(ctx context.Context, do func(string)) error {
	for u := range l.names.folds {
		if err := l.eachValue(ctx, l.key.Fold(u.tenant, u.user), func(_, job string) { do(job) }); err != nil {
			return err
		}
	}
	for _, d := range l.names.digests {
		if err := l.membersOf(ctx, d, do); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) claimedJobs(ctx context.Context, do func(string)) error {
	workers, err := l.Client.ZRange(ctx, l.key.Workers(), 0, -1).Result()
	if serious(err) != nil {
		return err
	}
	all := make(map[string]bool)
	for _, worker := range append(workers, l.names.running...) {
		all[worker] = true
	}
	for worker := range maps.Keys(all) {
		err := l.eachValue(ctx, l.key.Running(worker), func(_, job string) { do(job) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (l *look) laterJobs(ctx context.Context, do func(string)) error {
	return l.eachMember(ctx, l.key.Later(), func(members []string) error {
		for _, member := range members {
			lane, job, err := store.ParseLater(member)
			if err != nil {
				continue
			}
			do(job)
			if err := l.inDigest(ctx, lane, job, do); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *look) deadJobs(ctx context.Context, do func(string)) error {
	for after := "-"; ; {
		entries, err := l.Client.XRangeN(ctx, l.key.Dead(), after, "+", page).Result()
		if err != nil {
			return serious(err)
		}
		for _, entry := range entries {
			job, _ := entry.Values["job"].(string)
			do(job)
			after = "(" + entry.ID
		}
		if len(entries) < page {
			return nil
		}
	}
}

// eachValue goes through a hash in bounded steps.
func (l *look) eachValue(ctx context.Context, key string, do func(field, value string)) error {
	for cursor := uint64(0); ; {
		pairs, next, err := l.Client.HScan(ctx, key, cursor, "", page).Result()
		if err != nil {
			return serious(err)
		}
		for pair := range slices.Chunk(pairs, 2) {
			do(pair[0], pair[1])
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}
