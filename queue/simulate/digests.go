package simulate

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A place is where a digest is: there is one open digest at most of a lane and key.
type place struct {
	lane envelope.Lane
	key  string
}

// A digest is jobs that start as one.
type digest struct {
	place
	stamp   string // of its first member, which it goes by
	began   int64
	due     int64    // when it comes into its lane; 0 for at once
	members []string // their envelopes
	costs   string   // of the newest one
	waits   bool     // in its lane
}

// head returns the job that the scheduler takes the digest for.
func (d *digest) head() schedule.Head {
	record := d.stamp + " 0 " + strconv.FormatInt(d.due, 10) + " " + d.costs
	env, err := envelope.Open(envelope.JoinDigest(record, d.members))
	return schedule.Head{Entry: d.stamp, Job: d.stamp, Env: env, Err: err}
}

// dueAt returns when a digest is due that began at an instant, and has a new member now; 0 for at once.
func (w *memory) dueAt(lane envelope.Lane, began int64) int64 {
	terms, latest := w.policies.Of(lane.Tenant).Digest, int64(math.MaxInt64)
	if terms.At != nil {
		return terms.Due(w.clock(lane), began)
	}
	if terms.Wait > 0 {
		latest = began + terms.Wait
	}
	if terms.Idle > 0 {
		latest = min(latest, w.now+terms.Idle)
	}
	if latest == math.MaxInt64 || latest <= w.now {
		return 0
	}
	return latest
}

// clock returns a user's clock.
func (w *memory) clock(lane envelope.Lane) *wallclock.Person {
	person := w.people[envelope.PersonScope(lane.Tenant, lane.User)]
	if usual := w.policies.Of(lane.Tenant).Person; usual != nil {
		person = person.Over(*usual)
	}
	return &person
}

// startsDigest reports whether a job would begin a digest that comes into its lane at once.
func (w *memory) startsDigest(lane envelope.Lane, key string) bool {
	return w.open[place{lane, key}] == nil && w.dueAt(lane, w.now) == 0
}

// gather makes a job a member of the open digest of its key, or begins one. A full digest waits no longer.
func (w *memory) gather(lane envelope.Lane, i int, env *envelope.Envelope) {
	at, terms := place{lane, w.results[i].DigestKey}, w.policies.Of(lane.Tenant).Digest
	d := w.open[at]
	if d != nil && !d.waits {
		place, _ := w.inLater(d)
		w.later = slices.Delete(w.later, place, place+1)
	}
	switch {
	case d == nil:
		d = &digest{place: at, stamp: env.Stamp, began: w.now, due: w.dueAt(lane, w.now)}
		w.open[at], w.digests[d.stamp] = d, d
	case !d.waits && terms.At == nil && terms.Idle > 0:
		d.due = w.dueAt(lane, d.began)
	}
	env.MaxAttempts = envelope.DefaultAttempts
	d.members, d.costs = append(d.members, env.String()), env.Costing()
	w.of[d.stamp] = append(w.of[d.stamp], i)
	full := len(d.members) >= cmp.Or(terms.Max, schedule.DigestMax)
	switch {
	case d.waits:
		heads := w.lanes[lane]
		heads[slices.IndexFunc(heads, func(h schedule.Head) bool { return h.Entry == d.stamp })] = d.head()
		w.sched.Step(w.now, schedule.Changed{Lane: lane})
	case full || d.due <= w.now:
		w.mature(d)
	default:
		place, _ := w.inLater(d)
		w.later = slices.Insert(w.later, place, d)
	}
	if full {
		delete(w.open, d.place)
	}
}

// inLater returns where a digest is among those that are not in their lanes yet, or belongs.
func (w *memory) inLater(d *digest) (at int, found bool) {
	return slices.BinarySearchFunc(w.later, d, func(a, b *digest) int { return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.stamp, b.stamp)) })
}

// mature puts a digest into its lane.
func (w *memory) mature(d *digest) {
	d.waits = true
	w.enter(d.lane, d.head())
}

// close lets nobody join a digest any more that has left its lane, if the entry of the lane is one.
func (w *memory) close(entry string) {
	d := w.digests[entry]
	if d == nil {
		return
	}
	delete(w.digests, entry)
	if w.open[d.place] == d {
		delete(w.open, d.place)
	}
}

// tooLate reports whether member n of a digest may not start at the slot of the digest any more.
func (w *memory) tooLate(s schedule.Start, n int) bool {
	if len(s.Head.Env.Members) == 0 {
		return false
	}
	member := s.Head.Env.Members[n]
	latest := member.Deadline
	if !w.policies.Closes() { // otherwise the scheduler has judged by the user's clock
		latest = w.policies.Of(s.Lane.Tenant).LatestOf(s.Head.Env, member, nil)
	}
	return latest > 0 && s.Slot > latest || member.Until > 0 && s.Slot >= member.Until
}
