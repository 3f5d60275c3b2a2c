package leader

import (
	"maps"
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// The leader knows the other workers by what they write with their beats: how many places they have for this
// queue, and how badly they know Redis's clock (muster.go). How many jobs a worker has the scheduler
// counts: only the leader makes claims, and it is told of every end.
//
// A worker gets no jobs
//
//   - while it does not take its messages (stalled): each commit that gives it something reads since when one
//     waits there, and so do other commits while it stalls (write);
//   - after it has returned a job unstarted (unsure), until its record was read again: it may be stopping;
//   - while it knows Redis's clock worse than [clock.Usable];
//   - until an instant after it has sent a job on, unless no other worker has places (out);
//   - when a commit has found that it left (heed).
//
// Slots for a worker that is far away, or knows the time badly, lie ahead by what its job needs to get there:
// by 2 · doubt if the doubt is above grace/2, and by 3/2 · trip + doubt − grace/4 if 3/2 · trip + doubt is above
// 3 ms; the larger of the two counts. For the leader's own jobs it is the doubt, and trip + doubt − grace/4. The rules
// count such a start at the end of the time in which it may happen: at its slot + doubt − grace/2.

// A fleet is the workers that a leader gives jobs to. It hands out their places ([schedule.Places]). The first member
// is this worker, whether it has places or not. The first of the dead is the one that is being reaped. The trip is a
// moving average. Every eighth muster reads more than the others.
type fleet struct {
	w       *worker.Worker
	members []*member               // the first is this worker
	dead    []string                // whose leases have expired
	reaping *reaping                // what is taken back from the first of those; nil for nothing yet
	held    func(worker string) int // how many jobs a worker has
	out     map[string]int64        // worker → until when it can run no job, as it has said with one that it sent on, µs
	musters int
	trip    time.Duration // from a decision until it is known, on average
}

// A member is one worker, as its record told of it when that was read: its name and how far ahead its slots lie by its
// doubt, its places for this queue, and its doubt. How many places are free is known while [fleet.Next] runs.
type member struct {
	schedule.Place
	places, free int
	doubt        time.Duration
	unsure       bool // it has returned a job: it may be stopping
	stalled      bool // it does not take what it was told
}

// stallsAfter is how long a worker may leave untaken what it was told, beside four times its doubt.
const stallsAfter = 100 * time.Millisecond

// sawMailbox notes since when a message waits in a worker's mailbox, 0 for none. A worker that does not take
// its messages may be frozen: it gets no more jobs until another look finds that it does.
func (m *member) sawMailbox(untaken, now int64) {
	m.stalled = untaken > 0 && clock.Micros(now-untaken) > stallsAfter+4*min(m.doubt, time.Minute)
}

// sawMailbox notes the same by a worker's name, and reports whether the worker had stalled and goes on.
func (f *fleet) sawMailbox(worker string, untaken, now int64) (again bool) {
	for _, m := range f.members[1:] {
		if m.Worker == worker {
			before := m.stalled
			m.sawMailbox(untaken, now)
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

// distrust lets a worker that has returned a job get no more until its record was read again, which the next muster
// does.
func (f *fleet) distrust(worker string) {
	for _, m := range f.members[1:] {
		if m.Worker == worker {
			m.unsure, m.places = true, 0
		}
	}
}

// sitsOut notes that a worker can run no job until an instant.
func (f *fleet) sitsOut(worker string, until int64) {
	if f.out == nil {
		f.out = make(map[string]int64)
	}
	f.out[worker] = until
}

// sitting returns the workers that sit out. If nobody else has places none does: they are as good as any.
func (f *fleet) sitting() map[string]int64 {
	if len(f.out) == 0 {
		return nil
	}
	now := f.w.Now()
	maps.DeleteFunc(f.out, func(_ string, until int64) bool { return until <= now })
	for _, m := range f.members {
		if f.out[m.Worker] == 0 && m.places > 0 && !m.stalled {
			return f.out
		}
	}
	return nil
}

// has notes that a worker's other queues leave so many places to this one, as a notice says. Of a worker in doubt only
// its record is believed.
func (f *fleet) has(worker string, places int) {
	for _, m := range f.members[1:] {
		if m.Worker == worker && !m.unsure {
			m.places = places
		}
	}
}

// remove takes a worker that has left out of the fleet, before the next muster would.
func (f *fleet) remove(worker string) {
	f.members = slices.DeleteFunc(f.members, func(m *member) bool { return m.Worker == worker })
}

// noteTrip notes how long a commit took, from its decision until its outcome was known. The newest counts for a
// quarter.
func (f *fleet) noteTrip(trip time.Duration) { f.trip += (trip - f.trip) / 4 }

// ahead returns how far ahead of its decision a slot has to lie, in µs, so that a job with such a trip to its worker,
// which has such a doubt, comes within the grace. Below six tenths of the grace it is 0: the job comes in time anyway.
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

// before reports whether a worker gets a job before another one: a near one before a far one, since the slots that pass
// while the job is on its way to a far one are lost; of two near ones, or two far ones, the one with the larger share
// of its places free.
func (m *member) before(other *member) bool {
	if (m.Ahead == 0) != (other.Ahead == 0) {
		return m.Ahead == 0
	}
	return m.free*other.places > other.free*m.places
}

// Next takes a place of the worker that gets the next job. It returns nil if none is free. Places of this worker are
// shared with its other queues: one is taken at once, and given back if the commit does not happen. Those of
// others are taken by the claims that the scheduler counts from the decision on: so the next call sees them taken.
//
// This worker gets nothing while it stops, or knows the time badly: its own jobs would come back at once. If another
// queue takes its last place between the look and the taking, Next chooses anew.
func (f *fleet) Next() *schedule.Place {
	own := f.members[0]
	own.places, own.free = f.w.Places.Left(), f.w.Places.Free()
	_, doubt := f.w.Clock.Now()
	own.Ahead, own.Spread = ahead(f.trip, doubt), 0
	if doubt.Microseconds() > schedule.Grace/2 {
		own.Ahead, own.Spread = max(own.Ahead, doubt.Microseconds()), spreadOf(doubt.Microseconds())
	}
	if f.w.Stopping() || doubt >= clock.Usable {
		own.places, own.free = 0, 0
	}
	for _, m := range f.members[1:] {
		if m.free = m.places - f.held(m.Worker); m.stalled {
			m.free = 0
		}
	}
	var best *member
	out := f.sitting()
	for _, m := range f.members {
		if m.free > 0 && out[m.Worker] == 0 && (best == nil || m.before(best)) {
			best = m
		}
	}
	if best == nil {
		return nil
	}
	if best == own && !f.w.Places.Take() { // another queue of this worker has
		return f.Next()
	}
	place := f.placeAt(best)
	return &place
}

// placeAt returns a place of a worker, as far away as it is now. What is known of this worker is as of the last [fleet.Next].
func (f *fleet) placeAt(m *member) schedule.Place {
	place := m.Place
	if m != f.members[0] {
		place.Ahead = max(place.Ahead, ahead(f.trip*3/2, m.doubt))
	}
	return place
}

// Reach returns how far ahead slots lie for the farthest worker.
func (f *fleet) Reach() (reach int64) {
	for _, m := range f.members {
		place := f.placeAt(m)
		reach = max(reach, place.Ahead+place.Spread)
	}
	return reach
}

// Free gives a place back. Those of other workers are taken by the jobs that they get.
func (f *fleet) Free(p *schedule.Place) {
	if p.Worker == f.w.Name {
		f.w.Places.Give()
	}
}

// An order is something to put into a worker's mailbox with the next commit.
type order struct {
	worker string
	words  []string
}

// places returns how many places the fleet has for this queue, taken ones included.
func (f *fleet) places() int {
	n := f.w.Places.Left()
	for _, m := range f.members[1:] {
		n += m.places
	}
	return n
}

// allPlaces returns of how many places a concurrency limit such as 25% is a share: those of all workers of the queue, also of workers that take
// no part in this partition.
func (f *fleet) allPlaces() int {
	if all := f.w.FleetPlaces(); all > 0 {
		return all
	}
	return f.places()
}

// free returns how many places of the fleet are free, as far as is known.
func (f *fleet) free() int {
	n := f.w.Places.Free()
	for _, m := range f.members[1:] {
		n += max(0, m.places-f.held(m.Worker))
	}
	return n
}
