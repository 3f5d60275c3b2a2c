package schedule_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// randomRules returns rules of random kinds, compiled and by their definitions.
func (m *model) randomRules(most int) (*rules.Set, []limit) {
	var rs []rules.Rule
	var limits []limit
	if m.chance(8) {
		l := limit{kind: rules.Hours, n: 1 + m.Int64N(3), drop: m.chance(8)}
		rule := closedFor(l.n)
		rule.Drop = l.drop
		limits, rs = append(limits, l), append(rs, rule)
	}
	for range m.IntN(most + 1) {
		l := limit{
			kind: pick(m, rules.Leak, rules.Window, rules.Spacing, rules.FixedWindow, rules.TokenBucket),
			n:    pick[int64](m, 1, 2, 5, 10), period: pick[int64](m, 10_000, 50_000, 200_000, 1_000_000, 3_000_000),
		}
		switch l.kind {
		case rules.Spacing:
			l.n = 1
		case rules.TokenBucket:
			l.burst = pick[int64](m, 1, 2, 4, 8)
		case rules.Window, rules.FixedWindow:
			l.drop = m.chance(8)
		}
		limits = append(limits, l)
		rs = append(rs, rules.Rule{
			Kind: l.kind, Limit: int(l.n), Period: time.Duration(l.period) * time.Microsecond, Burst: int(l.burst), Drop: l.drop,
		})
	}
	return rules.Compile(schedule.Grace*time.Microsecond, rs...), limits
}

// govern puts other policies in force. Overrides stay, but for those of limits by name that count other things by now.
func (m *model) govern() {
	var queue, tenant, user bounds
	m.policy = schedule.Policy{Name: "p", Weight: m.IntN(3)}
	if m.chance(3) {
		queue.set, queue.limits = m.randomRules(2)
	}
	tenant.set, tenant.limits = m.randomRules(2)
	user.set, user.limits = m.randomRules(3)
	if m.chance(3) {
		m.policy.MaxWait = int64(1 + m.IntN(5_000_000))
	}
	m.nameLimits()
	if m.chance(2) {
		queue.concurrency, tenant.concurrency, user.concurrency = m.concurrency(), m.concurrency(), m.concurrency()
	}
	m.base, m.maxWait = map[byte]bounds{'q': queue, 't': tenant, 'u': user}, m.policy.MaxWait
	m.policy.Tenant, m.policy.TenantConcurrency, m.policy.User, m.policy.UserConcurrency = tenant.set, tenant.concurrency, user.set, user.concurrency
	m.rules = func(scope string) []limit { return m.boundsOf(scope).limits }
	m.enact(slices.Collect(maps.Keys(m.ledgers))...)
	m.note("policies: %s", m.law)
}

// restartScheduler lets a new leader lead, which knows what was written.
func (m *model) restartScheduler() {
	m.stale, m.seen, m.replies, m.refused = map[envelope.Lane]bool{}, map[string]bool{}, nil, nil
	m.s = schedule.New(m.settings(), m.state(envelope.QueueScope))
	m.recount()
}

func (m *model) settings() schedule.Settings {
	return schedule.Settings{Policies: m.policies, Paused: maps.Clone(m.paused), Cancelled: slices.Collect(maps.Keys(m.dead))}
}

// refresh tells the scheduler what people have decided.
func (m *model) refresh() {
	m.s.Step(m.now, m.settings())
	m.recount()
}

// depose lets another worker lead, which opens all notices again whose effects nobody
// has committed.
func (m *model) depose() {
	m.note("another leader")
	m.read = m.kept
	m.restartScheduler()
}

// offer puts jobs at the end of a lane.
func (m *model) offer() {
	user := envelope.Lane{Tenant: fmt.Sprint("t", m.IntN(m.size[0])), User: fmt.Sprint("u", m.IntN(m.size[1])), Priority: m.IntN(3)}
	for range 1 + m.IntN(1+m.IntN(4)) {
		m.ids++
		m.now++
		env := &envelope.Envelope{
			Stamp: fmt.Sprintf("%013x", m.now), ID: fmt.Sprint("j", m.ids), Cost: max(1, m.IntN(6)-2), MaxAttempts: 3, Priority: user.Priority, Type: "x",
		}
		if m.chance(8) {
			env.Deadline = m.now + m.Int64N(2_000_000)
		}
		m.subject(env)
		lane := user
		lane.Label = m.policies.Label(lane, env)
		t := &task{id: m.ids, lane: lane, env: env}
		m.tasks = append(m.tasks, t)
		m.note("offer %d to %s, cost %d", t.id, lane.Name(), env.Cost)
		m.lanes[lane] = append(m.lanes[lane], t)
		if len(m.lanes[lane]) == 1 {
			if _, there := m.tenants[lane.Tenant]; there { // the index of tenants keeps what it has
				defer func(at int64) { m.tenants[lane.Tenant] = at }(m.tenants[lane.Tenant])
			}
			in := m.due[index(lane)]
			delete(in, lane.Member())
			m.notes(lane, m.now)
			m.notices = append(m.notices, notice{lane, t.entry()})
		}
	}
}

