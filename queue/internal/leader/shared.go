package leader

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/limits"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
	"github.com/waterclock/waterclock/throttle"
)

// Shared limits are decided in Redis, by the script of package throttle, for all queues and callers that spend them. A term asks
// for the instants that its lanes wait for, beside the rounds, and gives those back that were not used in time.
//
// Why no rule is broken:
//
//  1. The script runs alone. All instants that it hands out, to whomever, keep the rules.
//  2. Each is used once at most: by the commit that takes it out of the scheduler's state. If a commit was refused, or nobody
//     knows whether it has happened, its instants count as used. What a term has not used ends with it. If a worker returns a job that has
//     not started, the script gets its instant back, once: the term that has asked for it knows it no more then.
//  3. Instants that were left out of those that keep an "at most" do not break it.
//  4. A job starts no earlier than its instant, and at most [limits.SharedSlack] later, by which the script takes windows and spacings for
//     wider, and which it leaves out at the ends of the periods of others. The instants are on the clock of the Redis that has the limits,
//     which may be another server in a cluster. Then they are told on that of the queue, which the workers know: by lower bounds of both
//     clocks, and later by what they are in doubt.
//
// Queues, and partitions of a queue, that want the same instants take turns: each gets as many as the weights of its waiting tenants say. The
// script sees to that, and says when to ask again (package throttle).

// sharing is what a term knows of shared limits.
type sharing struct {
	clock    *clock.Clock      // of the Redis that has them; nil if it is that of the queue
	trip     time.Duration     // from a question until a round knows the answer, on average
	unsteady time.Duration     // how far from that average trips are, on average
	late     time.Duration     // how much later than it could a question is asked, on average
	of       map[string]*quota // by scope
	together bool              // a question for lanes that several limits count is under way
	next     int64             // no other one before, in µs of the queue's clock
	at       int64             // when there is somebody to ask next, in µs of the queue's clock; Never for nobody
}

func newSharing(w *worker.Worker) sharing {
	s := sharing{of: make(map[string]*quota)}
	if !w.Store.OneServer() {
		s.clock = clock.New(nil)
	}
	return s
}

// onOurs returns how much later the queue's clock shows what the clock of the shared limits does, at least and with what doubt.
func (t *term) onOurs(now int64, doubt time.Duration, said store.Reading) (later int64, in time.Duration) {
	if t.shared.clock == nil {
		return 0, 0
	}
	t.shared.clock.Observe(said)
	there, more := t.shared.clock.Now()
	return now + doubt.Microseconds() + 1 - there, doubt + more
}

// A quota is what a term knows of one shared limit, for the values of its key.
type quota struct {
	asking    bool
	ill       bool          // that the last answers were of no use was said
	doubted   int64         // since when the clock of the limit is not known well enough; 0 if it is
	next      int64         // not to be asked before, in µs of the queue's clock
	contested int64         // others want its instants, too, until then, in µs of the queue's clock
	given     []given       // grants that may be unused, by their instants
	returned  time.Time     // when instants of it were given back last
	refusing  int64         // since when its rules refuse jobs, in µs of the queue's clock
	refused   int64         // when they have refused one last
	margin    time.Duration // how much further ahead its instants are asked for, since some came too late
}

const (
	// askEvery is how long a queue waits, on average, before it asks again whether there are more instants.
	askEvery = time.Millisecond
	// mostTogether is for how many combinations of limits one question is.
	mostTogether = 8
	// mostUnsteady bounds how much longer than on average an answer is given.
	mostUnsteady = 20 * time.Millisecond
	// mostLate bounds how much later than it could a question is taken for.
	mostLate = 5 * time.Millisecond
	// askAgain is how long a question waits after an error, and at most where instants are far away: others may give some back.
	askAgain = time.Second
	// quietFor is how long after its last commit a term is taken for one that does not commit again before it has an answer.
	quietFor = 20 * time.Millisecond
)

// askForGrants asks for what the lanes of shared limits wait for, and gives back what was not used.
func (t *term) askForGrants() {
	now, _ := t.w.Clock.Now()
	wants, missed := t.sched.Wants(now)
	t.giveBack(missed)
	t.shared.at = schedule.Never
	var together []schedule.Want // by several limits each
	for _, want := range wants {
		q := t.quota(want.Scope)
		next := t.asksFor(want)
		switch {
		case q.asking:
		case next > now:
			t.shared.at = min(t.shared.at, next)
		case len(want.Parts) > 1:
			together = append(together, want)
		default:
			t.askOne(want, now)
		}
	}
	t.askTogether(together, now)
	t.forgetQuotas(now)
}

// A question is for grants, of a limit or of several that decide together, for jobs of these costs.
type question struct {
	schedule.Want
	costs []schedule.Cost
}

// about returns the question that a want is; false if there is no place for any of its jobs.
func (t *term) about(want schedule.Want, now int64) (question, bool) {
	costs := t.sched.Costs(want, now, t.fleet.free(), now < t.quota(want.Scope).contested)
	t.quota(want.Scope).asking = len(costs) > 0
	return question{want, costs}, len(costs) > 0
}

// askOne asks one limit.
func (t *term) askOne(want schedule.Want, now int64) {
	asked, any := t.about(want, now)
	if !any {
		return
	}
	t.wasLate(now, t.asksFor(want))
	r := reach{t.after(want, now), t.near()}
	t.workers.Go(func() { t.reserve(t.ctx, []question{asked}, r) })
}

