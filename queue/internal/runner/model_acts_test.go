package runner

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A scene says what happens in a world, and how often.
type scene struct {
	name    string
	acts    []act
	gap     time.Duration // the longest time between two acts, as a rule
	contest bool          // tenants that always have something due, see contest
	lasts   time.Duration // of the handlers of a contest
}

// An act is an operation, and how often it happens.
type act struct {
	often int
	do    func(w *world)
}

var (
	producers = []act{{30, (*world).offer}, {2, (*world).burst}}
	operators = []act{{8, (*world).pause}, {4, (*world).resume}, {6, (*world).change}, {6, (*world).override}, {6, (*world).cancel}, {3, (*world).purge}, {3, (*world).revive}, {3, (*world).addUp}}
	fleet1    = []act{{1, (*world).join}, {1, (*world).leave}}
	takeovers = []act{{1, (*world).takeOver}}
	faults    = []act{
		{2, (*world).kill}, {2, (*world).hold}, {2, (*world).cut}, {2, (*world).depose}, {8, (*world).setTrap}, {2, (*world).join}, {1, (*world).leave},
	}
	rests  = []act{{2, (*world).rest}}
	losses = []act{{1, (*world).kill}, {1, (*world).olderPolicies}}
	clocks = []act{{5, (*world).stepWorker}, {3, (*world).suspendMachine}, {2, (*world).stepRedis}}
	keys   = []act{{3, (*world).loseState}, {3, (*world).loseLane}}
)

var scenes = []scene{
	{name: "operators", acts: slices.Concat(producers, operators, takeovers), gap: 100 * time.Millisecond},
	{name: "faults", acts: slices.Concat(producers, operators, faults, rests), gap: 200 * time.Millisecond},
	{name: "contest", acts: storm, gap: 300 * time.Millisecond, contest: true, lasts: 50 * time.Millisecond},
	{name: "operators and refusals", acts: slices.Concat(producers, operators, fleet1, refusals), gap: 100 * time.Millisecond},
	{name: "clocks", acts: slices.Concat(producers, operators, clocks, rests), gap: 300 * time.Millisecond},
	{name: "keys", acts: slices.Concat(producers, operators, keys, losses, rests), gap: 150 * time.Millisecond},
}

// play plays a world to its end.
func (w *world) play() {
	if w.scene.contest {
		w.contest()
		return
	}
	all := 0
	for _, a := range w.scene.acts {
		all += a.often
	}
	for range perWorld {
		if w.over() {
			return
		}
		n := w.IntN(all)
		for _, a := range w.scene.acts {
			if n -= a.often; n < 0 {
				a.do(w)
				break
			}
		}
		w.pass(w.between())
	}
	w.settle()
}

// over reports whether a difference was found.
func (w *world) over() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.op++
	return len(w.wrong) > 0
}

// between returns how long nothing is done: nothing at all, or some time.
func (w *world) between() time.Duration {
	switch p := w.IntN(100); {
	case p < 25:
		return 0
	case p < 60:
		return time.Duration(w.IntN(10_000)) * time.Microsecond
	case p < 98:
		return time.Duration(w.Int64N(int64(w.scene.gap)))
	}
	return time.Duration(w.IntN(4000)) * time.Millisecond
}

// pass lets time pass, while the judge watches.
func (w *world) pass(d time.Duration) {
	for {
		step := min(d, 100*time.Millisecond)
		time.Sleep(step)
		w.setAgain()
		w.mu.Lock()
		w.judge.watch()
		w.mu.Unlock()
		if d -= step; d <= 0 {
			return
		}
	}
}

func (w *world) tenant() string { return fmt.Sprint("t", w.IntN(w.tenants)) }
func (w *world) user() string   { return fmt.Sprint("u", w.IntN(w.users)) }

func oneOf[T any](w *world, of ...T) T { return of[w.IntN(len(of))] }

// codex draws policies.
func (w *world) codex() (c codex) {
	if w.chance(4) {
		c.queue = w.code(10)
	}
	for range w.tenants {
		tenant, user := code{}, code{}
		if w.chance(2) {
			tenant = w.code(4)
		}
		if !w.chance(3) {
			user = w.code(1)
		}
		c.tenants, c.users, c.weights = append(c.tenants, tenant), append(c.users, w.bounded(user)), append(c.weights, 1+w.IntN(3))
		c.digests = append(c.digests, w.terms())
	}
	c.named = w.nameLimits()
	return c
}

