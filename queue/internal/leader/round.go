package leader

import (
	"context"
	"runtime"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A round has two parts. What has to be mended comes first, and alone: returned jobs, jobs of dead workers,
// jobs whose time has come, backlogs that are too long. It moves jobs back into lanes, so nothing may be
// under way that was decided without them. Then jobs are started, with up to [window] commits under way.
//
//	round ─▶ collect     takes in notices, and reports of the work beside the rounds
//	      ─▶ prelude     only if something asks for it ([term.interrupted])
//	           refresh   reads the settings, if policies or pauses have changed, or an override has ended
//	           muster    who works (every second)
//	           ask       reads the claims that notices are about
//	           amend     one commit that mends, and starts nothing
//	      ─▶ decide      one commit that starts jobs; or waits
//
// A round waits for Redis only in the prelude and for commits. What takes long, since it reads much, runs
// beside the rounds in many short steps: [term.survey], [term.inventory], [term.sweep]. It
// hands its result over as a function that the next round calls ([term.report]): so only the
// goroutine of the rounds touches the term.

// batch is how many jobs one commit starts at most. Redis is busy with such a commit for about a
// millisecond.
const batch = 64

// round decides and commits once, and waits for the next time if there is nothing more to
// do. An error ends the rounds, and [term.lead] says what follows. A refusal after which the round can go on, with
// what was decided undone, is no error.
func (t *term) round(ctx context.Context) error {
	if err := t.fit(); err != nil {
		return err
	}
	if _, doubt := t.w.Clock.Now(); doubt >= clock.Usable {
		t.w.LearnTime(ctx)
	}
	if t.collect(); t.unsure {
		t.unsure = false
		return errUnsure
	}
	now, _ := t.w.Clock.Now()
	more := false
	if len(t.flights) == 0 || t.interrupted(now) {
		err := t.landAll(ctx)
		if err == nil {
			more, err = t.prelude(ctx, now)
		}
		if err != nil {
			return err
		}
	}
	if t.fleet.halfway() {
		return nil
	}
	return t.decide(ctx, more)
}

// interrupted reports whether there is something to do before more is decided. Then all commits under way are waited
// for first: what they have decided must not be mixed with what is mended.
func (t *term) interrupted(now int64) bool {
	return t.stale || !t.policies.HoldAt(now) || len(t.requests)+len(t.full) > 0 || t.fleet.mourns() || now >= min(t.musterAt, t.ripeAt)
}

// prelude does what comes before more is decided. It reports whether there may be more of it: then the round decides
// once, and the next prelude goes on.
func (t *term) prelude(ctx context.Context, now int64) (more bool, err error) {
	if t.stale || !t.policies.HoldAt(now) {
		if err := t.refresh(ctx); err != nil {
			return false, err
		}
	}
	if now >= t.musterAt {
		if err := t.muster(ctx, now); err != nil {
			return false, err
		}
	}
	if known, err := t.ask(ctx); err != nil || !known {
		return true, err
	}
	return t.amend(ctx, now)
}

// amend commits what has to be mended before anything is decided, and waits for the reply. It reports
// whether there was something.
//
// The steps work in this order, on one commit:
//
//  1. settle ends claims, and collects their jobs in t.comebacks;
//  2. reap does so for some of the claims of a dead worker;
//  3. mature collects jobs whose time has come;
//  4. comeBack puts all that was collected into lanes;
//  5. trim makes room in backlogs that are too long by now;
//  6. unpause forgets pauses that are over.
func (t *term) amend(ctx context.Context, now int64) (bool, error) {
	b := t.newCommit(now)
	t.comebacks = nil
	b.requests = len(t.first())
	t.settle(b.c, now)
	for _, step := range []func(context.Context, *store.Commit, int64) error{t.reap, t.mature, t.comeBack, t.trim, t.unpause} {
		if err := step(ctx, b.c, now); err != nil {
			return false, err
		}
	}
	if b.c.Empty() && b.requests == 0 {
		b.recycle()
		return false, nil
	}
	b.mends, b.commit = true, t.sched.Amend(now)
	b.write(now)
	t.launch(ctx, b)
	return true, t.landAll(ctx)
}

// decide decides and commits, or waits if there is nothing to do, and nothing more to amend. While
// there is more to decide, that is done with commits under way.
//
// It decides again at once
//
//   - if the oldest commit has brought something that the plan was made without (learned);
//   - if a place has become free that was waited for (again);
//   - if there is more to amend.
func (t *term) decide(ctx context.Context, more bool) error {
	if len(t.flights) > 0 && t.hungry.Load() && !t.awaitPlaces() {
		return t.land(ctx)
	}
	if len(t.flights) == window {
		if err := t.land(ctx); err != nil {
			return err
		}
	}
	b := t.plan()
	t.askForGrants()
	t.leasePlaces()
	due := t.due(b)
	if due {
		t.launch(ctx, b)
	} else {
		b.recycle()
	}
	learned := false
	if len(t.flights) > 0 && !(due && b.more()) {
		older := t.flights[0] != b // then b was decided without what that one has read
		learned = older || !b.commit.Needs.Empty()
		if err := t.land(ctx); err != nil {
			return err
		}
		runtime.Gosched() // handlers that are quick give their places back by then
	}
	if t.again(b) || learned || more {
		return nil
	}
	return t.wait(ctx, min(b.commit.Plan.Next, t.shared.at, t.leases.at))
}

// awaitPlaces waits until there are places for half a commit, while Redis is busy with others: commits for a few
// jobs each cost it twice as much. It reports false if the oldest of those is done before. It waits no longer when many
// requests wait.
func (t *term) awaitPlaces() bool {
	enough := min(batch, t.fleet.places()/2) / 2
	for t.fleet.free() < enough && len(t.requests) < mostRequests {
		select {
		case <-t.kicks:
		case p := <-t.batches:
			t.receive(p)
		case <-t.flights[0].done:
			return false
		}
	}
	return true
}

// plan decides, and writes that into a commit. The scheduler counts the plan as done from now on, and places of this
// worker are taken: so the commit is sent, or is empty.
func (t *term) plan() *inflight {
	now, _ := t.w.Clock.Now()
	t.sched.Step(now, schedule.Far(t.fleet.far()))
	t.roomy = false
	b := t.newCommit(now)
	b.commit = t.sched.Decide(now, &t.fleet, t.portion())
	b.write(now)
	return b
}

// more reports whether there was more to decide when the commit was decided: the plan was full, or jobs were left
// without places after others had got some.
func (b *inflight) more() bool {
	return b.commit.Plan.Next <= b.at || b.commit.Plan.Hungry && len(b.commit.Plan.Starts) > 0
}

// again reports whether there is something to decide at once, after a decision. From then on a place that
// becomes free in this worker kicks the term, if jobs wait for one.
func (t *term) again(b *inflight) bool {
	if t.roomy {
		return true
	}
	t.hungry.Store(b.commit.Plan.Hungry)
	t.busy.Store(2*t.fleet.free() <= t.fleet.places())
	if len(t.flights) > 0 || b.commit.Plan.Next <= b.at {
		return true
	}
	// One may have become free before anybody knew that it was waited for.
	return b.commit.Plan.Hungry && t.w.Places.Free() > 0 && !t.w.Stopping() && t.fleet.sitting()[t.w.Name] == 0
}

// portion returns how many jobs the next commit starts at most: half of what the fleet has
// places for, so that the other half can be decided meanwhile.
func (t *term) portion() int {
	const least = 16
	return max(least, min(batch, t.fleet.places()/2))
}

// fit reports why this worker should not lead on: it stops, it is short of CPU, it leads too many of the queue's partitions, or it is much
// further from Redis than a deputy. A worker without deputies leads on: nobody would take over.
func (t *term) fit() error {
	if len(t.deputies) == 0 {
		return nil
	}
	if t.w.Stopping() {
		return errStopping
	}
	if t.lateness.tired() {
		t.w.Log.Warn("this worker is short of CPU; another one leads the queue", "successor", t.successor())
		return errTired
	}
	if t.w.LeadsTooMuch() {
		t.nearest = t.anyDeputy()
		return errExcess
	}
	if _, doubt := t.w.Clock.Now(); doubt.Microseconds() > schedule.Grace/2 && doubt > 4*t.nearest.doubt {
		return errFar // each decision takes a round trip
	}
	return nil
}

// due reports whether the commit is to be sent now: something is in it, ends of this worker's jobs are to be told, or the
// lease has to be renewed.
func (t *term) due(b *inflight) bool {
	return !b.c.Empty() || t.w.Claims.Due() || time.Since(t.renewed) >= t.renewEvery()
}
