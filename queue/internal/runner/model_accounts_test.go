package runner

import (
	"slices"
	"time"

	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// expect takes jobs in that are about to be offered: they may start before the reply is there.
func (j *judge) expect(drafts []*draft) {
	for _, d := range drafts {
		t := d.t
		j.tasks[t.name] = t
		if t.key == "" { // otherwise its digest waits
			j.lanes[t.lane] = append(j.lanes[t.lane], t)
		}
		j.w.noteLocked(t.lane.Tenant, t.lane.User, "OFFER %s deadline %d not before %d, key %q, digest %q, %d attempts, type %s, domain %q, %d tokens", t, in(t.deadline), in(t.notBefore), t.collapse, t.key, t.attempts, t.typ, t.domain, t.tokens)
	}
}

// withdraw takes back what was expected.
func (j *judge) withdraw(drafts []*draft) {
	for _, d := range drafts {
		delete(j.tasks, d.t.name)
		j.lanes[d.t.lane] = slices.DeleteFunc(j.lanes[d.t.lane], func(o *task) bool { return o == d.t })
	}
}

func in(at int64) int64 {
	if at == 0 {
		return 0
	}
	return at - clockNow()
}

// mayLackLane notes of a job with a collapse key that it may take the place of one whose lane was lost.
func (j *judge) mayLackLane(t *task) {
	t.oddly = t.oddly || t.collapse != "" && t.key == "" && j.orphans[scopesOf(t.lane)[2]]
}

// accepted takes in what became of an offer.
func (j *judge) accepted(t *task, r store.OfferReceipt) {
	t.stamp = r.Stamp
	j.mayLackLane(t)
	j.byStamp[t.stamp] = t
	switch r.Status {
	case store.StatusAccepted, store.StatusLater, store.StatusReplaced, store.StatusJoined:
		if t.key != "" {
			j.joins(t, r)
		}
	default:
		if t.key != "" && r.Reason == "full" {
			j.checkNoRoom(t)
		}
		t.reason = r.Status + " " + r.Reason
		j.leaves(t, dropped)
		j.w.noteLocked(t.lane.Tenant, t.lane.User, "%s is refused: %s", t, t.reason)
	}
}

// revived takes in that a dead job is taken back.
func (j *judge) revived(t *task) {
	j.mayLackLane(t)
	t.state, t.ready, t.offered, t.failures, t.plain = waits, clockNow(), clockNow(), 0, false
	j.lanes[t.lane] = append(j.lanes[t.lane], t)
	for _, m := range t.parts() {
		m.state = waits
	}
	j.w.noteLocked(t.lane.Tenant, t.lane.User, "REVIVE %s", t)
}

// read takes in what Redis has recorded of jobs that never run, and of dead ones.
func (j *judge) read() {
	for _, key := range []string{"wc:{q}:drops", "wc:{q}:dead"} {
		entries, err := j.w.server.Stream(key)
		if err != nil {
			continue
		}
		for _, entry := range entries {
			if j.records[key+entry.ID] {
				continue
			}
			j.records[key+entry.ID] = true
			fields := map[string]string{}
			for i := 0; i+1 < len(entry.Values); i += 2 {
				fields[entry.Values[i]] = entry.Values[i+1]
			}
			j.record(key == "wc:{q}:dead", fields)
		}
	}
}

// record takes in one record.
func (j *judge) record(isDead bool, fields map[string]string) {
	job := fields["job"]
	if len(job) < envelope.StampLen {
		j.w.fail("", "", "a record without a job: %q", fields)
		return
	}
	t, env := j.dated(job)
	if t == nil {
		j.w.fail("", "", "a record of a job that nobody has offered: %q", fields)
		return
	}
	t.oddly = t.oddly || j.odd[t.lane] > clockNow()
	t.inherit()
	if isDead {
		if !t.doubtful && !t.oddly && t.state != dead && t.state != runs {
			j.fail(t, "%s is dead (%s), and %v", t, fields["error"], t.state)
		}
		if t.bundle != nil && env != nil {
			j.buried(t, env)
		}
		j.leaves(t, dead)
		return
	}
	reason := fields["reason"]
	j.w.noteLocked(t.lane.Tenant, t.lane.User, "%s is dropped: %s", t, reason)
	j.checkDrop(t, reason)
	t.reason = reason
	j.leaves(t, dropped)
	j.withdraws(t, reason)
	if reason == "collapsed" && t.key == "" {
		j.takePlace(t)
	}
}

// takePlace lets the jobs that came under a job's collapse key later wait in its lane.
func (j *judge) takePlace(of *task) {
	for _, t := range j.all() {
		if t.state == waits && t.key == "" && t.collapse == of.collapse && scopesOf(t.lane) == scopesOf(of.lane) && t.offered >= of.offered {
			j.move(t, of.lane)
		}
	}
}

// checkDrop asks whether a job may be dropped for that reason.
func (j *judge) checkDrop(t *task, reason string) {
	now := clockNow()
	switch {
	case t.oddly || t.doubtful:
	case t.over():
		j.fail(t, "%s is dropped (%s), and is %v (%s)", t, reason, t.state, t.reason)
	case t.whole().state == runs && !t.whole().at.h.lost && reason != "collapsed":
		j.fail(t, "%s is dropped (%s), and runs", t, reason)
	case reason == "cancelled" && t.cancelled == 0 && !j.cancelling[t.id]:
		j.fail(t, "%s is dropped as cancelled, and nobody has cancelled it", t)
	case reason == "collapsed" && t.collapse == "":
		j.fail(t, "%s is dropped as collapsed, and has no key", t)
	case reason == "expired":
		j.checkExpired(t, now)
	case reason == "rule":
		j.refusals = append(j.refusals, refusal{t, j.charges(t.whole()), now})
	}
}

// checkExpired asks whether a job could have started before its deadline.
func (j *judge) checkExpired(t *task, now int64) {
	if t.deadline == 0 {
		j.fail(t, "%s is dropped as expired, and has no deadline", t)
		return
	}
	j.checkKept(t, now)
	if t.deadline < now+1_000_000 || !j.quiet(now-100_000) || j.rivals(t.whole()) {
		return
	}
	at := now
	for _, c := range j.charges(t.whole()) {
		l := j.ledger(c.scope)
		if l.full() {
			return
		}
		at = max(at, l.opens(c.cost, now), j.paused[l.scope])
	}
	if at+500_000 < t.deadline {
		j.fail(t, "%s is dropped as expired, %v before its deadline, and could start in %v", t, clock.Micros(t.deadline-now), clock.Micros(at-now))
	}
}

// rivals reports whether others wait for what the rules of the job's subjects let start.
func (j *judge) rivals(t *task) bool {
	for _, o := range j.open() {
		if o == t || o.state != waits || o.key != "" {
			continue
		}
		others := j.charges(o)
		for _, l := range j.ledgersOf(j.charges(t)) {
			shared := slices.ContainsFunc(others, func(c charge) bool { return c.scope == l.scope })
			if shared && (len(l.code.norms) > 0 || l.code.most > 0) {
				return true
			}
		}
	}
	return false
}

// died takes in that a worker is dead. What it runs never ends.
func (j *judge) died(h *hired) {
	h.dead, h.lost, h.running = true, true, 0
	for _, t := range j.tasks {
		if t.state == runs && t.at.h == h {
			for _, l := range j.ledgersOf(t.at.charges) {
				delete(l.running, t.at)
				l.freed = clockNow()
			}
			t.at.over = true
			t.state, t.at, t.plain, t.doubtful, t.ready = waits, nil, false, true, clockNow()
			t.excused = clockNow() + 2_000_000
		}
	}
	j.countPlaces()
	j.haunt()
}

// haunt looks for claims of workers that are gone, or cannot reach Redis: nobody asks for their jobs
// until they are back, and whether they count as starts nobody knows.
func (j *judge) haunt() {
	now := clockNow()
	const back = 2_500_000
	for _, h := range j.w.hired {
		if !h.left.Load() && !h.held && !h.lost {
			continue
		}
		keys, _ := j.w.server.HKeys("wc:{q}:running:" + h.name)
		for _, name := range keys {
			claim, err := envelope.ParseClaim(name)
			t := j.claimant(claim.Stamp)
			if err != nil || t == nil {
				continue
			}
			if t.over() { // nobody has told of its end
				t.doubtful = t.doubtful || h.lost
				continue
			}
			t.excused, t.plain, t.doubtful = max(t.excused, now+back), false, t.doubtful || h.lost
			by, told := j.given[given{claim.Stamp, claim.Slot}]
			if !told {
				by.codex = j.codex
			}
			for _, c := range by.codex.charges(t) {
				j.haunts[c.scope] = max(j.haunts[c.scope], now+back)
			}
			if slot := claim.Spent - j.w.offset.Microseconds(); h.lost && !j.phantoms[name] && (t.at == nil || t.at.h != h) {
				j.phantoms[name] = true
				for _, c := range by.codex.charges(t) {
					l := j.ledger(c.scope)
					l.starts = append(l.starts, spend{t: t, at: slot, slot: slot, cost: c.cost, least: c.cost, phantom: true})
				}
			}
		}
	}
}

// haunted reports whether claims of workers that are gone may count for a concurrency limit.
func (j *judge) haunted(l *ledger) bool { return l.code.most > 0 && j.haunts[l.scope] > clockNow() }

// stepped takes in that Redis's clock was moved.
func (j *judge) stepped(d time.Duration) {
	now := clockNow()
	j.trouble(d.Abs()+3*time.Second, "Redis's clock steps by %v", d)
	// Until its next commit the leader gives slots, and lets jobs come, by the clock of before: for up to
	// 600 ms, if it is alone. Slots that lie ahead already are put off as well.
	const noticed = 700_000
	j.beyond = max(j.beyond, now+noticed) + max(0, -d.Microseconds())
	for _, l := range j.ledgers {
		l.shift, l.moved = j.w.offset.Microseconds(), true
		// What lies ahead by its clock binds as long as it lies ahead, and what was long ago is so.
		l.muddled, l.vague, l.since = now, max(l.vague, now+l.code.lasting())+d.Abs().Microseconds(), max(j.beyond, now+d.Abs().Microseconds())
	}
	for _, t := range j.tasks { // instants on Redis's clock
		if t.deadline > 0 {
			t.deadline -= d.Microseconds()
		}
		if t.notBefore > now+noticed || t.notBefore > 0 && d > 0 { // what has come stays so
			t.notBefore -= d.Microseconds()
		}
		if t.state == waits {
			t.ready = max(t.ready, t.ready-d.Microseconds())
		}
	}
	j.wakes("")
	for scope, until := range j.paused {
		if until > now {
			j.paused[scope] = max(until, until-d.Microseconds())
			delete(j.acked, scope)
		}
	}
}

// forgets takes in that what the rules of a subject remember may be lost.
func (j *judge) forgets(scope string) {
	l := j.ledger(scope)
	l.since = clockNow() + decided
	l.muddled, l.vague = clockNow(), max(l.vague, clockNow()+l.code.lasting())
	j.troubled = max(j.troubled, clockNow())
}

// loses takes in that a lane is gone.
func (j *judge) loses(lane envelope.Lane, other bool) {
	j.miscounted = true
	j.orphans[scopesOf(lane)[2]] = true // a job that takes the place of one in that lane has none
	for l, tasks := range j.lanes {
		if l.Tenant != lane.Tenant || l.User != lane.User {
			continue
		}
		for _, t := range tasks {
			if l == lane || other {
				t.oddly = true
			}
		}
	}
	if other {
		j.odd[lane] = clockNow() + 4_000_000
	}
	j.troubled = max(j.troubled, clockNow())
}
