package runner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A task is a job as the judge accounts for it.
type task struct {
	name      string // its payload
	stamp     string
	lane      envelope.Lane
	cost      int64
	id        string // of the caller's own
	collapse  string
	attempts  int // that it may have
	notBefore int64
	deadline  int64

	state     state
	ready     int64 // since when it waits in its lane; before that nobody asks for it
	offered   int64
	plain     bool  // its place in its lane is that of its offer
	excused   int64 // until when nobody asks: its worker died
	cancelled int64 // when that was acknowledged
	purged    int64 // when a purge of its tenant was acknowledged that found it waiting
	started   int
	failures  int
	at        *attempt // the one that runs
	doubtful  bool     // a worker that had it may have lost it
	oddly     bool     // a key that it needs was tampered with: anything may become of it
	reason    string   // why it was dropped
	rest      rest     // for how long its handler has paused it
	sentOn    bool     // its worker could not run it

	key    string  // the digest key
	terms  terms   // of digests, as it was offered
	in     *task   // the digest that it is a member of
	bundle *bundle // of a digest

	typ, domain string   // what limits by name are about
	tokens      int64    // -1 if it does not say
	charges     []charge // whoever counts it
	chargedIn   int      // under which policies
	chargedAs   envelope.Lane
}

type state int

const (
	waits    state = iota // in its lane, or in later until it is ready
	runs                  // a handler has it
	done                  // it has ended well
	dead                  // it has no attempts left
	dropped               // it never runs
	vanished              // somebody has deleted it
)

func (s state) String() string {
	return [...]string{"waits", "runs", "done", "dead", "dropped", "vanished"}[s]
}

func (t *task) over() bool { return t.state > runs }

// An attempt is a run of a handler.
type attempt struct {
	t    *task
	h    *hired
	at   int64
	slot int64
	fate fated
	over bool

	charges []charge // whoever counts it
}

// A judge keeps the accounts and knows the textbook. All of its methods are called with the world
// locked.
type judge struct {
	w           *world
	begun       int64
	tasks       map[string]*task // by name
	byStamp     map[string]*task
	lanes       map[envelope.Lane][]*task // that are not over
	last        map[envelope.Lane]int64   // when something has left the lane last
	ledgers     map[string]*ledger
	codex       codex
	governed    int64            // since when
	lapsed      map[string]int64 // scope → when an override of it has ended
	paused      map[string]int64 // scope → until when
	acked       map[string]int64 // scope → since when an operator's pause is acknowledged
	asked       map[string]asked // scope → the last pause that a handler has asked for
	calm        int64            // until when trouble may hold things up
	troubled    int64            // when the last trouble was over
	beyond      int64            // until when slots lie that were given before Redis's clock was set back
	roomy       int64            // since when there are free places
	crowded     bool
	phantoms    map[string]bool         // claims of dead workers that were counted
	haunts      map[string]int64        // scope → until when such claims may count
	records     map[string]bool         // entries of streams that were read
	digests     map[string]*task        // by their stamps
	openDigests map[place]*task         // the newest ones
	tried       map[string]bool         // stamps for which a commit had a claim
	odd         map[envelope.Lane]int64 // lanes of another type → until when what comes finds no place
	cancelling  map[string]bool
	orphans     map[string]bool // users of whose lanes one was lost
	miscounted  bool            // backlogs count jobs of lanes that were lost
	suspects    []suspect
	refusals    []refusal
	given       map[given]gift   // claims that commits give to workers
	served      map[string]int64 // of contestants
	marks       []map[string]int64
	eras        int              // how often policies were put in force
	limited     int64            // since when there are these limits by name
	biggest     map[string]int64 // limit by name → the most that a job costs that waits for it
	detours     map[string]bool  // those for which jobs wait that wait for another one, too
	out         map[*hired]sitting
}

// given names a claim.
type given struct {
	stamp string
	slot  int64
}

// A gift says when a claim was given, by whom, and under which policies.
type gift struct {
	at    int64
	term  string
	codex codex
}

