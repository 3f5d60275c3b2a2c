package schedule_test

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

var (
	modelSeed  = flag.Uint64("schedule.seed", 0, "seed of the model test; 0 for a new one each time")
	modelSteps = flag.Int("schedule.steps", 20_000, "steps of the model test")
)

// TestModel does random things to a scheduler and to a plain model of a queue
// (world_test.go), and compares them after every step.
func TestModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("go test -run TestModel -schedule.seed %d -schedule.steps %d", seed, *modelSteps)
	const perWorld = 400
	for round := 0; round*perWorld < *modelSteps; round++ {
		m := newModel(rand.New(rand.NewPCG(seed, uint64(round))))
		for range perWorld {
			m.step()
		}
		m.drain()
		if m.err != nil {
			t.Fatalf("world %d: %v; under %s; after:\n%s", round, m.err, m.law, strings.Join(m.done[max(0, len(m.done)-60):], "\n"))
		}
	}
}

// A model is a scheduler with the Redis that it knows, and a world in step with them.
type model struct {
	*rand.Rand
	*world
	s    *schedule.Scheduler
	err  error // the first that was found
	done []string

	policies *schedule.Policies
	law      string                      // the same, for people
	due      map[string]map[string]int64 // tenant and priority → user → bound
	tenants  map[string]int64
	states   map[string]state
	mail     []notice
	read     int                    // letters that were opened
	kept     int                    // letters whose effects were committed
	stale    map[envelope.Lane]bool // of which a letter told what was so no longer
	unswept  []string
	later    []*task
	tasks    []*task // all that are not over
	ids      int
	size     [2]int // tenants, users
	far      bool   // workers that are far away
	changing bool
	places   fleet
	asked    bool                // the last plan asked for the heads of lanes
	most     func(scope int) int // how many run at once of a queue, a tenant, a user
	size100  int                 // places of the fleet
	finished []ended             // claims of whose end the leader has not heard
	heard    []string
}

type state struct {
	text  string
	until int64
}

type notice struct {
	lane  envelope.Lane
	entry string
}

// A fleet hands out places as it was told.
type fleet struct {
	places []*schedule.Place
	all    []*schedule.Place
}

func (f *fleet) Next() *schedule.Place {
	if len(f.places) == 0 {
		return nil
	}
	return f.places[0]
}

func newModel(r *rand.Rand) *model {
	m := &model{
		Rand: r, due: map[string]map[string]int64{}, tenants: map[string]int64{}, states: map[string]state{},
		size: [2]int{1 + r.IntN(3), 1 + r.IntN(4)}, far: r.IntN(4) == 0, changing: r.IntN(3) == 0,
	}
	switch r.IntN(12) {
	case 0:
		m.size = [2]int{1, 200}
	case 1:
		m.size = [2]int{300, 1}
	}
	m.world = &world{
		now: 1_763_600_000_000_000 + r.Int64N(1_000_000), ledgers: map[string]*ledger{}, lanes: map[envelope.Lane][]*task{},
		paused: map[string]int64{}, dead: map[string]bool{}, last: map[envelope.Lane]string{}, slots: map[envelope.Lane]int64{},
	}
	m.size100 = 10
	m.govern()
	m.restartScheduler()
	return m
}

func (m *model) note(format string, args ...any) {
	if len(m.done) > 900 {
		m.done = slices.Delete(m.done, 0, 400)
	}
	m.done = append(m.done, fmt.Sprintf("%d.%06d ", m.now/1_000_000%1000, m.now%1_000_000)+fmt.Sprintf(format, args...))
}

// fail keeps the first thing that is wrong.
func (m *model) fail(err error) bool {
	if err != nil && m.err == nil {
		m.err = err
		m.note("WRONG: %v", err)
	}
	return m.err != nil
}

func (m *model) chance(n int) bool { return m.IntN(n) == 0 }

func pick[T any](m *model, of ...T) T { return of[m.IntN(len(of))] }

