package leader

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Once a second, and when a lease ends, the leader reads whose leases hold. A worker whose lease has run out is dead: its
// jobs come back (reap.go). Of the others it reads the records of those that are new or in doubt, and of the rest one in eight, so a
// fleet of a hundred costs no more than a small one. Everything that is looked at once a second hangs on this: which
// keys have their types, who are the deputies, which tenants rest, how many lanes wait for limits by name.

// musterEvery is how often the leader looks who works, in µs.
const musterEvery = 1_000_000

// muster reads who works, and what follows from that: the members of the fleet, the dead, the number of places, the
// deputies, and when the next muster is. It takes two to four round trips.
func (t *term) muster(ctx context.Context, now int64) error {
	checks := t.fleet.musters%typesEvery == 0
	leases, err := query(ctx, t, func(ctx context.Context) (map[string]int64, error) {
		if checks {
			if err := t.w.Store.CheckTypes(ctx); err != nil {
				return nil, err
			}
		}
		return t.w.Store.Leases(ctx)
	})
	if err != nil {
		return err
	}
	var alive, dead []string
	for _, name := range slices.Sorted(maps.Keys(leases)) {
		switch {
		case name == t.w.Name:
		case leases[name] < now:
			dead = append(dead, name)
		default:
			alive = append(alive, name)
		}
	}
	if err := t.meet(ctx, alive); err != nil {
		return err
	}
	t.fleet.died(dead)
	t.w.Metrics.InLine(t.sched.InLine())
	t.sched.Step(now, schedule.Capacity(t.fleet.allPlaces()))
	if t.uncounted || t.fleet.musters%recordsEvery == 0 {
		if err := t.countRunning(ctx, slices.Collect(maps.Keys(leases)), now); err != nil {
			return err
		}
	}
	t.musterAt = t.nextMuster(now, leases, alive)
	t.appoint(alive)
	t.forgetTrimmers(now)
	t.forgetTenants()
	return nil
}

// nextMuster returns when to look again who works. Where jobs run it is no later than the end of the next lease: if that
// worker has died, its jobs come back then. A new worker says that it has come.
func (t *term) nextMuster(now int64, leases map[string]int64, alive []string) int64 {
	switch {
	case t.calm():
		return now + 8*musterEvery
	case t.alone():
		return now + 3*musterEvery
	}
	at := now + musterEvery + 20*t.fleet.far()
	for _, name := range alive {
		at = min(at, leases[name]+1)
	}
	return at
}

// meet makes the workers that are alive the members of the fleet. Members that are known are kept without
// reading: in a fleet of a hundred a muster reads thirteen records.
func (t *term) meet(ctx context.Context, alive []string) error {
	known := make(map[string]*member)
	for _, m := range t.fleet.members {
		known[m.Worker] = m
	}
	t.fleet.musters++
	own := &member{}
	own.Worker = t.w.Name
	members := []*member{own}
	var unknown []string
	for i, name := range alive {
		if m := known[name]; m != nil && !m.unsure && !m.stalled && m.Ahead == 0 && (t.fleet.musters+i)%recordsEvery != 0 {
			members = append(members, m)
		} else {
			unknown = append(unknown, name)
		}
	}
	records, loads, err := queryBoth(ctx, t, unknown, t.w.Store.Records)
	if err != nil {
		return err
	}
	for i, name := range unknown {
		if m := t.memberOf(name, records[i], loads[i]); records[i].Doubt < clock.Usable {
			members = append(members, m)
		}
	}
	t.fleet.members = members
	return nil
}

const (
	// recordsEvery is at how many musters the record of a worker that is known is read again.
	recordsEvery = 8
	// typesEvery is at how many it is looked whether the keys of the queue have their types.
	typesEvery = 4
)

// memberOf returns a worker as its record tells of it. How many places it has free is known by the claims that
// the scheduler counts. A worker that knows the time badly gets slots ahead, by its doubt. What its claims need to get
// there is taken into account with each place ([fleet.Next]).
func (t *term) memberOf(name string, r store.WorkerRecord, load store.Load) *member {
	m := &member{places: r.Places, doubt: r.Doubt}
	m.Worker = name
	m.sawMailbox(load.Untaken, t.w.Now())
	if doubt := r.Doubt.Microseconds(); doubt > schedule.Grace/2 {
		m.Ahead, m.Spread = 2*doubt, spreadOf(doubt)
	}
	return m
}

// countRunning tells the scheduler which claims there are: a new scheduler knows none. After that it is told of all
// ends, and makes all claims itself. They are read again now and then, since a Redis that was restored may hold others.
func (t *term) countRunning(ctx context.Context, workers []string, now int64) error {
	claims, err := queryOf(ctx, t, workers, t.w.Store.Claims)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(c envelope.ClaimRef) bool { return !c.Valid() })
	t.sched.Step(now, schedule.Running(claims))
	t.uncounted = false
	return nil
}

// If all workers of a fleet looked whether the leader still leads, Redis would have much to do for nothing. So the
// leader names two that look, with its own commits; the others look only when their beats tell them that nobody leads.
// A worker learns from its mailbox that it is a deputy, or is one no more. Deputies are told again now and then, since
// a message may be lost. A worker that may be stopping, or that takes no messages, is no deputy.

// appoint makes the two workers that know Redis's clock best deputies.
func (t *term) appoint(alive []string) {
	best := slices.DeleteFunc(slices.Clone(t.fleet.members[1:]), func(m *member) bool { return m.unsure || m.stalled })
	slices.SortStableFunc(best, func(a, b *member) int { return cmp.Compare(a.doubt, b.doubt) })
	var names []string
	for _, m := range best[:min(2, len(best))] {
		names = append(names, m.Worker)
	}
	t.nearest = nil
	if len(best) > 0 {
		t.nearest = best[0]
	}
	slices.Sort(names)
	if !slices.Equal(names, t.deputies) || t.fleet.musters%recordsEvery == 0 { // a message may be lost
		for _, name := range names {
			t.orders = append(t.orders, order{name, []string{store.MessageDeputy, name, ""}})
		}
		for _, name := range t.deputies {
			if !slices.Contains(names, name) && slices.Contains(alive, name) {
				t.orders = append(t.orders, order{name, []string{store.MessageDeputy, "", ""}})
			}
		}
		t.deputies = names
	}
}

// forgetTenants forgets the tenants that have had nothing to do for some time, beside the rounds. The scheduler has
// forgotten them when this begins. One that gets a job meanwhile has a lane, and stays in the index. If the work ends
// early the others stay there, too, and the next leader finds them.
func (t *term) forgetTenants() {
	if t.resting {
		return
	}
	names := t.sched.Rest()
	if len(names) == 0 {
		return
	}
	t.resting = true
	t.workers.Go(func() {
		if err := t.w.Store.ForgetTenants(t.ctx, names); err != nil {
			t.w.Log.Debug("forgetting tenants with nothing to do", "err", err)
		}
		t.report(t.ctx, func(int64) { t.resting = false })
	})
}

// alone reports whether there is no other worker.
func (t *term) alone() bool { return len(t.fleet.members) <= 1 }