// gives notes the claims that a commit gives to workers. Their rules are those by which it was decided: a
// slot may lie a second ahead, for a worker that knows the time badly.
func (j *judge) gives(cmd redis.Cmder) {
	for _, arg := range cmd.Args() {
		text, _ := arg.(string)
		if claim, err := envelope.ParseClaim(text); err == nil && claim.Valid() {
			j.tried[claim.Stamp] = true
			j.given[given{claim.Stamp, claim.Slot}] = gift{clockNow(), j.w.term(), j.codex}
		}
	}
}

// A suspect is a start before which one of a higher priority may have been due.
type suspect struct {
	s    spend
	lane envelope.Lane // of the higher priority
	t    *task         // its job that was due
	at   int64
}

// How long something may take that is due, in µs.
const (
	// patience holds after the allowance of each trouble: leases of workers and leaders, backoff.
	patience = 3_000_000
	// brisk holds where there has been no trouble for calmFor. The documented allowances are the
	// gathering of notices (1 ms), of ends (30 ms at a worker that leads) and the grace; a pause, a
	// resumption and other policies are read with some round trips.
	brisk   = 120_000
	calmFor = 10_000_000
)

func newJudge(w *world) *judge {
	return &judge{
		w: w, begun: time.Now().UnixMicro(), tasks: map[string]*task{}, byStamp: map[string]*task{}, lanes: map[envelope.Lane][]*task{},
		last: map[envelope.Lane]int64{}, ledgers: map[string]*ledger{}, paused: map[string]int64{}, acked: map[string]int64{}, asked: map[string]asked{}, lapsed: map[string]int64{},
		phantoms: map[string]bool{}, haunts: map[string]int64{}, records: map[string]bool{}, odd: map[envelope.Lane]int64{}, given: map[given]gift{}, cancelling: map[string]bool{}, orphans: map[string]bool{}, served: map[string]int64{},
		out: map[*hired]sitting{}, digests: map[string]*task{}, openDigests: map[place]*task{}, tried: map[string]bool{},
	}
}

func clockNow() int64 { return time.Now().UnixMicro() }

// trouble allows for something that holds the queue up for so long.
func (j *judge) trouble(d time.Duration, what string, args ...any) {
	j.calm = max(j.calm, clockNow()+d.Microseconds())
	j.troubled = j.calm
	j.w.noteLocked("", "", "TROUBLE %s (%v)", fmt.Sprintf(what, args...), d)
}

// brief allows for something that everybody expects, and that is over soon: twice as long after it all
// is brisk again.
func (j *judge) brief(d time.Duration, what string, args ...any) {
	before := j.troubled
	j.trouble(d, what, args...)
	j.troubled = max(before, clockNow()+2*d.Microseconds()-calmFor)
}

// quiet reports whether there was no trouble for a long time.
func (j *judge) quiet(since int64) bool { return j.troubled+calmFor < since }

func (j *judge) ledger(scope string) *ledger {
	l := j.ledgers[scope]
	if l == nil {
		code, counts := j.codeOf(scope)
		l = &ledger{scope: scope, code: code, counts: counts, running: map[*attempt]bool{}, since: max(j.begun, j.governed, j.beyond), shift: j.w.offset.Microseconds()}
		j.ledgers[scope] = l
	}
	return l
}

// codeOf returns what limits a scope, and what a limit by name counts.
func (j *judge) codeOf(scope string) (limit code, counts string) {
	if strings.HasPrefix(scope, envelope.LimitScope) {
		return j.codex.limitOf(scope)
	}
	return j.codex.decreed(scope, j.codex.plain(scope)), ""
}

// plain returns what limits the queue, a tenant or a user without decrees.
func (c codex) plain(scope string) code {
	tenant, user := envelope.ParseScope(scope)
	n := -1
	fmt.Sscanf(tenant, "t%d", &n)
	switch {
	case tenant == "":
		return c.queue
	case n < 0 || n >= len(c.tenants):
		return code{}
	case user == "":
		return c.tenants[n]
	}
	return c.users[n]
}

func scopesOf(l envelope.Lane) [3]string {
	return [3]string{envelope.QueueScope, envelope.TenantScope(l.Tenant), envelope.UserScope(l.Tenant, l.User)}
}

// ledgersOf returns the accounts of those who are charged.
func (j *judge) ledgersOf(charges []charge) (all []*ledger) {
	for _, c := range charges {
		all = append(all, j.ledger(c.scope))
	}
	return all
}