// code draws what limits a subject: more, the larger it is.
func (w *world) code(size int64) (c code) {
	for range 1 + w.IntN(2) {
		n := norm{kind: oneOf(w, rules.Window, rules.Window, rules.Spacing, rules.Leak, rules.TokenBucket, rules.FixedWindow), n: 1}
		if slices.ContainsFunc(c.norms, func(o norm) bool { return o.kind == n.kind }) {
			continue
		}
		switch n.kind {
		case rules.Window, rules.FixedWindow:
			n.n, n.period = size*(1+w.Int64N(4)), oneOf[int64](w, 300_000, 1_000_000, 2_000_000, 10_000_000)
		case rules.Spacing:
			n.period = oneOf[int64](w, 20_000, 100_000, 1_000_000, 5_000_000) / size
		default:
			n.n, n.period = size*(1+w.Int64N(20)), 1_000_000
		}
		if n.kind == rules.Leak && w.chance(2) {
			n.ramp = oneOf[int64](w, 1_000_000, 2_000_000, 4_000_000)
		}
		if n.kind == rules.TokenBucket {
			n.burst = 1 + w.Int64N(5)*size
		}
		c.norms = append(c.norms, n)
	}
	if w.chance(4) {
		c.most = 1 + w.IntN(3*int(size))
	}
	return c
}

// A draft is a job that is about to be offered.
type draft struct {
	t   *task
	job store.OfferJob
	env envelope.Envelope
}

// draw draws a job.
func (w *world) draw(tenant, user, key string) *draft {
	w.drawn++
	now := clockNow()
	t := &task{
		name: fmt.Sprint("j", w.drawn), cost: 1, attempts: 1 + w.IntN(4), plain: true, offered: now,
		lane: envelope.Lane{Tenant: tenant, User: user, Priority: oneOf(w, 0, 1, 1, 1, 2)},
	}
	if w.big && w.chance(5) {
		t.cost = 2
	}
	if w.scene.contest {
		t.lane.Priority = envelope.Normal
	} else {
		switch w.IntN(12) {
		case 0:
			t.deadline = now + w.Int64N(4_000_000)
		case 1:
			t.notBefore, t.plain = now+w.Int64N(2_000_000), false
		case 2:
			t.collapse, t.plain = oneOf(w, "a", "b"), false
		}
	}
	if w.chance(2) && (!w.scene.contest || tenant == bystander) { // miniredis looks at all keys that expire, again and again
		t.id = t.name
	}
	t.ready = max(now, t.notBefore)
	w.subject(t)
	w.digested(t, key)
	return w.compose(t)
}

// compose returns a job as it is offered.
func (w *world) compose(t *task) *draft {
	shift := w.offset.Microseconds()
	e := envelope.Envelope{
		ID: t.id, Cost: int(t.cost), MaxAttempts: t.attempts, Priority: t.lane.Priority, CollapseKey: t.collapse, DigestKey: t.key, Type: t.typ, Payload: t.name,
	}
	if t.domain != "" {
		e.Keys = map[string]string{"domain": t.domain}
	}
	if t.tokens >= 0 {
		e.Costs = map[string]int{"tokens": int(t.tokens)}
	}
	o := store.OfferJob{Lane: t.lane, ID: t.id, IDFor: store.IDMemory, Collapse: t.collapse}
	if t.notBefore > 0 {
		o.NotBefore = t.notBefore + shift
	}
	if t.deadline > 0 {
		e.Deadline = t.deadline + shift
	}
	e.NotBefore = o.NotBefore
	if t.key != "" {
		o.Digest, o.Costs = t.key, e.Costing()
	}
	o.Body = e.Body()
	return &draft{t, o, e}
}