// randomRules returns rules of random kinds, compiled and by their definitions.
func (m *model) randomRules(most int) (*rules.Set, []limit) {
	var rs []rules.Rule
	var limits []limit
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

// govern puts other policies in force.
func (m *model) govern() {
	var queue, tenant, user []limit
	p := &schedule.Policies{Default: "p", Version: m.now}
	policy := schedule.Policy{Name: "p", Weight: m.IntN(3)}
	if m.chance(3) {
		p.Queue, queue = m.randomRules(2)
	}
	policy.Tenant, tenant = m.randomRules(2)
	policy.User, user = m.randomRules(3)
	if m.chance(3) {
		policy.MaxWait = int64(1 + m.IntN(5_000_000))
	}
	m.limitRunning(p, &policy)
	p.Policies = map[string]schedule.Policy{"p": policy}
	m.policies, m.maxWait = p, policy.MaxWait
	m.rules = func(scope string) []limit {
		switch scope[0] {
		case 'q':
			return queue
		case 't':
			return tenant
		}
		return user
	}
	for scope, led := range m.ledgers {
		led.limits, led.since, led.era, led.vague = m.rules(scope), m.now, led.era+1, true
	}
	m.unswept = slices.Sorted(maps.Keys(m.tenants))
	m.law = fmt.Sprintf("queue %v %v, tenants %v %v, users %v %v, at most %d µs",
		queue, p.QueueConcurrency, tenant, policy.TenantConcurrency, user, policy.UserConcurrency, policy.MaxWait)
	m.note("policies: %s", m.law)
}

// restartScheduler lets a new leader lead, which knows what was written.
func (m *model) restartScheduler() {
	m.stale = map[envelope.Lane]bool{}
	m.s = schedule.New(schedule.Facts{
		Policies: m.policies, Paused: maps.Clone(m.paused), Cancelled: slices.Collect(maps.Keys(m.dead)), Queue: m.state(envelope.QueueScope),
	})
	m.recount()
}

// depose lets another worker lead, which opens all letters again whose effects nobody
// has committed.
func (m *model) depose() {
	m.note("another leader")
	m.read = m.kept
	m.restartScheduler()
}

func (m *model) state(scope string) string {
	st := m.states[scope]
	if st.until <= m.now {
		delete(m.states, scope)
		return ""
	}
	return st.text
}

// step does one random thing.
func (m *model) step() {
	if m.err != nil {
		return
	}
	switch p := m.IntN(100); {
	case p < 30:
		m.offer()
	case p < 60:
		m.run()
	case p < 72:
		m.end()
	case p < 74:
		m.cancel()
	case p < 77:
		m.pause()
	case p < 79:
		m.trim()
	case p < 80:
		m.depose()
	case p < 81:
		m.forgetTenants()
		m.recount()
	case p < 82 && m.changing:
		m.govern()
		m.depose()
	case p < 86:
		m.sweep()
	default:
		m.now += m.Int64N(pick[int64](m, 1000, 30_000, 400_000, 1_000_000))
	}
	m.now += m.Int64N(100)
	m.mature()
	for _, led := range m.ledgers {
		led.forget(m.now)
	}
}

func index(l envelope.Lane) string { return fmt.Sprint(l.Tenant, " ", l.Priority) }

// notes puts a lane into its index, or lowers its bound there.
func (m *model) notes(l envelope.Lane, at int64) {
	in := m.due[index(l)]
	if in == nil {
		in = map[string]int64{}
		m.due[index(l)] = in
	}
	lower(in, l.User, at)
	lower(m.tenants, l.Tenant, at)
}

func lower(of map[string]int64, name string, at int64) {
	if before, there := of[name]; !there || at < before {
		of[name] = at
	}
}

// offer puts jobs at the end of a lane.
func (m *model) offer() {
	lane := envelope.Lane{Tenant: fmt.Sprint("t", m.IntN(m.size[0])), User: fmt.Sprint("u", m.IntN(m.size[1])), Priority: m.IntN(3)}
	for range 1 + m.IntN(1+m.IntN(4)) {
		m.ids++
		m.now++
		env := &envelope.Envelope{
			Stamp: fmt.Sprintf("%013x", m.now), ID: fmt.Sprint("j", m.ids), Cost: max(1, m.IntN(6)-2), MaxAttempts: 3, Priority: lane.Priority, Type: "x",
		}
		if m.chance(8) {
			env.Deadline = m.now + m.Int64N(2_000_000)
		}
		t := &task{id: m.ids, lane: lane, env: env}
		m.tasks = append(m.tasks, t)
		m.note("offer %d to %s, cost %d", t.id, lane.Name(), env.Cost)
		m.lanes[lane] = append(m.lanes[lane], t)
		if len(m.lanes[lane]) == 1 {
			if _, there := m.tenants[lane.Tenant]; there { // the index of tenants keeps what it has
				defer func(at int64) { m.tenants[lane.Tenant] = at }(m.tenants[lane.Tenant])
			}
			in := m.due[index(lane)]
			delete(in, lane.User)
			m.notes(lane, m.now)
			m.mail = append(m.mail, notice{lane, t.entry()})
		}
	}
}

func headOf(t *task) schedule.Head {
	env, err := envelope.Open(t.entry())
	return schedule.Head{Entry: t.entry(), Job: t.entry(), Env: env, Err: err}
}

// open opens some letters.
func (m *model) open() {
	m.hear()
	for m.read < len(m.mail) && !m.chance(10) {
		n := m.mail[m.read]
		m.read++
		if lane := m.lanes[n.lane]; len(lane) == 0 || lane[0].entry() != n.entry {
			m.stale[n.lane] = true
		}
		env, err := envelope.Open(n.entry)
		m.s.Notice(n.lane, schedule.Head{Entry: n.entry, Job: n.entry, Env: env, Err: err}, m.now)
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
			p.Ahead, p.Spread = m.Int64N(60_000), m.Int64N(30_000)
		}
		m.places.all = append(m.places.all, p)
		m.reach = max(m.reach, p.Ahead)
		p.Taken = func() { m.places.places = m.places.places[1:] }
	}
	for range n {
		m.places.places = append(m.places.places, m.places.all[m.IntN(len(m.places.all))])
	}
}