// govern takes in that other policies are in force.
func (j *judge) govern(c codex) {
	now := clockNow()
	if fmt.Sprint(j.codex.named) != fmt.Sprint(c.named) {
		j.limited = now
		j.wakes(envelope.LimitScope)
	}
	j.codex, j.governed = c, max(now, j.beyond)
	j.eras++
	j.pauseUsersToo()
	for scope, l := range j.ledgers {
		next, counts := j.codeOf(scope)
		if next.String() == l.code.String() && counts == l.counts {
			continue
		}
		if counts != l.counts {
			l.counts = counts
			j.otherLimits(l)
		}
		if strings.HasPrefix(scope, envelope.LimitScope) {
			l.takeBack(now - underWay)
		}
		l.vague = max(l.vague, now)
		// A log keeps no more than its rules ask about. What one that was given back had pushed out
		// counts as the oldest that is left, which only a longer rule can tell.
		refunded := l.gone > 0 && l.gone > now-next.lasting()
		if l.code.fuzzy() || next.fuzzy() || refunded {
			l.muddled, l.vague = now, max(l.vague, now+l.code.lasting()+next.lasting())
		}
		l.code, l.since, l.freed = next, max(now, j.beyond), max(l.freed, now)
	}
}

// leaves takes in that a job is over.
func (j *judge) leaves(t *task, s state) {
	t.state, t.at = s, nil
	for _, m := range t.parts() {
		m.state = s
	}
	j.lanes[t.lane] = slices.DeleteFunc(j.lanes[t.lane], func(o *task) bool { return o == t })
	j.last[t.lane] = clockNow()
}

// start takes in that a handler has started, and checks that it may. It returns nothing if what the
// worker does does not count.
func (j *judge) start(h *hired, a Attempt) *attempt {
	if h.dead {
		return nil
	}
	t, now := j.taskOf(a), clockNow()
	if t == nil {
		return nil
	}
	if t.stamp == "" {
		t.stamp = a.Job.Stamp
		j.byStamp[t.stamp] = t
	}
	t.started++
	at := &attempt{t: t, h: h, at: now, slot: a.Slot - j.w.offset.Microseconds(), fate: j.w.fate(t, t.started)}
	j.w.noteLocked(t.lane.Tenant, t.lane.User, "%s starts at %s, slot %d µs ago", t, h.name, now-at.slot)
	if a.Lane != t.lane && t.collapse != "" { // it has taken the place of another one
		j.move(t, a.Lane)
	}
	gift, told := j.given[given{a.Job.Stamp, a.Slot}]
	if !told {
		gift.at, gift.codex = now, j.codex
	}
	at.charges = gift.codex.charges(t)
	at.fate.sendsOn = at.fate.sendsOn && !a.Job.SentOn // it is sent on once
	j.checkEnd(t, a, gift)
	j.checkRested(t, a)
	j.checkSentOn(t, h, a, gift)
	j.checkJob(t, at)
	if !j.w.scene.contest {
		j.checkProgress(t.lane.Tenant)
		if t.lane.Label == gift.codex.label(t) { // otherwise it may have been in another lane meanwhile
			j.checkOrder(t, at)
		}
		j.suspect(t, at)
	}
	j.last[t.lane] = now
	waited, lane := t.lane, t.lane
	lane.Label = gift.codex.label(t) // which may be another than when it was offered
	least := j.least(t, gift.codex)
	if a.Lane != lane && !t.doubtful && least == nil {
		j.fail(t, "%s starts from another lane: %s", t, a.Lane.Name())
	}
	if a.Lane != t.lane {
		j.move(t, a.Lane)
	}
	t.purged = 0 // it had left its lane before
	s := spend{t: t, lane: waited, at: now, given: gift.at, slot: at.slot, unseen: at.fate.outcome.Refund || at.fate.sendsOn}
	for _, c := range at.charges {
		l := j.ledger(c.scope)
		s.cost, s.least = c.cost, c.cost
		if least != nil {
			s.least = least[c.scope]
		}
		if rule := l.broken(s, c.ofUser); rule != "" && !t.oddly && !j.w.judge.tainted(l, now) {
			tenant, user := envelope.ParseScope(l.scope)
			j.w.fail(tenant, user, "%s starts, and breaks a rule of %s: %s", t, l.scope, rule)
		}
		l.starts = append(l.starts, s)
		if _, counts := gift.codex.limitOf(c.scope); counts == l.counts {
			l.running[at] = true
		} else {
			j.otherLimits(l)
		}
		if most := l.code.most; most > 0 && len(l.running) > most && gift.at > l.since && !j.doubtful(l) {
			j.fail(t, "%s starts, and %d jobs of %s run at once; %d may", t, len(l.running), l.scope, most)
		}
		l.forget(now)
	}
	t.state, t.at = runs, at
	if t.bundle != nil {
		t.measure()
	}
	h.running++
	j.last[t.lane] = now
	j.served[scopesOf(t.lane)[1]] += t.cost
	j.served[scopesOf(t.lane)[2]]++ // lanes take turns by jobs
	j.countPlaces()
	return at
}

