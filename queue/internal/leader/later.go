package leader

import (
	"context"
	"math"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Two things become due by themselves, without a notice: jobs that wait for their time (an offer for later, a retry
// after its backoff), and the ends of pauses. A term knows when the first of the former is due (ripeAt): from a notice,
// or from the last reading. Jobs that become ripe are put into their lanes by the commit of a prelude, like all jobs
// that come from elsewhere. The end of a pause needs no act: the scheduler has it as a bound. What is left of the pause
// in Redis is removed later.

// mature takes up to a hundred jobs whose time has come out of later, for their lanes: one that was attempted already
// goes to the front, since it is older than what waits there. If more are ripe, ripeAt has passed, and the next prelude
// goes on.
func (t *term) mature(ctx context.Context, c *store.Commit, now int64) error {
	if now < t.ripeAt {
		return nil
	}
	ripe, next, err := queryBoth(ctx, t, now, func(ctx context.Context, now int64) ([]store.Bounded, int64, error) {
		return t.w.Store.Ripe(ctx, now, 100)
	})
	if err != nil {
		return err
	}
	if t.ripeAt = next; next == 0 {
		t.ripeAt = math.MaxInt64
	}
	for _, member := range ripe {
		lane, job, err := store.ParseLater(member.Name)
		env, _ := envelope.Open(job)
		if err == nil && len(job) > 0 && job[0] == '=' {
			t.matureStub(c, member.Name, lane, job, now)
			continue
		}
		t.matureOne(c, member.Name, lane, env, now)
	}
	return nil
}

// matureStub puts the stub of a digest that is due into its lane.
func (t *term) matureStub(c *store.Commit, member string, lane envelope.Lane, stub string, now int64) {
	c.Mature(member, now)
	c.Count(lane.Tenant, "back", 1)
	t.comebacks = append(t.comebacks, comeback{lane: lane, stub: stub})
}

// matureOne takes one job out of later, for its lane. A member that cannot be read is buried as it stands.
func (t *term) matureOne(c *store.Commit, member string, lane envelope.Lane, env *envelope.Envelope, now int64) {
	c.Mature(member, now)
	if env == nil || lane.Tenant == "" {
		t.w.Log.Error("a job that waits for its time cannot be read; it is dead")
		c.Bury(lane, member, "the job cannot be read", now)
		return
	}
	c.Count(lane.Tenant, "back", 1)
	t.lower(&lane, env)
	t.comebacks = append(t.comebacks, comeback{lane: lane, env: env, front: env.Failures > 0, slot: env.Slot})
}

// lower gives a job that yields a low priority, once: its handler has asked that further attempts wait for the tenant's
// other jobs. Under a rule that drops what it does not admit it keeps its priority: behind others it would be dropped.
func (t *term) lower(lane *envelope.Lane, env *envelope.Envelope) {
	if policy := t.sched.Policies().Of(lane.Tenant); env.Yields && !policy.OfUser(lane.User).Rules.Drops() && !policy.Tenant.Drops() {
		lane.Priority, env.Priority = envelope.Low, envelope.Low
	}
	env.Yields = false
}

// unpause forgets pauses that have ended: as long as there are some, each offer looks for them. It looks once a second.
func (t *term) unpause(_ context.Context, c *store.Commit, now int64) error {
	if now < t.unpauseAt {
		return nil
	}
	t.unpauseAt = now + musterEvery
	var ended []string
	for scope, until := range t.paused {
		if until <= now {
			ended = append(ended, scope)
			delete(t.paused, scope)
		}
	}
	if len(ended) > 0 {
		c.Unpause(ended, len(t.paused) == 0)
	}
	return nil
}