// run decides and commits until there is nothing to do, as a leader does.
func (m *model) run() {
	m.hire()
	batch := pick(m, 1, 5, 100)
	for round := range 3000 {
		m.open()
		had := len(m.places.places)
		plan := m.s.Decide(m.now, &m.places, batch)
		if m.chance(300) {
			m.depose() // before the commit
			continue
		}
		states, parks, needs := m.s.States(m.now), m.s.Parks(), m.s.Needs()
		committed, err := m.commit(plan)
		if m.fail(err) {
			return
		}
		if !committed {
			continue
		}
		for _, st := range states {
			m.states[st.Scope] = state{st.Text, st.Until}
		}
		for _, p := range parks {
			if _, there := m.due[index(p.Lane)][p.Lane.User]; there {
				m.due[index(p.Lane)][p.Lane.User] = p.At
			}
		}
		m.kept = m.read
		if m.chance(300) {
			m.depose() // before the reply
			continue
		}
		m.heads(needs.Heads)
		m.s.Parked(parks)
		needs.Heads = nil
		if !needs.Empty() {
			m.answer(needs)
		}
		if len(plan.Left) > 0 || !needs.Empty() || m.pendingHeads(plan) {
			continue
		}
		if plan.Next <= m.now {
			continue
		}
		if !m.fail(m.left(plan, had)) && round > 0 && m.read == len(m.mail) {
			m.mail, m.read, m.kept = nil, 0, 0
		}
		return
	}
	m.fail(fmt.Errorf("the leader goes round without end"))
}

// pendingHeads tells whether the plan asked for something only: it says when to decide
// again, or that nothing is known.
func (m *model) pendingHeads(plan schedule.Plan) bool {
	return m.asked && plan.Next > m.now && !plan.Hungry
}

// commit applies a plan, if all is as the scheduler saw it.
func (m *model) commit(plan schedule.Plan) (bool, error) {
	seen := map[envelope.Lane]int{}
	for _, l := range plan.Left {
		lane := m.lanes[l.Lane]
		if i := seen[l.Lane]; i >= len(lane) || lane[i].env.Stamp != l.Begin {
			if !m.stale[l.Lane] {
				return false, fmt.Errorf("%s is not the next of lane %s", l.Begin, l.Lane.Name())
			}
			m.note("refused: not as the leader saw it")
			m.restartScheduler()
			return false, nil
		}
		seen[l.Lane]++
	}
	starts, drops := plan.Starts, plan.Drops
	for _, l := range plan.Left {
		t, err := m.pop(l.Lane, l.Begin)
		if err != nil {
			return false, err
		}
		if len(starts) > 0 && starts[0].Lane == l.Lane && starts[0].Head.Begin() == l.Begin {
			m.note("%d starts in %d at %s", t.id, starts[0].Slot-m.now, starts[0].Worker)
			err = m.start(t, starts[0], m.placeOf(starts[0]))
			if err == nil {
				err = m.claim(t, starts[0])
			}
			if err != nil {
				m.explain(t.lane)
			}
			starts = starts[1:]
		} else if len(drops) > 0 && drops[0].Lane == l.Lane && drops[0].Head.Begin() == l.Begin {
			m.note("%d is dropped: %s %s", t.id, drops[0].Reason, drops[0].Rule)
			err = m.drop(t, drops[0])
			if err != nil {
				m.explain(t.lane)
			}
			m.over1(t)
			drops = drops[1:]
		} else {
			err = fmt.Errorf("job %d leaves its lane for nothing", t.id)
		}
		if err != nil {
			return false, err
		}
	}
	if len(starts)+len(drops) > 0 {
		return false, fmt.Errorf("%d starts and %d drops leave no lane", len(starts), len(drops))
	}
	return true, nil
}

