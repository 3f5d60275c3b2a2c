package leader

import (
	"context"

	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// Everything that a term knows is a copy of what Redis holds, and it may be wrong in three ways:
//
//  1. Somebody has changed something: the number of changes is part of the fence, so Redis refuses the next commit,
//     and the term reads the settings again ([term.refresh]).
//     An override that ends by itself changes nothing in Redis: the term reads the settings at that instant.
//  2. The lease had run out before a commit: offers tell nobody then. The reply says so, and everything is read
//     again ([errLapsed]).
//  3. The reply to a commit is lost: the term takes a new token, learns which commits happened, and reads everything
//     again ([term.renew], [term.resync]).
//
// A term ends when another worker leads ([store.ErrDeposed]), or this one gives up ([term.fit]) or stops.

// resync reads everything anew, when nothing is under way. Who has been served is in no other place: the new scheduler
// takes that over from the one before, so that an error of a connection changes nobody's turn. The settings are read
// first: whatever changes while the rest is read makes Redis refuse the next commit.
func (t *term) resync(ctx context.Context) error {
	settings, err := t.settings(ctx)
	if err != nil {
		return err
	}
	queue, err := queryOf(ctx, t, []string{envelope.QueueScope}, t.w.Store.States)
	if err != nil {
		return err
	}
	before := t.sched
	t.sched = schedule.New(settings, queue[0])
	t.fleet.held = t.sched.Held
	if before != nil {
		t.sched.TakeTurns(before)
	}
	t.ripeAt, t.musterAt, t.uncounted = 0, 0, true
	t.forgetLeases()
	t.surveyAgain()
	t.govern(ctx, settings.Policies)
	now, _ := t.w.Clock.Now()
	return t.muster(ctx, now)
}

// renew leads on under a new token, and finds out which commits happened. It may be called until it succeeds: the same
// request gets the same token. Without a token another worker leads.
func (t *term) renew(ctx context.Context) error {
	next, err := queryOf(ctx, t, t.fence.Token, func(ctx context.Context, token string) (store.Term, error) {
		return t.w.Store.Lead(ctx, t.w.Name, elect.Lease(t.w.Clock), token)
	})
	if err != nil {
		return err
	}
	t.w.Clock.Observe(next.Reading)
	if next.Token == "" {
		return store.ErrDeposed
	}
	t.resolve(next.Seq)
	t.fence.Token, t.fence.Seq = next.Token, next.Seq+1
	return nil
}

// refresh takes in what people have decided: policies, pauses, cancelled jobs. The scheduler stays, and with it all
// that it knows of lanes and tenants.
func (t *term) refresh(ctx context.Context) error {
	settings, err := t.settings(ctx)
	if err != nil {
		return err
	}
	if settings.Policies != t.sched.Policies() {
		t.forgetLeases()
	}
	t.sched.Step(t.w.Now(), settings)
	t.govern(ctx, settings.Policies)
	return nil
}

// settings reads what people have decided, and notes the number of the last change as it was before the rest was read.
// What changes from then on makes Redis refuse the commits. It fails if Redis has lost the policies (worker.InForce).
func (t *term) settings(ctx context.Context) (schedule.Settings, error) {
	read, err := query(ctx, t, t.w.Store.Settings)
	if err != nil {
		return schedule.Settings{}, err
	}
	t.w.Policies.Saw(read.Policies)
	policies, err := t.w.InForce(ctx, read.Source, read.Version)
	if err != nil {
		return schedule.Settings{}, err
	}
	t.fence.Changes, t.stale, t.paused, t.policies = read.Changes, false, read.Paused, policies
	return schedule.Settings{Policies: policies, Paused: read.Paused, Cancelled: read.Cancelled}, nil
}

// The bounds of lanes in Redis were computed under the policies, and by the data of the zones, of their time. Under others they may be too late,
// and a lane that is not in memory is found only when its bound comes. So a sweep lowers them ([term.sweep]).

// govern lets the bounds in Redis be swept if they were computed under other policies. A sweep for older policies ends
// early: the new one lowers the same bounds.
func (t *term) govern(ctx context.Context, p *schedule.Policies) {
	if p == nil || p.Since() == t.governed {
		return
	}
	t.governed = p.Since()
	t.sweeps()
	replaced, replace := context.WithCancel(ctx)
	t.sweeps = replace
	t.workers.Go(func() { t.sweep(ctx, p, replaced.Done()) })
}