func (j *judge) fail(t *task, format string, args ...any) {
	j.w.fail(t.lane.Tenant, t.lane.User, format, args...)
}

func (t *task) String() string {
	return fmt.Sprintf("%s (%s, cost %d)", t.name, t.lane.Name(), t.cost)
}

// tainted reports whether starts may lie oddly on the machine's clock: Redis's was moved, or the keys
// of the subject were tampered with.
func (j *judge) tainted(l *ledger, now int64) bool { return now < l.vague && l.vague > l.since }

// doubtful reports whether one of the jobs that run may have been lost by its worker.
func (j *judge) doubtful(l *ledger) bool {
	for at := range l.running {
		if at.h.lost || at.t.oddly {
			return true
		}
	}
	return false
}

// checkJob asks whether this job may start at all.
func (j *judge) checkJob(t *task, at *attempt) {
	switch {
	case t.oddly:
	case t.over() && !t.doubtful:
		j.fail(t, "%s starts at %s, and is %v (%s)", t, at.h.name, t.state, t.reason)
	case t.state == runs && !t.at.h.lost:
		j.fail(t, "%s starts at %s, and runs at %s, which has not lost it", t, at.h.name, t.at.h.name)
	case t.cancelled > 0 && at.at > t.cancelled:
		j.fail(t, "%s starts %v after it was cancelled", t, clock.Micros(at.at-t.cancelled))
	case t.purged > 0 && at.at > t.purged+decided && j.quiet(t.purged):
		j.fail(t, "%s starts %v after it was purged", t, clock.Micros(at.at-t.purged))
	case t.deadline > 0 && at.slot > t.deadline+1:
		j.fail(t, "%s has a slot %v after its deadline", t, clock.Micros(at.slot-t.deadline))
	case at.at+1 < t.notBefore && j.w.offset == 0 && at.at >= j.beyond: // a worker learns with its next reply that the clock was set back
		j.fail(t, "%s starts %v too early", t, clock.Micros(t.notBefore-at.at))
	case t.state == waits && at.at+30_000 < t.ready && t.notBefore == 0 && j.quiet(at.at):
		j.fail(t, "%s starts %v before its delay is over", t, clock.Micros(t.ready-at.at))
	}
	for _, c := range at.charges {
		scope := c.scope
		if since := j.acked[scope]; since > 0 && at.at > since+decided && j.paused[scope] > at.at+1 && j.quiet(since) {
			j.fail(t, "%s starts %v after %s was paused, for %v more", t, clock.Micros(at.at-since), scope, clock.Micros(j.paused[scope]-at.at))
		}
	}
}

// move takes in that a job is in another lane of its user now.
func (j *judge) move(t *task, lane envelope.Lane) {
	j.lanes[t.lane] = slices.DeleteFunc(j.lanes[t.lane], func(o *task) bool { return o == t })
	t.lane = lane
	j.lanes[lane] = append(j.lanes[lane], t)
}

