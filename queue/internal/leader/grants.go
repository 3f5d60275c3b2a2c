package leader

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// What shared limits answer becomes grants of the scheduler, and what is not used of them is given back.

// A given grant is one that the scheduler has got, and the decision by which.
type given struct {
	rules.Grant
	by throttle.Decision
}

const (
	// mostMargin bounds how much further ahead instants are asked for where some came too late.
	mostMargin = 20 * time.Millisecond
	// mostDoubt is how much later than the instants that the script knows those may lie that a queue is told.
	mostDoubt = 10 * time.Millisecond
	// doubtedFor is for how long the doubt may be larger until it is said: first answers are slow.
	doubtedFor = time.Second
	// contestedFor is for how long a limit is taken for one that others want, after it was somebody else's turn.
	contestedFor = 100 * time.Millisecond
	// settledAfter is how long after rules have begun to refuse jobs these are dropped. Until then they are asked every settlingEvery. They
	// begin anew once they have refused none for settledFor.
	settledAfter  = time.Second
	settlingEvery = 50 * time.Millisecond
	settledFor    = 5 * time.Second
)

// answered notes how long an answer took and what clock it shows, and takes it in if that is known well enough.
func (t *term) answered(of question, r reach, decisions []throttle.Decision, asked, answered time.Time) {
	q := t.quota(of.Scope)
	q.asking = false
	trip := time.Since(asked)
	t.shared.unsteady += ((trip - t.shared.trip).Abs() - t.shared.unsteady) / 8
	t.shared.trip += (trip - t.shared.trip) / 4
	said := decisions[0].Slot.Add(-decisions[0].RetryAfter).UnixMicro()
	now, doubt := t.w.Clock.Now()
	later, doubt := t.onOurs(now, doubt, store.Reading{Now: said, Asked: asked, Answered: answered})
	at := func(slot time.Time) int64 { return slot.UnixMicro() + later }
	if doubt > mostDoubt {
		t.refund(decisions)
		q.next = now + (10 * time.Millisecond).Microseconds()
		if q.doubted == 0 {
			q.doubted = now
		}
		if !q.ill && now-q.doubted >= doubtedFor.Microseconds() {
			q.ill = true
			t.w.Log.Warn("the clock of the Redis that has a shared limit is not known well enough, since it answers slowly; jobs that the limit counts wait",
				"limit", of.Scope, "doubt", doubt)
		}
		return
	}
	q.ill, q.doubted = false, 0
	q.margin -= q.margin / 8
	q.next = now + askEvery.Microseconds()/2 + rand.Int64N(askEvery.Microseconds())
	t.grant(of, r, decisions, asked, at)
}

// grant tells the scheduler which instants jobs have, and which jobs are dropped, up to the first that has to wait.
func (t *term) grant(of question, r reach, decisions []throttle.Decision, asked time.Time, at func(time.Time) int64) {
	q := t.quota(of.Scope)
	now, _ := t.w.Clock.Now()
	for i, d := range decisions {
		refused := d.Outcome == throttle.Dropped
		if refused && !q.drops(now, asked) {
			q.next = max(q.next, min(q.refusing+settledAfter.Microseconds(), now+settlingEvery.Microseconds()))
			t.sched.Step(now, schedule.Expected{Scope: of.Scope, At: q.next})
			continue
		}
		if !d.Spent() && !refused {
			if d.RetryAfter <= r.after+r.within { // it is somebody else's turn
				q.contested = now + contestedFor.Microseconds()
			}
			if asked.After(q.returned) { // otherwise there may be more since
				q.next = max(q.next, now+min(d.Again, askAgain).Microseconds())
			}
			t.sched.Step(now, schedule.Expected{Scope: of.Scope, At: at(d.Slot)})
			return
		}
		if i+1 == schedule.MostWanted { // there may be more at once
			q.next = now + d.Again.Microseconds()
		}
		g := rules.Grant{At: at(d.Slot), Cost: of.costs[i].Name, Refused: of.refusal(d), Objection: of.objection(d)}
		if !refused {
			q.given = append(q.given, given{g, d})
		}
		t.sched.Step(now, schedule.Granted{Scope: of.Scope, Grant: g})
	}
}