// askTogether asks for instants that several limits let each of some lanes start at: with one question for some of the lanes, whichever
// they are, so that thousands of combinations of limits do not ask for each by itself. Their workers are about equally far.
func (t *term) askTogether(wants []schedule.Want, now int64) {
	switch {
	case len(wants) == 0 || t.shared.together:
		return
	case t.shared.next > now:
		t.shared.at = min(t.shared.at, t.shared.next)
		return
	}
	rand.Shuffle(len(wants), func(i, j int) { wants[i], wants[j] = wants[j], wants[i] })
	r := reach{t.after(wants[0], now), t.near()}
	var all []question
	for _, want := range wants {
		if its := t.after(want, now); len(all) == mostTogether || its > r.after || its <= r.after-askEvery {
			continue
		}
		if asked, any := t.about(want, now); any {
			all = append(all, asked)
		}
	}
	if len(all) == 0 {
		return
	}
	t.shared.together, t.shared.next = true, now+askEvery.Microseconds()
	t.workers.Go(func() { t.reserve(t.ctx, all, r) })
}

// asksFor returns when a want is asked for: so long before the first instant that is of use as it takes until a job is told, and some time more,
// since questions are late. Asked for earlier, an instant would leave others none before.
func (t *term) asksFor(want schedule.Want) int64 {
	return max(t.quota(want.Scope).next, want.From-(t.told(want)+2*t.shared.late).Microseconds())
}

// A reach is how near and how far instants may be that are asked for.
type reach struct{ after, within time.Duration }

// after returns how near the first instant may be that is asked for: the job is told in time, and other limits let it start.
func (t *term) after(want schedule.Want, now int64) time.Duration {
	return max(t.told(want)+t.quota(want.Scope).margin, clock.Micros(want.From-now))
}

// told returns how far ahead instants have to lie so that a job that gets one is there in time: the answer takes half a trip, the
// commit another, and the way to a worker may be longer. Where commits follow each other the next one may wait for others ([term.gather]).
func (t *term) told(want schedule.Want) time.Duration {
	told := t.askTrip() + min(3*t.shared.unsteady, mostUnsteady) + max(t.fleet.trip, clock.Micros(want.Ahead))
	if time.Since(t.wrote) < quietFor {
		told += gatherFor
	}
	return told
}

// near returns by how much instants may lie behind the first that is of use: as much as it takes to ask twice more.
func (t *term) near() time.Duration {
	return t.askTrip() + 5*(max(t.askTrip(), askEvery)+t.shared.late)/2
}

// wasLate notes when a question is asked that could have been asked before. If that is long ago nothing was wanted meanwhile.
func (t *term) wasLate(now, could int64) {
	if late := clock.Micros(now - could); could > 0 && late < 4*mostLate {
		t.shared.late += (min(late, mostLate) - t.shared.late) / 16
	}
}

func (t *term) askTrip() time.Duration { return max(t.shared.trip, 200*time.Microsecond) }

// reserve asks for instants, and tells the rounds.
func (t *term) reserve(ctx context.Context, all []question, r reach) {
	var requests []throttle.Request
	for _, q := range all {
		for _, cost := range q.costs {
			requests = append(requests, throttle.Request{Subjects: subjectsOf(q.Parts, cost.Of), By: t.w.Store.Name(), More: len(q.costs) == schedule.MostWanted, Gap: clock.Micros(cost.Gap)})
		}
	}
	asked := time.Now()
	decisions, err := t.w.Shared.ReserveMany(ctx, r.after, r.within, requests...)
	answered := time.Now()
	t.report(ctx, func(int64) {
		t.shared.together = t.shared.together && len(all[0].Parts) == 1
		for _, q := range all {
			n := min(len(q.costs), len(decisions)) // all or none: without an answer there are no decisions
			its := decisions[:n]
			decisions = decisions[n:]
			if n == 0 || slices.ContainsFunc(its, undecided) {
				t.refund(its)
				t.unanswered(q.Scope, err)
				continue
			}
			t.answered(q, r, its, asked, answered)
		}
	})
}

// subjectsOf returns what a job costs the parts of a shared limit.
func subjectsOf(parts []schedule.Part, costs []int) []throttle.Subject {
	subjects := make([]throttle.Subject, len(parts))
	for k, p := range parts {
		subjects[k] = throttle.Subject{Key: p.Key, Rules: p.Rules, Cost: costUnder(p.Rules, costs[k]), Slack: limits.SharedSlack, Weight: p.Weight}
	}
	return subjects
}

func undecided(d throttle.Decision) bool { return d.Outcome == throttle.Undecided }

// costUnder returns what a cost counts as under rules that can never admit it: all that they admit. They were changed since the job was
// offered.
func costUnder(all []throttle.Rule, cost int) int {
	for _, r := range all {
		switch r.Kind() {
		case throttle.KindLeak:
			if most := int(rules.Century / r.Period()); cost/r.Limit() >= most {
				cost = most * r.Limit()
			}
		case throttle.KindWindow, throttle.KindFixedWindow, throttle.KindSlidingCounter, throttle.KindCalendar, throttle.KindWarmup:
			cost = min(cost, r.Limit())
		case throttle.KindTokenBucket:
			cost = min(cost, r.Burst())
		}
	}
	return cost
}

// unanswered notes that a shared limit could not be asked.
func (t *term) unanswered(scope string, err error) {
	q := t.quota(scope)
	now, _ := t.w.Clock.Now()
	q.asking, q.next = false, now+askAgain.Microseconds()
	if !q.ill && t.ctx.Err() == nil {
		t.w.Log.Warn("a shared limit does not answer; jobs that it counts wait", "limit", scope, "err", err)
	}
	q.ill = true
}

// quota returns what is known of a shared limit, which is nothing at first.
func (t *term) quota(scope string) *quota {
	q := t.shared.of[scope]
	if q == nil {
		q = &quota{}
		t.shared.of[scope] = q
	}
	return q
}