// end takes in what a handler has returned.
func (j *judge) end(at *attempt, o Outcome) {
	t, now := at.t, clockNow()
	if at.over { // its worker is dead
		return
	}
	at.over = true
	at.h.running--
	for _, l := range j.ledgersOf(at.charges) {
		was := l.full()
		delete(l.running, at)
		if was && !l.full() {
			l.freed = now
		}
	}
	j.countPlaces()
	if o.Refund || o.SentOn > 0 {
		for _, c := range at.charges {
			l := j.ledger(c.scope)
			if named := strings.HasPrefix(c.scope, envelope.LimitScope); !c.ofUser || named && l.since > at.at {
				continue // those that are in force by then give it back
			}
			for i := range l.starts {
				if l.starts[i].t == t && l.starts[i].at == at.at {
					l.starts[i].gone, l.gone = now, now
				}
			}
		}
	}
	j.w.noteLocked(t.lane.Tenant, t.lane.User, "%s ends at %s: %s", t, at.h.name, told(o))
	if t.at != at {
		return // another worker has it
	}
	if at.h.lost {
		t.doubtful, t.excused = true, max(t.excused, now+2*modelLease.Microseconds())
	}
	t.plain, t.ready, t.state, t.at, t.sentOn = false, now, waits, nil, o.SentOn > 0
	switch {
	case o.SentOn > 0:
		j.sitsOut(at.h, o.SentOn-j.w.offset.Microseconds())
	case o.Pause != nil:
		j.pauseFrom(t, o.Pause.Scope, o.Pause.Until-j.w.offset.Microseconds())
	case !o.Failed:
		j.leaves(t, done)
	case o.Uncounted:
	default:
		t.failures++
		t.ready = now + o.Delay.Microseconds()
		if o.Dead || t.failures >= t.attempts {
			j.leaves(t, dead)
		} else if o.Yield && t.collapse == "" {
			j.move(t, envelope.Lane{Tenant: t.lane.Tenant, User: t.lane.User, Priority: envelope.Low, Label: t.lane.Label})
		}
	}
}

func told(o Outcome) string {
	var words []string
	for word, is := range map[string]bool{"failed": o.Failed, "dead": o.Dead, "refund": o.Refund, "yield": o.Yield, "cut": o.Error == "cut", "sent on": o.SentOn > 0} {
		if is {
			words = append(words, word)
		}
	}
	if o.Pause != nil {
		words = append(words, "pause "+o.Pause.Scope)
	}
	if slices.Sort(words); len(words) == 0 {
		return "done"
	}
	return strings.Join(words, ", ")
}

// An asked is a pause that a handler has asked for.
type asked struct {
	at, until int64
	user      string // who is paused as well if a limit by name counts the job no more by then
}

// underWay is for how long a handler's pause may be on its way to the leader: it holds from then on, also where an
// operator has resumed meanwhile.
const underWay = 2_000_000

// pauseFrom takes in that a handler pauses somebody. A limit by name that does not count its job pauses the job's user, too:
// the job would start again at once.
func (j *judge) pauseFrom(t *task, scope string, until int64) {
	t.rest = rest{scope, clockNow(), until}
	j.pause(scope, until, false)
	if !strings.HasPrefix(scope, envelope.LimitScope) {
		return
	}
	user := scopesOf(t.lane)[2]
	if !slices.ContainsFunc(j.charges(t), func(c charge) bool { return c.scope == scope }) {
		j.pause(user, until, false)
		return
	}
	by := j.asked[scope]
	by.user = user
	j.asked[scope] = by
}

// pauseUsersToo takes in that limits by name may count the jobs no more whose handlers pause them.
func (j *judge) pauseUsersToo() {
	for _, by := range j.asked {
		if by.user != "" && by.at+underWay > clockNow() {
			j.pause(by.user, by.until, false)
		}
	}
}

// pause takes in that a scope is paused until an instant, or resumed by one that has passed.
func (j *judge) pause(scope string, until int64, operator bool) {
	now := clockNow()
	if operator {
		j.wakes(scope)
	} else {
		j.asked[scope] = asked{at: now, until: max(until, j.asked[scope].until)}
	}
	if by := j.asked[scope]; operator && by.at+underWay > now && by.until > max(until, now) {
		j.paused[scope] = by.until
		delete(j.acked, scope)
		return
	}
	if operator && until <= now {
		j.paused[scope] = min(max(j.paused[scope], 0), now)
		delete(j.acked, scope)
		return
	}
	if operator {
		j.paused[scope], j.acked[scope] = until, now
	} else if until > j.paused[scope] { // a handler's does not shorten a longer one
		j.paused[scope] = until
		delete(j.acked, scope)
	}
}