// explain notes what the rules of a lane go by.
func (m *model) explain(l envelope.Lane) {
	for _, scope := range scopesOf(l) {
		led := m.ledger(scope)
		for _, s := range led.paid[max(0, len(led.paid)-20):] {
			m.note("  %s: paid at %d: %+v", scope, s.at-m.now, s)
		}
		for _, s := range led.starts[max(0, len(led.starts)-20):] {
			m.note("  %s: starts at %d: %+v", scope, s.at-m.now, s)
		}
	}
}

func (m *model) placeOf(s schedule.Start) *schedule.Place {
	for _, p := range m.places.all {
		if p.Worker == s.Worker {
			return p
		}
	}
	return &schedule.Place{}
}

func (m *model) over1(t *task) {
	m.tasks = slices.DeleteFunc(m.tasks, func(o *task) bool { return o == t })
}

// heads tells the first jobs of lanes; an empty one leaves its index.
func (m *model) heads(lanes []envelope.Lane) {
	m.asked = len(lanes) > 0
	for _, lane := range lanes {
		jobs := m.lanes[lane]
		var heads []schedule.Head
		for _, t := range jobs[:min(len(jobs), 1+m.IntN(4))] {
			heads = append(heads, headOf(t))
		}
		if len(jobs) == 0 {
			delete(m.due[index(lane)], lane.User)
		}
		m.s.LearnHeads(lane, heads, m.now)
	}
}

// front returns the members of an index from a bound on, in their order.
func front(of map[string]int64, from int64, n int) []schedule.Bound {
	var found []schedule.Bound
	for name, at := range of {
		if at >= from {
			found = append(found, schedule.Bound{Name: name, At: at})
		}
	}
	slices.SortFunc(found, func(a, b schedule.Bound) int {
		return cmp.Or(cmp.Compare(a.At, b.At), strings.Compare(a.Name, b.Name))
	})
	return found[:min(n, len(found))]
}

// answer tells what is needed.
func (m *model) answer(needs schedule.Needs) {
	if needs.Tenants {
		from, n := m.s.TenantsFront()
		m.s.LearnTenants(front(m.tenants, from, n))
	}
	for _, need := range needs.Lanes {
		m.s.LearnLanes(need, front(m.due[fmt.Sprint(need.Tenant, " ", need.Priority)], need.From, need.N), m.now)
	}
	m.heads(needs.Heads)
	for _, scope := range needs.States {
		tenant, user := envelope.ParseScope(scope)
		if user != "" {
			m.s.LearnUserState(tenant, user, m.state(scope), m.now)
			continue
		}
		m.s.LearnTenantState(tenant, m.state(scope), 0, m.now)
	}
}

// left checks that a plan left nothing behind, and comes back in time.
func (m *model) left(plan schedule.Plan, places int) error {
	if plan.Hungry && places > 0 {
		return fmt.Errorf("hungry, with %d places", places)
	}
	if plan.Hungry {
		return nil
	}
	secret := map[envelope.Lane]bool{} // the scheduler has not been told of them
	for _, n := range m.mail[m.read:] {
		secret[n.lane] = true
	}
	for lane, jobs := range m.lanes {
		if len(jobs) == 0 || secret[lane] || m.full(lane) || m.vague(lane) || slices.Contains(m.unswept, lane.Tenant) {
			continue
		}
		t := jobs[0]
		slot := m.slot(t, max(m.now, m.slots[lane]), true)
		if slot < max(m.now+schedule.Lead-1000, plan.Next) && !m.blocked(t) {
			m.explain(lane)
		}
		if slot < m.now+schedule.Lead-1000 && !m.blocked(t) {
			return fmt.Errorf("job %d of %s may start in %d µs and was left behind (next in %d)", t.id, lane.Name(), slot-m.now, plan.Next-m.now)
		}
		if slot < plan.Next && !m.blocked(t) && len(m.stale) == 0 { // or it waits for a job that is not there any more, until it looks
			return fmt.Errorf("job %d may start in %d µs, and the leader sleeps for %d", t.id, slot-m.now, plan.Next-m.now)
		}
	}
	return nil
}

