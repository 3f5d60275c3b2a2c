package runner

import (
	"container/heap"
	"context"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A trimmer finds the oldest waiting job of one tenant whose backlog drops its oldest job
// to make room. It knows of each lane how old its first job is at most.
type trimmer struct{ lanes stamps }

// stamps is a heap of lanes by the stamps of their first jobs, which are lower bounds.
type stamps []stamped

type stamped struct {
	stamp string
	lane  envelope.Lane
}

func (s stamps) Len() int           { return len(s) }
func (s stamps) Less(i, j int) bool { return s[i].stamp < s[j].stamp }
func (s stamps) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *stamps) Push(x any)        { *s = append(*s, x.(stamped)) }
func (s *stamps) Pop() any {
	old := *s
	last := old[len(old)-1]
	*s = old[:len(old)-1]
	return last
}

// trimBatch is how many jobs one commit drops to make room.
const trimBatch = 50

// trim drops the oldest jobs of tenants whose backlogs are above their capacity, where
// their policy says so.
func (t *term) trim(ctx context.Context, c *store.Commit, now int64) error {
	for _, name := range t.sched.Over() {
		t.full[name] = true
	}
	for name := range t.full {
		policy := t.sched.Policy(name)
		waiting, err := t.r.store.Waiting(ctx, []string{name})
		if err != nil {
			return err
		}
		over := int(waiting[0]) - policy.Capacity
		if !policy.DropOldest || policy.Capacity == 0 || over <= 0 {
			delete(t.full, name)
			delete(t.trimmers, name)
			continue
		}
		if err := t.trimTenant(ctx, c, name, min(over, trimBatch), now); err != nil {
			return err
		}
	}
	return nil
}

// trimTenant drops the n oldest jobs of a tenant.
func (t *term) trimTenant(ctx context.Context, c *store.Commit, name string, n int, now int64) error {
	tr := t.trimmers[name]
	if tr == nil {
		tr = &trimmer{}
		lanes, err := t.r.store.AllLanes(ctx, name)
		if err != nil {
			return err
		}
		for _, lane := range lanes {
			tr.lanes = append(tr.lanes, stamped{"", lane})
		}
		t.trimmers[name] = tr
	}
	dropped := make(map[envelope.Lane][]store.Leaving)
	var order []envelope.Lane
	for range 100 * n {
		if n == 0 || len(tr.lanes) == 0 {
			break
		}
		first := tr.lanes[0]
		heads, err := t.r.store.Heads(ctx, []envelope.Lane{first.lane}, len(dropped[first.lane])+1)
		if err != nil {
			return err
		}
		entries := heads[0]
		if len(entries) <= len(dropped[first.lane]) {
			heap.Pop(&tr.lanes)
			continue
		}
		entry := entries[len(entries)-1]
		found, err := t.headsOf(ctx, first.lane, []string{entry})
		if err != nil {
			return err
		}
		stamp := found[0].Begin()
		if found[0].Env != nil {
			stamp = found[0].Env.Stamp
		}
		if stamp != first.stamp {
			tr.lanes[0].stamp = stamp
			heap.Fix(&tr.lanes, 0)
			continue
		}
		if dropped[first.lane] == nil {
			order = append(order, first.lane)
		}
		dropped[first.lane] = append(dropped[first.lane], store.Leaving{Begin: found[0].Begin()})
		(&bundle{t: t, c: c}).drop(schedule.Drop{Lane: first.lane, Head: found[0], Reason: schedule.Full}, now)
		n--
	}
	for _, lane := range order {
		c.Take(lane, dropped[lane])
		t.sooner(c, lane, now) // the next one may cost less
		t.sched.Look(lane.Tenant, lane.User, now)
	}
	return nil
}
