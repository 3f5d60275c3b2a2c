package runner

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A digest is one job made of several (docs/adr/0015). The judge has a task for each member, and one for the digest: that one stands
// in the lane, starts, and is charged. Which digest a member belongs to says its receipt, and the judge asks whether that is right.

// Terms say when a digest is full, and when it is due. Times are in µs.
type terms struct {
	most       int   // members of a full one; 0 counts as 100
	wait, idle int64 // from its first, and from its last member; 0 for none
}

func (t terms) full(members int) bool {
	if t.most == 0 {
		t.most = 100
	}
	return members >= t.most
}

// due returns when a digest is due that began at an instant, and to which a member comes now; 0 for at once.
func (t terms) due(began, now int64) (at int64) {
	if t.wait > 0 {
		at = began + t.wait
	}
	if t.idle > 0 && (at == 0 || now+t.idle < at) {
		at = now + t.idle
	}
	if at <= now {
		return 0
	}
	return at
}

func (t terms) written() policyfile.Digest {
	return policyfile.Digest{Max: t.most, Wait: clock.Micros(t.wait), Idle: clock.Micros(t.idle)}
}

func (c codex) termsOf(tenant string) terms {
	for i, t := range c.digests {
		if tenant == fmt.Sprint("t", i) {
			return t
		}
	}
	return terms{}
}

// terms draws those of a tenant.
func (w *world) terms() (t terms) {
	if !w.digests {
		return t
	}
	t.most = oneOf(w, 0, 1, 2, 3, 4, 5, 6, 20)
	if w.chance(2) {
		t.wait = 1000 + w.Int64N(3_000_000)
	}
	if w.chance(3) {
		t.idle = 1000 + w.Int64N(1_000_000)
	}
	return t
}

// digested gives a job a digest key, for most jobs of a world with digests. Members of one key are alike for limits by name, whatever
// these are about: of those that are not, the newest counts.
func (w *world) digested(t *task, key string) {
	if key == "" || t.notBefore > 0 || w.chance(4) {
		return
	}
	t.key = key
	if w.limits > 0 {
		t.typ, t.domain = "x", "a"
		if key == "l" {
			t.typ, t.domain = "y1", ""
		}
	}
}

// digestKey draws a digest key for an offer, in worlds with digests.
func (w *world) digestKey() string {
	if !w.digests || w.scene.contest {
		return ""
	}
	return oneOf(w, "k", "k", "l")
}

// A place is where a digest of a key is open: one for each.
type place struct {
	lane envelope.Lane
	key  string
}

// A bundle is what a digest has beside what every task has.
type bundle struct {
	place   place
	members []*task // that have not left it, in the order of their offers
	joined  int     // how many it has had; one that replaces another counts as that
	began   int64
	shut    bool // it was full
	emptied bool // all of its members were dropped
}

// parts returns the members of a digest.
func (t *task) parts() []*task {
	if t.bundle == nil {
		return nil
	}
	return t.bundle.members
}

// whole returns the digest of a member; any other task is whole.
func (t *task) whole() *task {
	if t.in != nil {
		return t.in
	}
	return t
}

// inherit takes over what happened to the digest of a member.
func (t *task) inherit() {
	t.oddly, t.doubtful = t.oddly || t.whole().oddly, t.doubtful || t.whole().doubtful
}

// claimant returns the task of a claim: digests have the stamp of their first members.
func (j *judge) claimant(stamp string) *task {
	if d := j.digests[stamp]; d != nil {
		return d
	}
	return j.byStamp[stamp]
}

// begin takes in that a digest begins with a job.
func (j *judge) begin(t *task, stamp string) *task {
	now := clockNow()
	d := &task{name: t.name + "+", stamp: stamp, lane: t.lane, plain: true, offered: now, ready: now, typ: t.typ, domain: t.domain, tokens: -1}
	d.bundle = &bundle{place: place{t.lane, t.key}, began: now}
	j.tasks[d.name], j.digests[stamp], j.openDigests[d.bundle.place] = d, d, d
	j.lanes[d.lane] = append(j.lanes[d.lane], d)
	d.oddly = j.odd[d.lane] > now
	return d
}