// knows lets the scheduler know the states of a lane.
func (m *model) knows(l envelope.Lane) {
	for range 10 {
		if m.s.Known(l) {
			return
		}
		m.answer(m.s.Needs())
	}
	m.fail(fmt.Errorf("the states of %s are told and not known", l.Name()))
}

// write commits what the rules remember.
func (m *model) write() {
	for _, st := range m.s.States(m.now) {
		m.states[st.Scope] = state{st.Text, st.Until}
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
	m.knows(t.lane)
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
			m.s.Refund(t.lane, t.spent, t.env.Cost, false, m.now)
			m.unspend(t, false)
			m.sooner(t.lane)
			m.write()
		}
	case 3:
		if t.spent != t.paid && m.chance(2) {
			return
		}
		m.note("%d is returned", t.id)
		m.s.Refund(t.lane, t.spent, t.env.Cost, true, m.now)
		m.unspend(t, true)
		m.back(t)
		m.write()
	default:
		m.late(t)
	}
}

// sooner lowers the bounds of a user's lanes.
func (m *model) sooner(l envelope.Lane) {
	for l.Priority = range 3 {
		if _, there := m.due[index(l)][l.User]; there {
			lower(m.due[index(l)], l.User, m.now)
		}
	}
}

// late asks for another slot for a job.
func (m *model) late(t *task) {
	if t.spent > m.now {
		return
	}
	to, spread := m.now, int64(0)
	if m.far {
		to, spread = m.now+m.Int64N(50_000), m.Int64N(20_000)
	}
	ok := m.s.Restart(t.lane, t.spent, to, t.env.Cost, spread)
	m.note("%d is late: %v", t.id, ok)
	m.fail(m.restart(t, to, spread, ok))
	if ok {
		m.s.Ended(t.claim, m.now)
		t.claim = envelope.ClaimName(t.env.Stamp, t.spent, envelope.ClaimSlot(t.claim), t.lane)
		m.s.Claimed(t.claim, t.lane)
	} else {
		m.back(t)
	}
	m.write()
}

// back puts a job to the front of its lane.
func (m *model) back(t *task) {
	if t.running {
		m.s.Ended(t.claim, m.now)
	}
	t.running, t.returned = false, true
	m.lanes[t.lane] = slices.Insert(m.lanes[t.lane], 0, t)
	m.notes(t.lane, m.now)
	m.sooner(t.lane)
	m.s.Returned(t.lane, m.now)
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
		m.s.Look(t.lane.Tenant, t.lane.User, m.now)
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
	if m.chance(2) {
		m.s.Cancel(t.env.ID)
	} else {
		m.restartScheduler()
	}
}

func (m *model) pause() {
	scopes := scopesOf(envelope.Lane{Tenant: fmt.Sprint("t", m.IntN(m.size[0])), User: fmt.Sprint("u", m.IntN(m.size[1]))})
	scope := scopes[m.IntN(3)]
	until := m.now + m.Int64N(2)*m.Int64N(1_000_000)
	m.note("pause %s for %d", scope, until-m.now)
	m.paused[scope] = until
	if m.chance(2) {
		m.s.Pause(maps.Clone(m.paused), m.now)
	} else {
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
		m.over1(jobs[0])
		delete(m.dead, jobs[0].env.ID)
		m.lanes[lane] = jobs[1:]
		m.sooner(lane)
		m.s.Look(lane.Tenant, lane.User, m.now)
		return
	}
}

// forgetTenants lets the scheduler forget tenants, and Redis those without lanes.
func (m *model) forgetTenants() {
	for _, name := range m.s.Rest() {
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
		m.s.ForgetLanes(name, m.now)
	}
}

// drain lets everything run to its end: nothing may be left.
func (m *model) drain() {
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