func headOf(t *task) schedule.Head {
	env, err := envelope.Open(t.entry())
	return schedule.Head{Entry: t.entry(), Job: t.entry(), Env: env, Err: err}
}

// open opens some notices.
func (m *model) open() {
	m.hear()
	for m.read < len(m.notices) && !m.chance(m.listens) {
		n := m.notices[m.read]
		m.read++
		env, err := envelope.Open(n.entry)
		if lane := m.lanes[n.lane]; (len(lane) == 0 || lane[0].entry() != n.entry) && !m.seen[env.Stamp] {
			m.stale[n.lane] = true
		}
		m.s.Step(m.now, schedule.First{Lane: n.lane, Head: schedule.Head{Entry: n.entry, Job: n.entry, Env: env, Err: err}})
	}
}

// hire makes the places that the next decisions have.
func (m *model) hire() {
	m.places, m.reach = fleet{}, 0
	m.staff()
	n := pick(m, 0, 1, 3, 100, 100)
	for i := range 1 + m.IntN(3) {
		p := &schedule.Place{Worker: fmt.Sprint("w", i)}
		if m.far && m.chance(2) {
			p.Ahead, p.Spread = m.Int64N(farthest), m.Int64N(30_000)
		}
		m.places.all = append(m.places.all, p)
		m.reach = max(m.reach, p.Ahead+p.Spread)
		m.world.reached = max(m.world.reached, m.reach)
	}
	for range n {
		m.places.places = append(m.places.places, m.places.all[m.IntN(len(m.places.all))])
	}
}

// end lets a running job end, fail, be returned, or be late.
func (m *model) end() {
	var running []*task
	for _, t := range m.tasks {
		if t.running {
			running = append(running, t)
		}
	}
	if len(running) == 0 {
		return
	}
	t := running[m.IntN(len(running))]
	m.knows(t)
	what := m.IntN(6)
	if t.spent > m.now {
		what = 3 // nothing else happens to a job before its slot
	}
	switch what {
	case 0, 1:
		m.note("%d is done", t.id)
		m.over1(t)
		t.running, t.over = false, true
		m.finish(t)
	case 2:
		m.note("%d fails", t.id)
		t.running, t.env.Ready = false, m.now+m.Int64N(1_000_000)
		t.env.Failures++
		m.finish(t)
		m.later = append(m.later, t)
		if m.chance(2) {
			m.note("  and its user has seen nothing of it")
			m.s.Step(m.now, schedule.Refunded{Claim: t.claim, Env: t.env})
			m.unspend(t, false)
			m.sooner(t.lane)
			m.amend()
		}
	default:
		m.note("%d is returned", t.id)
		if t.env.Late = 0; m.far && m.chance(2) {
			t.env.Late = m.Int64N(50_000)
		}
		m.s.Step(m.now, schedule.Refunded{Claim: t.claim, Env: t.env, All: true})
		m.unspend(t, true)
		m.back(t)
		m.amend()
	}
}

// sooner lowers the bounds of a user's lanes.
func (m *model) sooner(l envelope.Lane) {
	l.Label = "" // as the leader does, who does not know the others
	for l.Priority = range 3 {
		if _, there := m.due[index(l)][l.Member()]; there {
			lower(m.due[index(l)], l.Member(), m.now)
		}
	}
}

// back puts a job to the front of its lane.
func (m *model) back(t *task) {
	if t.running {
		m.s.Step(m.now, schedule.Ended{t.claim})
	}
	t.running, t.returned = false, true
	m.lanes[t.lane] = slices.Insert(m.lanes[t.lane], 0, t)
	m.notes(t.lane, m.now)
	m.sooner(t.lane)
	m.s.Step(m.now, schedule.Returned{Lane: t.lane})
}