// add takes in a member.
func (j *judge) add(d, t *task) {
	t.in = d
	if t.over() {
		if t.reason != "collapsed" {
			d.bundle.joined++
		}
	} else {
		d.bundle.joined++
		d.bundle.members = append(d.bundle.members, t)
		if d.bundle.emptied { // one came before the others had left
			d.bundle.emptied, d.state = false, waits
			j.lanes[d.lane] = append(j.lanes[d.lane], d)
		}
	}
	d.measure()
}

// measure sets what follows from the members. A digest that costs something else comes to its turn anew.
func (d *task) measure() {
	cost, tokens := int64(1), int64(-1)
	for i, m := range d.bundle.members {
		cost, tokens, d.attempts = max(cost, m.cost), max(tokens, m.tokens), m.attempts
		switch {
		case i == 0:
			d.deadline = m.deadline
		case d.deadline == 0 || m.deadline == 0:
			d.deadline = 0
		default:
			d.deadline = max(d.deadline, m.deadline)
		}
	}
	if cost != d.cost || tokens != d.tokens {
		d.cost, d.tokens, d.chargedIn = cost, tokens, -1
		d.ready = max(d.ready, clockNow())
	}
}

// mayBeShut reports whether a digest may take no more members: it is full by the terms of who comes, or was claimed.
func (j *judge) mayBeShut(d *task, t terms) bool {
	return d.bundle.shut || d.started > 0 || j.tried[d.stamp] || t.full(d.bundle.joined) || d.over() || d.oddly || d.doubtful
}

// joins takes in the receipt of a job with a digest key.
func (j *judge) joins(t *task, r store.OfferReceipt) {
	j.read()
	now, at := clockNow(), place{t.lane, t.key}
	open, d := j.openDigests[at], j.digests[r.Digest]
	if t.in != nil && t.in.started > 0 { // it has started before its receipt was there
		if t.in != d {
			j.fail(t, "%s has started in %s, and its receipt says %q", t, t.in, r.Digest)
		}
		return
	}
	began := false
	switch {
	case d == nil && r.Digest != t.stamp:
		j.fail(t, "%s is in a digest that nobody has begun: %q", t, r.Digest)
		return
	case d == nil:
		if began = true; open != nil && !j.mayBeShut(open, t.terms) {
			j.fail(t, "%s begins a digest beside %s, which has %d members", t, open, open.bundle.joined)
		}
		if open != nil && t.terms.full(open.bundle.joined) {
			open.fill()
		}
		d = j.begin(t, r.Digest)
	case d.bundle.place != at:
		j.fail(t, "%s joins %s, which is of the key %q", t, d, d.bundle.place.key)
	case !t.over() && !d.oddly && (d.started > 0 || d.bundle.shut):
		j.fail(t, "%s joins %s, which is closed", t, d)
	}
	j.add(d, t)
	for _, m := range d.bundle.members {
		if m != t && t.collapse != "" && m.collapse == t.collapse && !t.over() {
			j.fail(t, "%s joins %s, where %s waits under its collapse key", t, d, m)
		}
	}
	if n := d.bundle.joined; n > 1 && t.terms.full(n-1) && !d.oddly {
		j.fail(t, "%s is one of %d members of %s, and %d may be", t, n, d, t.terms.most)
	}
	j.checkDue(d, t, r.Due, began)
	j.w.noteLocked(t.lane.Tenant, t.lane.User, "%s joins %s as number %d, due in %d, %+v", t, d, d.bundle.joined, in(d.notBefore), t.terms)
	if t.terms.full(d.bundle.joined) {
		d.fill()
	}
	if len(d.bundle.members) == 0 && !d.over() {
		j.empties(d, t.reason)
	}
	if d.deadline != 0 && d.deadline < now {
		d.ready = max(d.ready, now)
	}
}

// fill takes in that a digest is full: it waits no longer.
func (d *task) fill() {
	d.bundle.shut = true
	if now := clockNow(); d.notBefore > now {
		d.notBefore, d.ready = 0, now
	}
}

