package leader

import (
	"cmp"
	"context"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Jobs come into their lanes from three places beside offers: a worker returns them (requests.go), their worker has died
// (reap.go), or they were scheduled or backed off, and their time has come ([term.mature]).
//
// Those that have had a claim come back to the front, whatever the order in which they do: each stands behind those at the front
// that were claimed first ([envelope.Envelope].Slot), as commit.lua finds them. So the jobs of one lane that come back in
// different commits, or under different leaders, keep their order.

// A comeback is a job that comes into its lane from elsewhere.
type comeback struct {
	lane  envelope.Lane
	env   *envelope.Envelope // as it is to wait
	stub  string             // of a digest, which comes without its envelope
	front bool               // it goes to the front of its lane, otherwise to the end
	slot  int64              // of the claim that the job had; 0 if that is not known
	since int64              // from when on it has waited, see [schedule.Returned]; 0 to come in line now
}

// fold returns under which collapse key the job comes back; the zero value if it has none.
func (b comeback) fold() store.Folded {
	if b.env == nil || b.env.CollapseKey == "" || b.env.DigestKey != "" {
		return store.Folded{}
	}
	return store.Folded{Tenant: b.lane.Tenant, User: b.lane.User, Key: envelope.FoldName(b.env.CollapseKey)}
}

// slotBy returns the slot that the job carries from now on, see [envelope.Envelope].Slot: where another job waits under its
// collapse key, that of the place which the two share.
func (b comeback) slotBy(other string) int64 {
	if there, ok := envelope.Head(other); ok {
		return there.Slot
	}
	if !b.front {
		return 0
	}
	return cmp.Or(b.env.Slot, b.slot, 1) // 1 of a job whose claim is not known
}

// comeBack puts the jobs that come back into their lanes, in their order. Under a collapse key
// the newer of two jobs stays: so the jobs that wait under the keys are read first. One that this very commit has put
// there counts before what was read.
func (t *term) comeBack(ctx context.Context, c *store.Commit, now int64) error {
	var folded []store.Folded
	for _, b := range t.comebacks {
		if f := b.fold(); f.Key != "" {
			folded = append(folded, f)
		}
	}
	jobs, err := queryOf(ctx, t, folded, t.w.Store.FoldedJobs)
	if err != nil {
		return err
	}
	for _, b := range t.comebacks {
		other := ""
		if b.fold().Key != "" {
			if other = c.Folding(folded[0]); other == "" {
				other = jobs[0]
			}
			folded, jobs = folded[1:], jobs[1:]
		}
		buried, err := t.buryBroken(c, b, now)
		if err != nil {
			return err
		}
		if !buried {
			t.put(c, b, other, now)
		}
	}
	return nil
}

// put puts a job into its lane. Where another job is under its collapse key already, one of the two is dropped as
// collapsed: the older one, by their stamps.
func (t *term) put(c *store.Commit, b comeback, other string, now int64) {
	lane, env := b.lane, b.env
	if b.stub != "" {
		if name, is := envelope.ParseDigest(b.stub[1:]); is {
			t.aged(lane, name.Stamp)
		}
		c.Put(lane, b.stub, now)
		t.sched.Step(now, schedule.Changed{Lane: lane})
		return
	}
	env.Slot = b.slotBy(other)
	entry := env.String()
	if env.Spilled != "" {
		bare := *env
		bare.Payload = ""
		entry = bare.String()
	}
	track(c, env, lane.Name())
	if folded := b.fold(); folded.Key != "" {
		if other != "" {
			dropped, loser := entry, env
			if len(other) > envelope.StampLen && other[:envelope.StampLen] < env.Stamp {
				c.Refold(folded, other[:envelope.StampLen], entry)
				dropped, loser = other, headOf(other).Env
				t.sched.Step(now, schedule.Changed{Lane: lane})
			}
			c.Count(lane.Tenant, "dropped", 1)
			c.Drop(lane, dropped, "collapsed", "", now)
			if loser != nil && loser.Spilled != "" {
				c.Discard(loser.Spilled)
			}
			if loser != nil && loser.ID != "" {
				t.forgetID(c, loser.ID)
				t.sched.Step(now, schedule.IDDropped{ID: loser.ID})
			}
			return
		}
		c.Fold(folded, entry)
		entry = "=" + folded.Key
	}
	t.aged(lane, env.Stamp)
	if b.front {
		c.PutFirst(lane, entry, envelope.Place{Slot: env.Slot, Stamp: env.Stamp}, now)
		t.sched.Step(now, schedule.Returned{Lane: lane, Since: b.since})
	} else {
		c.Put(lane, entry, now)
		t.sched.Step(now, schedule.Changed{Lane: lane})
	}
}

// laneBroken is the last error of a job whose lane cannot hold it.
const laneBroken = "its lane, the index of that or the jobs under collapse keys hold something else: see waterclock doctor --repair"

// A commit is done as a whole or not at all. So a lane whose key holds something else than a list would keep all
// jobs waiting that come back with the same commit. [store.Commit.Put] checks the types of the keys: when such
// a check has failed, the lane is set aside, and in the commit that is decided anew its job is buried.

// setAside notes lanes whose keys may have another type, since a commit that puts jobs there has failed. The keys are
// looked at before a job is buried: the check may have failed for another reason.
func (t *term) setAside(lanes []envelope.Lane) {
	for _, lane := range lanes {
		lane.Priority = envelope.Normal
		t.broken[lane] = true
	}
}

// buryBroken lets a job be dead whose lane cannot hold it, so that the jobs beside it in the
// commit are not kept waiting. It can be revived when the lane is repaired.
func (t *term) buryBroken(c *store.Commit, b comeback, now int64) (bool, error) {
	lane, env := b.lane, b.env
	user := lane
	user.Priority = envelope.Normal
	if !t.broken[user] {
		return false, nil
	}
	if holds, err := queryOf(t.ctx, t, lane, t.w.Store.Holds); holds || err != nil {
		return false, err
	}
	t.w.Log.Error("a key of a user has another type; a job is dead", "tenant", lane.Tenant, "user", lane.User)
	// It was to come back, or did when its start was taken back: it has left all the same.
	c.Count(lane.Tenant, "dropped", 1)
	if b.stub != "" {
		c.Bury(lane, b.stub, laneBroken, now)
		return true, nil
	}
	bury(c, lane, env, laneBroken, now)
	return true, nil
}

// bury keeps a job among the dead; a digest as one.
func bury(c *store.Commit, lane envelope.Lane, env *envelope.Envelope, why string, now int64) {
	c.Bury(lane, env.String(), why, now)
	if n := len(env.Members); n > 1 {
		c.Count(lane.Tenant, "dead", int64(n-1))
	}
	track(c, env, store.WasDead)
}

// track notes where a job is, or what became of it: for each member of a digest.
func track(c *store.Commit, env *envelope.Envelope, where string) {
	for _, id := range env.IDs() {
		c.Track(id, where)
	}
}

// idMemory is how long the caller's own ID is known after its job was cancelled and dropped.
const idMemory = 24 * time.Hour

// forgetID notes that the job with that ID is dropped. The ID of a cancelled job is known until
// then, and some time longer: for any other it returns a check that it was not cancelled
// meanwhile.
func (t *term) forgetID(c *store.Commit, id string) (check int) {
	c.Track(id, store.WasDropped)
	if t.sched.Cancelled(id) {
		c.Uncancel(id, idMemory)
		return 0
	}
	return c.NotCancelled(id)
}
