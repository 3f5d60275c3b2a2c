package runner

import (
	"context"
	"errors"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// headsEach is how many jobs of a lane are read at a time.
const headsEach = 10

// read reads what the scheduler needs, until it needs nothing. The first jobs of lanes
// are read with a commit if one is going to be sent: then they are what it leaves.
func (t *term) read(ctx context.Context, needs schedule.Needs) error {
	now, _ := t.r.clock.now()
	if needs.Tenants {
		from, n := t.sched.TenantsFront()
		found, err := t.r.store.DueTenants(ctx, from, n)
		if err != nil {
			return err
		}
		t.sched.LearnTenants(boundsOf(found))
	}
	if len(needs.Lanes) > 0 {
		fronts := make([]store.Front, len(needs.Lanes))
		for i, need := range needs.Lanes {
			fronts[i] = store.Front{Tenant: need.Tenant, Priority: need.Priority, From: need.From, N: need.N}
		}
		found, err := t.r.store.Fronts(ctx, fronts)
		if err != nil {
			return err
		}
		for i, need := range needs.Lanes {
			t.sched.LearnLanes(need, boundsOf(found[i]), now)
		}
	}
	if len(needs.Heads) > 0 {
		entries, err := t.r.store.Heads(ctx, needs.Heads, headsEach)
		if err != nil {
			return err
		}
		if err := t.learnHeads(ctx, needs.Heads, entries); err != nil {
			return err
		}
		t.empty(needs.Heads, entries)
	}
	return t.readStates(ctx, needs.States)
}

func boundsOf(found []store.Bounded) []schedule.Bound {
	bounds := make([]schedule.Bound, len(found))
	for i, b := range found {
		bounds[i] = schedule.Bound{Name: envelope.Unescape(b.Name), At: b.At}
	}
	return bounds
}

// empty notes lanes that stand in their index and hold nothing: the next commit takes
// them out, if that is still so.
func (t *term) empty(lanes []envelope.Lane, entries [][]string) {
	for i, lane := range lanes {
		if len(entries[i]) == 0 {
			t.empties = append(t.empties, lane)
		}
	}
}

// learnHeads tells the scheduler the first jobs of lanes, those under collapse keys
// included.
func (t *term) learnHeads(ctx context.Context, lanes []envelope.Lane, entries [][]string) error {
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
	if len(folded) > 0 {
		jobs, err := t.r.store.FoldedJobs(ctx, folded)
		if err != nil {
			return err
		}
		for k, job := range jobs {
			h := of[k]
			if h.Job = job; job == "" {
				h.Err = errors.New("there is no job under its collapse key")
			} else if h.Env, h.Err = envelope.Open(job); h.Err != nil {
				h.Env = nil
			}
		}
	}
	now, _ := t.r.clock.now()
	for i, lane := range lanes {
		t.sched.LearnHeads(lane, heads[i], now)
	}
	return nil
}

// readStates reads what the rules of subjects remember, and the backlogs of tenants.
func (t *term) readStates(ctx context.Context, scopes []string) error {
	if len(scopes) == 0 {
		return nil
	}
	states, err := t.r.store.States(ctx, scopes)
	if err != nil {
		return err
	}
	var tenants []string
	for _, scope := range scopes {
		if tenant, user := envelope.ParseScope(scope); tenant != "" && user == "" {
			tenants = append(tenants, tenant)
		}
	}
	waiting, err := t.r.store.Waiting(ctx, tenants)
	if err != nil {
		return err
	}
	now, _ := t.r.clock.now()
	for i, scope := range scopes {
		tenant, user := envelope.ParseScope(scope)
		if user != "" {
			t.sched.LearnUserState(tenant, user, states[i], now)
			continue
		}
		t.sched.LearnTenantState(tenant, states[i], waiting[0], now)
		waiting = waiting[1:]
	}
	return nil
}

// headsOf reads entries of a lane.
func (t *term) headsOf(ctx context.Context, lane envelope.Lane, entries []string) ([]schedule.Head, error) {
	heads := make([]schedule.Head, len(entries))
	for i, entry := range entries {
		if entry == "" || entry[0] != '=' {
			heads[i] = headOf(entry)
			continue
		}
		jobs, err := t.r.store.FoldedJobs(ctx, []store.Folded{{Tenant: lane.Tenant, User: lane.User, Key: entry[1:]}})
		if err != nil {
			return nil, err
		}
		heads[i] = headOf(jobs[0])
		heads[i].Entry = entry
	}
	return heads, nil
}

// undone reports whether a commit that failed so has certainly done nothing.
func undone(err error) bool {
	return errors.Is(err, store.ErrDeposed) || errors.Is(err, store.ErrChanged)
}