// checkDue asks whether a receipt says when the digest is due by the terms of its policy, and takes that in.
func (j *judge) checkDue(d, t *task, due int64, began bool) {
	now, was := clockNow(), d.notBefore
	const near = 2_000
	moved := t.terms.due(d.bundle.began, now)
	wants := []int64{was}
	switch {
	case began:
		wants[0] = moved
	case t.terms.idle > 0 && was > now+near:
		wants[0] = max(moved, now)
	case t.terms.idle > 0 && was > 0: // it may be in its lane
		wants = append(wants, max(moved, now))
	}
	if due > 0 {
		due -= j.w.offset.Microseconds()
	}
	right := slices.ContainsFunc(wants, func(want int64) bool {
		return (want == 0) == (due == 0) && want-near < due && due < want+near
	})
	if !right && !j.w.stepped.Load() && !d.oddly {
		j.fail(t, "%s joins %s, due in %v, want %v", t, d, clock.Micros(due-now), clock.Micros(wants[0]-now))
	}
	if d.notBefore = due; due > 0 {
		d.plain = false
		d.ready = max(due, d.offered)
	}
}

// checkNoRoom asks of a job that found no room whether it had to join a digest, or to begin one that is not in its lane.
func (j *judge) checkNoRoom(t *task) {
	j.read()
	if open := j.openDigests[place{t.lane, t.key}]; open != nil && !j.mayBeShut(open, t.terms) {
		j.fail(t, "%s finds no room, and %s was open", t, open)
	}
	if t.terms.due(clockNow(), clockNow()) > 0 {
		j.fail(t, "%s finds no room, and would not be in its lane", t)
	}
}

// withdraws takes in that a member has left its digest.
func (j *judge) withdraws(t *task, reason string) {
	d := t.in
	if d == nil {
		return
	}
	d.bundle.members = slices.DeleteFunc(d.bundle.members, func(m *task) bool { return m == t })
	if reason == "collapsed" {
		d.bundle.joined--
		d.measure()
		return
	}
	if len(d.bundle.members) == 0 && !d.over() {
		j.empties(d, reason)
	}
}

// empties takes in that no member of a digest is left.
func (j *judge) empties(d *task, reason string) {
	d.bundle.emptied, d.reason = true, reason
	j.leaves(d, dropped)
}

// taskOf returns the task that starts with an attempt, and asks of a digest whether its members are those that it has to have. It
// returns nothing for what nobody has offered.
func (j *judge) taskOf(a Attempt) *task {
	if len(a.Job.Members) == 0 {
		t := j.tasks[a.Job.Payload]
		if t == nil || t.bundle != nil {
			j.w.fail(a.Lane.Tenant, a.Lane.User, "a job that nobody has offered starts: %q", a.Job.Payload)
			return nil
		}
		if t.key != "" {
			j.fail(t, "%s starts without a digest", t)
		}
		return t
	}
	j.read() // who has left it
	var all []*task
	for _, m := range a.Job.Members {
		t := j.tasks[m.Payload]
		if t == nil || t.bundle != nil {
			j.w.fail(a.Lane.Tenant, a.Lane.User, "a member of a digest starts that nobody has offered: %q", m.Payload)
			return nil
		}
		if t.stamp == "" {
			t.stamp = m.Stamp
			j.byStamp[t.stamp] = t
		}
		all = append(all, t)
	}
	d := j.digests[a.Job.Stamp]
	if d == nil {
		d = j.begin(all[0], a.Job.Stamp)
	}
	for i, t := range all {
		if t.in == nil && d.started == 0 { // its receipt comes later
			if j.add(d, t); t.terms.full(d.bundle.joined) {
				d.fill()
			}
		}
		j.checkMember(d, t, all[max(0, i-1)], a)
	}
	for _, t := range d.bundle.members {
		if !slices.Contains(all, t) && !d.oddly {
			j.fail(t, "%s starts without %s", d, t)
		}
	}
	if last := all[len(all)-1]; a.Job.Payload != last.name || a.Job.DigestKey != last.key || a.Job.Type != last.typ {
		j.fail(d, "%s starts as %q of type %q and key %q, and its newest member is %s", d, a.Job.Payload, a.Job.Type, a.Job.DigestKey, last)
	}
	return d
}

