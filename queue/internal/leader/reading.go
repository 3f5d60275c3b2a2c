package leader

import (
	"context"
	"errors"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The scheduler holds the fronts of what Redis holds, and says what it lacks ([schedule.Needs]). That is read by
// the commit in which it was asked for, after the commit's own writes. Since Redis executes commits in
// their order, such a read sees exactly what the commits before it leave behind: no job that one of them
// has taken, and every job that came into a lane before. A read beside the commits would be older or newer
// than what the scheduler has decided meanwhile. And a commit costs one round trip.
//
// A job with a collapse key is kept apart from its lane, which holds "=" and the key. Its text is read in a
// second step ([term.readHeads]). It may have been replaced or have left between the two: whoever claims it takes the
// newest, and where there is none the lane is read again.

// headsEach is how many jobs of a lane are read at a time.
const headsEach = 10

// want lets a commit read what the scheduler needs. The reads run after the commit's writes, and
// after all commits before it: they see the state that those leave.
func (b *inflight) want(needs schedule.Needs) {
	if needs.Tenants.N > 0 {
		b.c.ReadTenants(store.Span(needs.Tenants))
	}
	for _, need := range needs.Lanes {
		b.c.ReadFront(need.Tenant, need.Priority, store.Span(need.Span))
	}
	for _, lane := range needs.Heads {
		b.c.Read(lane, headsEach)
	}
	b.c.ReadStates(needs.States)
	for _, scope := range needs.States {
		if tenant, user := envelope.ParseScope(scope); tenant != "" && user == "" {
			b.c.ReadWaiting(tenant)
		}
	}
}

// learn tells the scheduler what was read with a commit that has happened. Jobs under collapse keys are read first:
// only then, and with such a lane, it costs a round trip.
func (t *term) learn(ctx context.Context, c schedule.Commit, read store.Looks) error {
	found := schedule.Found{Tenants: boundsOf(read.Tenants), States: read.States, Waiting: read.Waiting}
	for _, front := range read.Fronts {
		found.Fronts = append(found.Fronts, lanesOf(front))
	}
	var err error
	if found.Heads, err = t.readHeads(ctx, c.Needs.Heads, read.Heads); err != nil {
		return err
	}
	t.sched.Learn(c, found, t.w.Now())
	return nil
}

// lanesOf returns members of an index of lanes as the scheduler knows them.
func lanesOf(found []store.Bounded) []schedule.Bound {
	bounds := make([]schedule.Bound, len(found))
	for i, b := range found {
		bounds[i].At, bounds[i].Member = b.At, b.Name
		bounds[i].Name, bounds[i].Label = envelope.ParseMember(b.Name)
	}
	return bounds
}

// boundsOf returns members of the index of tenants as the scheduler knows them: by their names.
func boundsOf(found []store.Bounded) []schedule.Bound {
	bounds := make([]schedule.Bound, len(found))
	for i, b := range found {
		bounds[i] = schedule.Bound{Name: envelope.Unescape(b.Name), At: b.At, Member: b.Name}
	}
	return bounds
}

// readHeads reads entries of lanes, and the jobs that are kept under collapse keys. What cannot be read is a head with
// an error: the scheduler drops it when its turn comes, and it is dead.
func (t *term) readHeads(ctx context.Context, lanes []envelope.Lane, entries [][]string) ([][]schedule.Head, error) {
	heads := make([][]schedule.Head, len(lanes))
	var folded []store.Folded
	var of []*schedule.Head
	for i, texts := range entries {
		heads[i] = make([]schedule.Head, len(texts))
		for k, entry := range texts {
			if entry != "" && entry[0] == '=' {
				heads[i][k] = schedule.Head{Entry: entry}
				folded = append(folded, store.Folded{Tenant: lanes[i].Tenant, User: lanes[i].User, Key: entry[1:]})
				of = append(of, &heads[i][k])
				continue
			}
			heads[i][k] = headOf(entry)
		}
	}
	if len(folded) == 0 {
		return heads, nil
	}
	jobs, err := queryOf(ctx, t, folded, t.w.Store.FoldedJobs)
	if err != nil {
		return nil, err
	}
	for k, job := range jobs {
		h := of[k]
		if h.Job = job; job == "" {
			h.Err = errors.New("there is no job under its collapse key")
		} else if h.Env, h.Err = envelope.Open(job); h.Err != nil {
			h.Env = nil
		}
	}
	return heads, nil
}

// headOf reads a job as it stands in its lane.
func headOf(job string) schedule.Head {
	env, err := envelope.Open(job)
	if err != nil {
		return schedule.Head{Entry: job, Job: job, Err: err}
	}
	return schedule.Head{Entry: job, Job: job, Env: env}
}