// mature puts jobs whose time has come into their lanes.
func (m *model) mature() {
	ripe := slices.DeleteFunc(slices.Clone(m.later), func(t *task) bool { return t.env.Ready > m.now })
	m.later = slices.DeleteFunc(m.later, func(t *task) bool { return t.env.Ready <= m.now })
	for _, t := range ripe {
		m.note("%d is ready again", t.id)
		if m.chance(2) {
			m.back(t)
			continue
		}
		t.returned = true
		m.lanes[t.lane] = append(m.lanes[t.lane], t)
		m.notes(t.lane, m.now)
		m.s.Step(m.now, schedule.Changed{Lane: t.lane})
	}
}

func (m *model) cancel() {
	if len(m.tasks) == 0 {
		return
	}
	t := m.tasks[m.IntN(len(m.tasks))]
	if t.running {
		return
	}
	m.note("cancel %d", t.id)
	m.dead[t.env.ID] = true
	switch m.IntN(3) {
	case 0:
		m.s.Step(m.now, schedule.IDCancelled{ID: t.env.ID})
	case 1:
		m.refresh()
	default:
		m.restartScheduler()
	}
}

func (m *model) pause() {
	scopes := scopesOf(envelope.Lane{Tenant: fmt.Sprint("t", m.IntN(m.size[0])), User: fmt.Sprint("u", m.IntN(m.size[1]))})
	scope := scopes[m.IntN(3)]
	if known := slices.Sorted(maps.Keys(m.ledgers)); len(m.named) > 0 && m.chance(2) && len(known) > 0 && strings.HasPrefix(known[0], envelope.LimitScope) {
		scope = known[0]
	}
	until := m.now + m.Int64N(2)*m.Int64N(1_000_000)
	m.note("pause %s for %d", scope, until-m.now)
	m.paused[scope] = until
	switch m.IntN(3) {
	case 0:
		m.s.Step(m.now, schedule.Paused{Scope: scope, Until: until})
	case 1:
		m.refresh()
	default:
		m.restartScheduler()
	}
}

// trim drops the first job of a lane to make room.
func (m *model) trim() {
	byName := func(a, b envelope.Lane) int { return strings.Compare(a.Name(), b.Name()) }
	for _, lane := range slices.SortedFunc(maps.Keys(m.lanes), byName) {
		jobs := m.lanes[lane]
		if len(jobs) == 0 || m.chance(2) {
			continue
		}
		m.note("the first of %s makes room", lane.Name())
		m.now++ // no job is offered at the instant at which another leaves
		m.over1(jobs[0])
		delete(m.dead, jobs[0].env.ID)
		m.lanes[lane] = jobs[1:]
		m.seen[jobs[0].env.Stamp] = true
		m.sooner(lane)
		m.s.Step(m.now, schedule.Changed{Lane: lane})
		return
	}
}

// forgetTenants lets the scheduler forget tenants, and Redis those without lanes.
func (m *model) forgetTenants() {
	for _, name := range m.s.Rest() {
		clear(m.seen) // it has forgotten some
		empty := true
		for p := range 3 {
			empty = empty && len(m.due[fmt.Sprint(name, " ", p)]) == 0
		}
		if empty {
			delete(m.tenants, name)
		}
	}
}

// sweep lowers the bounds of one tenant after a change of policies.
func (m *model) sweep() {
	if len(m.unswept) == 0 {
		return
	}
	name := m.unswept[0]
	m.unswept = m.unswept[1:]
	changed := false
	for p := range 3 {
		for user, at := range m.due[fmt.Sprint(name, " ", p)] {
			if at > m.now {
				m.due[fmt.Sprint(name, " ", p)][user] = m.now
				changed = true
			}
		}
	}
	if changed {
		m.note("sweep %s", name)
		m.s.Step(m.now, schedule.Lowered{Tenant: name})
	}
	if m.chance(4) {
		m.note("%s is read again", name)
		m.s.Step(m.now, schedule.Replaced{Tenant: name})
	}
}

// drain lets everything run to its end: nothing may be left.
func (m *model) drain() {
	m.closed = true
	for scope := range m.paused {
		m.paused[scope] = 0
	}
	for len(m.unswept) > 0 {
		m.sweep()
	}
	m.depose()
	for range 5000 {
		if m.err != nil {
			return
		}
		m.run()
		waiting := len(m.later)
		for _, jobs := range m.lanes {
			waiting += len(jobs)
		}
		if waiting == 0 {
			return
		}
		m.now += 500_000
		m.mature()
		m.endAll()
	}
	m.fail(fmt.Errorf("jobs are left that never start"))
}