// checkMember asks whether a member may start in a digest behind the one before it.
func (j *judge) checkMember(d, t, before *task, a Attempt) {
	now, slot := clockNow(), a.Slot-j.w.offset.Microseconds()
	t.inherit()
	switch {
	case t.oddly:
	case t.in != d:
		j.fail(t, "%s starts in %s, and belongs to %v", t, d, t.in)
	case t.over() && !t.doubtful:
		j.fail(t, "%s starts in %s, and is %v (%s)", t, d, t.state, t.reason)
	case t.key != before.key || t.lane != before.lane:
		j.fail(t, "%s starts in one digest with %s", t, before)
	case t != before && t.stamp <= before.stamp:
		j.fail(t, "%s starts behind %s, which is younger", t, before)
	case t.cancelled > 0 && now > t.cancelled:
		j.fail(t, "%s starts in %s, %v after it was cancelled", t, d, clock.Micros(now-t.cancelled))
	case t.deadline > 0 && slot > t.deadline+1:
		j.fail(t, "%s has a slot in %s %v after its deadline", t, d, clock.Micros(slot-t.deadline))
	}
	if t.over() && t.in == d { // its worker could not tell how it had ended
		t.state = waits
		if !slices.Contains(d.bundle.members, t) {
			d.bundle.members = append(d.bundle.members, t)
		}
	}
}

// buried takes in the record of a dead digest, and asks whether all members are in it.
func (j *judge) buried(d *task, env *envelope.Envelope) {
	for _, m := range d.bundle.members {
		if !slices.ContainsFunc(env.Members, func(e *envelope.Envelope) bool { return e.Payload == m.name }) && !d.oddly {
			j.fail(m, "%s is dead without %s", d, m)
		}
	}
	for _, e := range env.Members {
		if t := j.tasks[e.Payload]; (t == nil || t.in != d && t.in != nil) && !d.oddly {
			j.fail(d, "%s is dead with %q", d, e.Payload)
		}
	}
}

// dated returns the digest, or the job, that a record of a dead one is about.
func (j *judge) dated(job string) (t *task, env *envelope.Envelope) {
	if len(job) > 0 && job[0] == '=' { // a stub that found no place in its lane
		if name, is := envelope.ParseDigest(job[1:]); is && j.digests[name.Stamp] != nil {
			d := j.digests[name.Stamp]
			if j.w.scene.name != "keys" {
				j.fail(d, "%s is dead as a stub: its members wait for ever", d)
			}
			d.oddly = true
			return d, nil
		}
		return nil, nil
	}
	env, ok := envelope.Head(job)
	if !ok {
		return nil, nil
	}
	if len(env.Members) > 0 {
		return j.digests[env.Stamp], env
	}
	if t = j.byStamp[env.Stamp]; t == nil {
		t = j.tasks[env.Payload]
	}
	return t, env
}

// newcomer is what joins an open digest just before a commit that may claim it.
func (w *world) newcomer(tenant string) *draft {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.draw(tenant, w.user(), w.digestKey())
}

// gatecrash offers a job for a digest that waits, about which the leader may have decided. The job costs more than others.
func (w *world) gatecrash(d *draft, pick int) {
	w.mu.Lock()
	var all []*task
	for _, t := range w.judge.openDigests {
		if t.state == waits && t.started == 0 && t.bundle.place.lane.Tenant == d.t.lane.Tenant {
			all = append(all, t)
		}
	}
	if len(all) == 0 || d.t.key == "" {
		w.mu.Unlock()
		return
	}
	slices.SortFunc(all, func(a, b *task) int { return int(a.offered - b.offered) })
	to := all[pick%len(all)]
	t := d.t
	t.key, t.lane, t.typ, t.domain, t.notBefore, t.ready = to.bundle.place.key, to.bundle.place.lane, to.typ, to.domain, 0, clockNow()
	if w.big {
		t.cost = 2
	}
	if w.limits > 0 && t.tokens > 0 {
		t.tokens = 5 + int64(pick%3)
	}
	d = w.compose(t)
	w.mu.Unlock()
	w.offerDrafts(t.lane.Tenant, []*draft{d})
}

// least returns what a digest costs without the members that have left it since it was decided about; nil if that is the same.
func (j *judge) least(t *task, c codex) map[string]int64 {
	if t.bundle == nil {
		return nil
	}
	left := *t
	left.measure()
	if left.cost == t.cost && left.tokens == t.tokens {
		return nil
	}
	of := make(map[string]int64)
	for _, charge := range c.charges(&left) {
		of[charge.scope] = charge.cost
	}
	return of
}