// drops notes that rules refuse a job, and reports whether it is dropped: they have refused jobs for some time, and nothing has come back since
// they were asked. What they handed out before may come back unused.
func (q *quota) drops(now int64, asked time.Time) bool {
	if now-q.refused > settledFor.Microseconds() {
		q.refusing = now
	}
	q.refused = now
	return now-q.refusing >= settledAfter.Microseconds() && asked.After(q.returned)
}

// refusal returns the name of the rule that has dropped a job; "" for others.
func (q question) refusal(d throttle.Decision) string {
	if d.Outcome != throttle.Dropped {
		return ""
	}
	i := slices.IndexFunc(q.Parts, func(p schedule.Part) bool { return p.Key == d.Subject })
	return q.Parts[i].RuleName(d.Rule)
}

// objection returns the name of the shadow rule that would not have let a job start; "" for none.
func (q question) objection(d throttle.Decision) string {
	for _, part := range q.Parts {
		if d.Shadow != "" && slices.ContainsFunc(part.Rules, func(r throttle.Rule) bool { return r.String() == d.Shadow }) {
			return part.RuleName(d.Shadow)
		}
	}
	return ""
}

// countRefused tells shared limits of refused jobs that they count (count_dropped).
func (t *term) countRefused(drops []schedule.Drop) {
	var refused []throttle.Request
	for _, drop := range drops {
		for _, by := range drop.Counted {
			refused = append(refused, throttle.Request{Subjects: subjectsOf(by.Parts, by.Costs)})
		}
	}
	if len(refused) == 0 {
		return
	}
	t.workers.Go(func() {
		if err := t.w.Shared.CountRefused(t.ctx, refused...); err != nil {
			t.w.Log.Debug("counting what was refused", "err", err)
		}
	})
}

// giveBack lets the script have back what was missed, and what jobs have used that were returned without a start.
func (t *term) giveBack(missed []schedule.Missed) {
	var unused []throttle.Decision
	tooLate := make(map[*quota]bool) // of whom something is given back: whether some of it has come too late
	for _, m := range missed {
		q := t.shared.of[m.Scope]
		if q == nil {
			continue
		}
		i := slices.IndexFunc(q.given, func(g given) bool { return g.At == m.At && g.Cost == m.Cost })
		if i < 0 {
			continue
		}
		unused = append(unused, q.given[i].by)
		q.given = slices.Delete(q.given, i, i+1)
		tooLate[q] = tooLate[q] || !m.Returned
	}
	for q, late := range tooLate {
		if late {
			q.margin = min(2*q.margin+askEvery, mostMargin)
		}
	}
	t.refund(unused, slices.Collect(maps.Keys(tooLate))...)
}

// refund gives decisions back, the newest first: of a leak only the newest can be given back. Then limits are asked again: windows and periods
// have room at once, and whoever else waits does not know of it.
func (t *term) refund(decisions []throttle.Decision, of ...*quota) {
	if len(decisions) == 0 {
		return
	}
	t.workers.Go(func() {
		for _, d := range slices.Backward(decisions) {
			if err := t.w.Shared.Refund(t.ctx, d); err != nil {
				return // what is not given back counts as used
			}
		}
		t.report(t.ctx, func(now int64) {
			for _, q := range of {
				q.next, q.returned = min(q.next, now), time.Now()
			}
		})
	})
}

// forgetQuotas forgets grants that are certainly used, and limits that were not asked for some time.
func (t *term) forgetQuotas(now int64) {
	for scope, q := range t.shared.of {
		n := 0
		for n < len(q.given) && q.given[n].At < now-askAgain.Microseconds() {
			n++
		}
		q.given = slices.Delete(q.given, 0, n)
		if len(q.given) == 0 && !q.asking && q.next < now-askAgain.Microseconds() {
			delete(t.shared.of, scope)
		}
	}
}
