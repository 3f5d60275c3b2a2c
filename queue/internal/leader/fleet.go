package leader

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// The leader knows the other workers by what they write with their beats: how many places they have for this
// queue, and how badly they know Redis's clock. Once a second it reads whose leases hold (muster), and the records
// of those that are new, that are in doubt, or whose turn it is. How many jobs a worker has the scheduler
// counts: only the leader makes claims, and it is told of every end.
//
// A worker gets no jobs
//
//   - while it does not take its messages (stalled): each commit that gives it something reads since when one
//     waits there, and so do all commits while it stalls;
//   - after it has returned a job unstarted (unsure), until its record was read again: it may be stopping;
//   - while it knows Redis's clock worse than [clock.Usable];
//   - when a commit has found that it left (heed).
//
// Slots for a worker that is far away, or knows the time badly, lie ahead by what its job needs to get there:
// by 2 · doubt if the doubt is above grace/2, and by 3/2 · trip + doubt − grace/4 if trip and doubt are above
// 3 ms together. The rules count such a start at the end of the time in which it may happen: at its slot +
// doubt − grace/2.

// A fleet is the workers that a leader gives jobs to.
type fleet struct {
	w       *worker.Worker
	members []*member               // the first is this worker
	dead    []string                // whose leases have expired
	reaping *reaping                // what is taken back from the first of those; nil for nothing yet
	held    func(worker string) int // how many jobs a worker has
	musters int
	trip    time.Duration // from a decision until it is known, on average
}

// A member is one worker.
type member struct {
	schedule.Place
	places, free int
	doubt        time.Duration
	unsure       bool // it has returned a job: it may be stopping
	stalled      bool // it does not take what it was told
}

// musterEvery is how often the leader looks who works, in µs.
const musterEvery = 1_000_000

// muster reads who works, and how many places each has free.
func (t *term) muster(ctx context.Context, now int64) error {
	if err := t.w.Store.CheckTypes(ctx); err != nil {
		return err
	}
	leases, err := t.w.Store.Leases(ctx)
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
	t.sched.Step(now, schedule.Capacity(t.fleet.places()))
	if t.uncounted || t.fleet.musters%recordsEvery == 0 {
		if err := t.countRunning(ctx, slices.Collect(maps.Keys(leases)), now); err != nil {
			return err
		}
	}
	t.musterAt, t.fence.Lease = now+musterEvery+20*t.fleet.far(), elect.Lease(t.w.Clock)
	if t.alone() {
		t.musterAt, t.fence.Lease = now+3*musterEvery, elect.LeaseAlone(t.w.Clock) // a new worker says that it has come
	}
	t.appoint(alive)
	t.forgetTrimmers(now)
	t.forgetTenants()
	return nil
}

// forgetTenants forgets the tenants that have had nothing to do for some time, beside the rounds.
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

// recordsEvery is at how many musters the record of a worker that is known is read again.
const recordsEvery = 8

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
	records, loads, err := t.w.Store.Records(ctx, unknown)
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

// memberOf returns a worker as its record tells of it. How many places it has free is known by the claims that
// the scheduler counts.
func (t *term) memberOf(name string, r store.WorkerRecord, load store.Load) *member {
	m := &member{places: r.Places, doubt: r.Doubt}
	m.Worker = name
	m.sawHand(load.Untaken, t.w.Now())
	if doubt := r.Doubt.Microseconds(); doubt > schedule.Grace/2 {
		m.Ahead, m.Spread = 2*doubt, spreadOf(doubt)
	}
	return m
}

// stallsAfter is how long a worker may leave untaken what it was told, beside its doubt.
const stallsAfter = 100 * time.Millisecond

// sawHand notes since when a message waits in a worker's hand, 0 for none. A worker that does not take
// its messages may be frozen: it gets no more jobs until another look finds that it does.
func (m *member) sawHand(untaken, now int64) {
	m.stalled = untaken > 0 && clock.Micros(now-untaken) > stallsAfter+4*min(m.doubt, time.Minute)
}

// sawHand notes the same by a worker's name, and reports whether the worker had stalled and goes on.
func (f *fleet) sawHand(worker string, untaken, now int64) (again bool) {
	for _, m := range f.members[1:] {
		if m.Worker == worker {
			before := m.stalled
			m.sawHand(untaken, now)
			again = before && !m.stalled
		}
	}
	return again
}

// stalled returns the workers that do not take their messages.
func (f *fleet) stalled() (names []string) {
	for _, m := range f.members[1:] {
		if m.stalled {
			names = append(names, m.Worker)
		}
	}
	return names
}

// A worker that stops writes with its next beat that it has no places. Jobs that were given to it before come back
// unstarted, and would go there again and again until that beat: so the first that comes back says it too.

// distrust lets a worker that has returned a job get no more until its record was read
// again.
func (f *fleet) distrust(worker string) {
	for _, m := range f.members[1:] {
		if m.Worker == worker {
			m.unsure, m.places = true, 0
		}
	}
}

// has notes that a worker's other queues leave so many places to this one.
func (f *fleet) has(worker string, places int) {
	for _, m := range f.members[1:] {
		if m.Worker == worker && !m.unsure {
			m.places = places
		}
	}
}

// remove takes a worker out of the fleet.
func (f *fleet) remove(worker string) {
	f.members = slices.DeleteFunc(f.members, func(m *member) bool { return m.Worker == worker })
}

