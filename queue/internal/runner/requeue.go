package runner

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// requeue puts a job to the front of its lane. Under its collapse key the newer of two
// jobs stays.
func (t *term) requeue(c *store.Commit, lane envelope.Lane, env *envelope.Envelope, now int64) error {
	return t.put(c, lane, env, true, now)
}

func (t *term) put(c *store.Commit, lane envelope.Lane, env *envelope.Envelope, front bool, now int64) error {
	if buried, err := t.buryBroken(c, lane, env, now); buried || err != nil {
		return err
	}
	entry := env.String()
	if env.Spilled != "" {
		bare := *env
		bare.Payload = ""
		entry = bare.String()
	}
	if env.ID != "" {
		c.Track(env.ID, lane.Name())
	}
	if env.CollapseKey != "" {
		folded := store.Folded{Tenant: lane.Tenant, User: lane.User, Key: env.CollapseKey}
		other, err := t.folded(c, folded)
		if err != nil {
			return err
		}
		if other != "" {
			dropped, loser := entry, env
			if len(other) > envelope.StampLen && other[:envelope.StampLen] < env.Stamp {
				c.Refold(folded, other[:envelope.StampLen], entry)
				dropped, loser = other, headOf(other).Env
				t.sched.Look(lane.Tenant, lane.User, now)
			}
			c.Count(lane.Tenant, "dropped", 1)
			c.Drop(lane, dropped, "collapsed", "", now)
			if loser != nil && loser.Spilled != "" {
				c.Discard(loser.Spilled)
			}
			if loser != nil && loser.ID != "" {
				c.Track(loser.ID, "dropped")
			}
			return nil
		}
		c.Fold(folded, entry)
		entry = "=" + env.CollapseKey
	}
	c.Put(lane, entry, front, now)
	if front {
		t.sched.Returned(lane, now)
	} else {
		t.sched.Look(lane.Tenant, lane.User, now)
	}
	return nil
}

// laneBroken is the last error of a job whose lane cannot hold it.
const laneBroken = "its lane, the index of that or the jobs under collapse keys hold something else: see waterclock doctor --repair"

// setAside notes lanes whose keys have another type: a commit that puts jobs there fails.
func (t *term) setAside(lanes []envelope.Lane) {
	for _, lane := range lanes {
		lane.Priority = envelope.Normal
		t.broken[lane] = true
	}
}

// buryBroken lets a job be dead whose lane cannot hold it, so that the jobs beside it in the
// commit are not kept waiting. It can be revived when the lane is repaired.
func (t *term) buryBroken(c *store.Commit, lane envelope.Lane, env *envelope.Envelope, now int64) (bool, error) {
	user := lane
	user.Priority = envelope.Normal
	if !t.broken[user] {
		return false, nil
	}
	if holds, err := t.r.store.Holds(t.ctx, lane); holds || err != nil {
		return false, err
	}
	t.r.log.Error("a key of a user has another type; a job is dead", "tenant", lane.Tenant, "user", lane.User)
	// It was to come back, or did when its start was taken back: it has left all the same.
	c.Count(lane.Tenant, "dropped", 1)
	c.Bury(lane, env.String(), laneBroken, now)
	if env.ID != "" {
		c.Track(env.ID, store.WasDead)
	}
	return true, nil
}

// folded returns the job that is under a collapse key when the commit is done so far.
func (t *term) folded(c *store.Commit, f store.Folded) (string, error) {
	if job := c.Folding(f); job != "" {
		return job, nil
	}
	jobs, err := t.r.store.FoldedJobs(t.ctx, []store.Folded{f})
	if err != nil {
		return "", err
	}
	return jobs[0], nil
}