// enlist gives jobs the lanes that they have under the policies in force, and leaves out those that are invalid, as a client
// does.
func (w *world) enlist(drafts []*draft) (valid []*draft) {
	c := w.judge.codex
	in := c.policies(w.version, 0)
	for _, d := range drafts {
		var err error
		if in.Named != nil {
			_, _, err = in.Named.Job(nil, d.t.lane, &d.env)
		}
		if invalid := c.invalid(d.t); invalid != (err != nil) {
			w.fail(d.t.lane.Tenant, d.t.lane.User, "%s is invalid: %v; by the engine: %v", d.t, invalid, err)
		}
		if err != nil {
			continue
		}
		d.t.lane.Label, d.job.Lane.Label = c.label(d.t), in.Label(d.t.lane, &d.env)
		if d.t.lane.Label != d.job.Lane.Label {
			w.fail(d.t.lane.Tenant, d.t.lane.User, "%s has the label %q, want %q", d.t, d.job.Lane.Label, d.t.lane.Label)
		}
		if d.t.key != "" {
			d.t.terms = c.termsOf(d.t.lane.Tenant)
			d.job.Terms = store.DigestTerms{Max: cmp.Or(d.t.terms.most, 100), Wait: d.t.terms.wait, Idle: d.t.terms.idle}
		}
		valid = append(valid, d)
	}
	return valid
}

func (w *world) offer() { w.offerTo(w.tenant(), w.user(), 1+w.IntN(4)) }

func (w *world) burst() { w.offerTo(w.tenant(), w.user(), 10+w.IntN(20)) }

// offerTo offers jobs, of several users of the tenant if there are more than three.
func (w *world) offerTo(tenant, user string, n int) {
	w.mu.Lock()
	key := w.digestKey()
	var drafts []*draft
	for range n {
		if n > 3 && !w.scene.contest {
			user = w.user()
		}
		drafts = append(drafts, w.draw(tenant, user, key))
	}
	w.mu.Unlock()
	w.offerDrafts(tenant, drafts)
}

func (w *world) offerDrafts(tenant string, drafts []*draft) {
	w.offering <- struct{}{} // receipts are taken in in the order of the offers
	defer func() { <-w.offering }()
	o := store.Offer{Batch: drafts[0].t.name, Keep: time.Minute, Tenants: []store.OfferTenant{{Name: tenant}}}
	var reply store.OfferReply
	var crowds map[string]int
	err := store.ErrStale
	for errors.Is(err, store.ErrStale) { // a client offers anew, too
		w.mu.Lock()
		w.judge.withdraw(drafts)
		w.inForce()
		drafts = w.enlist(drafts)
		o.Policies, o.Jobs, o.Subjects = w.version, nil, nil
		for _, d := range drafts {
			d.bound(&o, w.judge.codex)
			o.Jobs = append(o.Jobs, d.job)
		}
		crowds = w.judge.crowds(o)
		w.judge.expect(drafts)
		w.mu.Unlock()
		if len(drafts) == 0 {
			return
		}
		reply, err = w.store.Offer(w.ctx(), o)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.fail(tenant, "", "an offer fails: %v", err)
		return
	}
	for i, d := range drafts {
		w.judge.checkRoom(d, o, reply.Receipts[i], crowds)
		w.judge.accepted(d.t, reply.Receipts[i])
	}
}

// pauseScope draws somebody to be paused: the queue seldom, and sometimes somebody who has nothing.
func (w *world) pauseScope() string {
	if scope := w.limitScope(); scope != "" && w.chance(3) {
		return scope
	}
	switch w.IntN(10) {
	case 0:
		return envelope.QueueScope
	case 1, 2, 3:
		return envelope.TenantScope(w.tenant())
	case 4:
		return envelope.TenantScope("nobody")
	}
	return envelope.UserScope(w.tenant(), w.user())
}

func (w *world) pause() {
	scope, d := w.pauseScope(), time.Duration(50+w.IntN(2000))*time.Millisecond
	if scope == envelope.QueueScope {
		d /= 3
	}
	w.pauseFor(scope, d)
}