// alone reports whether there is no other worker.
func (t *term) alone() bool { return len(t.fleet.members) <= 1 }

// How often the lease is renewed by a leader with nothing to do, beside others and alone.
const (
	renewEvery  = 150 * time.Millisecond
	aloneRenews = 600 * time.Millisecond
)

// renewEvery returns after what time without a commit the term commits nothing, to renew its lease.
func (t *term) renewEvery() time.Duration {
	if t.alone() {
		return aloneRenews
	}
	return renewEvery
}

// noteTrip notes how long a commit took, from its decision until its outcome was known.
func (f *fleet) noteTrip(trip time.Duration) { f.trip += (trip - f.trip) / 4 }

// ahead returns how far ahead of its decision a slot has to lie, in µs, for a job that
// takes so long to its worker, who knows Redis's clock so well, to come within the grace.
// Most do anyway, and then need not wait.
func ahead(trip, doubt time.Duration) int64 {
	takes := (trip + doubt).Microseconds()
	if takes < schedule.Grace*6/10 {
		return 0
	}
	return min(takes-schedule.Grace/4, farthest)
}

// farthest bounds how far ahead slots lie, in µs.
const farthest = 1_000_000

// spreadOf returns how much later than its slot a job may start, beyond the grace, where
// Redis's clock is known so well, in µs. Half of the grace stays for timers that ring late,
// and for a doubt that has grown since it was told: otherwise every job would ask again.
func spreadOf(doubt int64) int64 { return max(0, doubt-schedule.Grace/2) }

// far returns how much longer before their slots than usual jobs have to be given, in µs,
// where a decision takes long: a leader far away would decide about one job of a tenant in
// each round trip.
func (f *fleet) far() int64 {
	if f.trip.Microseconds() < schedule.Grace {
		return 0
	}
	return min(3*f.trip.Microseconds(), farthest)
}

// before reports whether a worker gets a job before another one: near workers before far
// ones, for whom the rules pass over the slots until the job has got there; among those, the
// one with the largest share of its places free.
func (m *member) before(other *member) bool {
	if (m.Ahead == 0) != (other.Ahead == 0) {
		return m.Ahead == 0
	}
	return m.free*other.places > other.free*m.places
}

// Next takes a place of the worker that gets the next job. It returns nil if none is free. Places of this worker are
// shared with its other queues: one is taken at once, and given back if the commit does not happen. Those of
// others are taken by the claims that the scheduler counts.
func (f *fleet) Next() *schedule.Place {
	own := f.members[0]
	own.places, own.free = f.w.Places.Left(), f.w.Places.Free()
	_, doubt := f.w.Clock.Now()
	own.Ahead, own.Spread = ahead(f.trip, doubt), 0
	if doubt.Microseconds() > schedule.Grace/2 {
		own.Ahead, own.Spread = max(own.Ahead, doubt.Microseconds()), spreadOf(doubt.Microseconds())
	}
	if f.w.Stopping() || doubt >= clock.Usable {
		own.free = 0
	}
	for _, m := range f.members[1:] {
		if m.free = m.places - f.held(m.Worker); m.stalled {
			m.free = 0
		}
	}
	var best *member
	for _, m := range f.members {
		if m.free > 0 && (best == nil || m.before(best)) {
			best = m
		}
	}
	if best == nil {
		return nil
	}
	if best == own && !f.w.Places.Take() { // another queue of this worker has
		return f.Next()
	}
	place := best.Place
	if best != own {
		place.Ahead = max(place.Ahead, ahead(f.trip*3/2, best.doubt))
	}
	return &place
}

// Free gives a place back. Those of other workers are taken by the jobs that they get.
func (f *fleet) Free(p *schedule.Place) {
	if p.Worker == f.w.Name {
		f.w.Places.Give()
	}
}

// appoint makes the two workers that know Redis's clock best deputies: they look after the
// leader, and the rest of the fleet can sleep.
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
	if !slices.Equal(names, t.deputies) {
		for _, name := range names {
			t.orders = append(t.orders, order{name, []string{store.HandDeputy, name, ""}})
		}
		for _, name := range t.deputies {
			if !slices.Contains(names, name) && slices.Contains(alive, name) {
				t.orders = append(t.orders, order{name, []string{store.HandDeputy, "", ""}})
			}
		}
		t.deputies = names
	}
}

// An order is something to put into a worker's hand with the next commit.
type order struct {
	worker string
	words  []string
}

// places returns how many places the fleet has for this queue.
func (f *fleet) places() int {
	n := f.w.Places.Left()
	for _, m := range f.members[1:] {
		n += m.places
	}
	return n
}

// free returns how many of them are free, as far as is known.
func (f *fleet) free() int {
	n := f.w.Places.Free()
	for _, m := range f.members[1:] {
		n += max(0, m.places-f.held(m.Worker))
	}
	return n
}

// countRunning tells the scheduler which claims there are. It is told of their ends; what is read
// again now and then makes up for what a Redis that was restored has forgotten.
func (t *term) countRunning(ctx context.Context, workers []string, now int64) error {
	claims, err := t.w.Store.Claims(ctx, workers)
	if err != nil {
		return err
	}
	claims = slices.DeleteFunc(claims, func(c envelope.ClaimRef) bool { return !c.Valid() })
	t.sched.Step(now, schedule.Running(claims))
	t.uncounted = false
	return nil
}