func (w *world) pauseFor(scope string, d time.Duration) {
	w.pausing <- struct{}{} // of two at one instant nobody could say which Redis did last
	defer func() { <-w.pausing }()
	until := w.redisNow() + d.Microseconds()
	if d == 0 {
		until = 0
	}
	if d == 0 { // what waits may start before this returns
		w.mu.Lock()
		w.judge.pause(scope, until, true)
		w.mu.Unlock()
	}
	if err := w.store.Pause(w.ctx(), scope, until, store.Note{}); err != nil {
		w.t.Errorf("%s: %v", w.name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.pause(scope, until-w.offset.Microseconds(), true)
	tenant, user := envelope.ParseScope(scope)
	w.noteLocked(tenant, user, "PAUSE %s for %v", scope, d)
}

func (w *world) resume() {
	w.mu.Lock()
	scopes := slices.Sorted(maps.Keys(w.judge.paused))
	w.mu.Unlock()
	scopes = append(scopes, w.pauseScope())
	w.pauseFor(scopes[w.IntN(len(scopes))], 0)
}

// change puts policies in force that differ in one place.
func (w *world) change() {
	w.mu.Lock()
	c := w.judge.codex
	w.mu.Unlock()
	c = cloneOf(c)
	i := w.IntN(len(c.tenants))
	if w.limits > 0 && w.chance(3) {
		before := c
		c.named = w.changeLimits(c.named)
		c.tidy(before)
		w.govern(c)
		return
	}
	switch w.IntN(10) {
	case 0:
		c.queue = oneOf(w, code{}, w.code(10))
	case 1, 2:
		c.tenants[i] = oneOf(w, code{}, w.code(4), w.code(4))
	case 3, 4, 5:
		c.users[i] = w.bounded(oneOf(w, code{}, w.code(1), w.code(1)))
	case 6:
		c.weights[i] = 1 + w.IntN(3)
	case 7:
		c.tenants[i].most = oneOf(w, 0, 1, 4)
	default:
		c.digests[i] = w.terms()
	}
	w.govern(c)
}

// cancel cancels a job with an ID.
func (w *world) cancel() {
	if t := w.pickTask(func(t *task) bool { return t.id != "" && !t.over() }); t != nil {
		w.cancelTask(t)
	}
}

func (w *world) cancelTask(t *task) {
	w.mu.Lock()
	w.judge.cancelling[t.id] = true
	w.mu.Unlock()
	was, err := w.store.Cancel(w.ctx(), t.id)
	if err != nil {
		w.t.Errorf("%s: %v", w.name, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, err := envelope.ParseLane(was); err == nil {
		t.cancelled = clockNow()
	}
	w.noteLocked(t.lane.Tenant, t.lane.User, "CANCEL %s: it was %q", t, was)
}

func (w *world) pickTask(fits func(t *task) bool) *task {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []*task
	for _, t := range w.judge.tasks {
		if fits(t) {
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b *task) int { return strings.Compare(a.stamp, b.stamp) })
	return all[w.IntN(len(all))]
}

func (w *world) purge() { w.purgeOf(w.tenant()) }

func (w *world) purgeOf(tenant string) {
	w.mu.Lock()
	before := clockNow() - 50_000
	var found []*task
	for lane, tasks := range w.judge.lanes {
		for _, t := range tasks {
			if lane.Tenant == tenant && t.state == waits && t.ready < before {
				found = append(found, t)
			}
		}
	}
	w.noteLocked(tenant, "", "PURGE finds %d", len(found))
	w.mu.Unlock()
	for range 100 {
		if _, empty, err := w.store.Purge(w.ctx(), tenant, 200, store.Note{}); err != nil || empty {
			break
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge.read()
	for _, t := range found {
		if t.state == waits {
			t.purged = clockNow()
		}
	}
}

// revive takes some of the dead back.
func (w *world) revive() {
	found, err := w.store.Dead(w.ctx(), "", 1+w.IntN(3))
	if err != nil || len(found) == 0 {
		return
	}
	var entries []string
	w.mu.Lock()
	w.judge.read()
	for _, r := range found {
		entries = append(entries, r.Entry)
		if t, _ := w.judge.dated(r.Job); t != nil && t.state == dead {
			w.judge.revived(t)
		}
	}
	w.mu.Unlock()
	if _, err := w.store.Revive(w.ctx(), entries); err != nil && w.scene.name != "keys" {
		w.t.Errorf("%s: %v", w.name, err)
		for _, r := range found {
			w.mu.Lock()
			w.fail(r.Lane.Tenant, r.Lane.User, "XXX %q %q", r.Job, r.Error)
			w.mu.Unlock()
		}
	}
}
