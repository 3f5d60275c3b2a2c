package schedule_test

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

var (
	modelShown = flag.Int("schedule.shown", 60, "acts of a world that are shown when something is wrong in it")
	modelSteps = flag.Int("schedule.steps", 0, "steps of the model test; 0 for 20,000, and 5,000 under -short")
)

// TestModel does random things to a scheduler and to a plain model of a queue
// (world_test.go), and compares them after every step.
func TestModel(t *testing.T) {
	t.Parallel()
	seed := sample.SeedOf(t)
	const perWorld = 400
	steps := *modelSteps
	if steps == 0 {
		steps = sample.Size(5_000, 20_000, 20_000)
	}
	for round := 0; round*perWorld < steps; round++ {
		m := newModel(rand.New(rand.NewPCG(seed, uint64(round))))
		for range perWorld {
			m.step()
		}
		m.drain()
		if m.err != nil {
			t.Fatalf("world %d: %v; under %s; after:\n%s", round, m.err, m.law, strings.Join(m.done[max(0, len(m.done)-*modelShown):], "\n"))
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
	policy   schedule.Policy             // of tenants without overrides
	base     map[byte]bounds             // what limits the queue, a tenant, a user without overrides
	law      string                      // the same, for people
	due      map[string]map[string]int64 // tenant and priority → user → bound
	tenants  map[string]int64
	states   map[string]state
	notices  []notice
	read     int                    // notices that were opened
	listens  int                    // how many of them are opened at a time, as a rule
	kept     int                    // notices whose effects were committed
	stale    map[envelope.Lane]bool // of which a notice told what was so no longer, and the scheduler cannot know
	seen     map[string]bool        // stamps of jobs that have left their lanes by the scheduler's word
	unswept  []string
	later    []*task
	tasks    []*task // all that are not over
	ids      int
	size     [2]int // tenants, users
	far      bool   // workers that are far away
	changing bool
	replaces bool // overrides are set and ended
	places   fleet
	replies  []func()          // to the commits under way
	refused  []schedule.Commit // commits under way that are refused
	closed   bool              // nothing is offered any more
	era      int               // how often policies were put in force
	moving   bool              // limits by name get other names and keys
	size100  int               // places of the fleet
	finished []finished        // claims of whose end the leader has not heard
	heard    []envelope.Claim
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
	next := f.places[0]
	f.places = f.places[1:]
	return next
}

func (f *fleet) Reach() (reach int64) {
	for _, p := range f.all {
		reach = max(reach, p.Ahead+p.Spread)
	}
	return reach
}

func (f *fleet) Free(p *schedule.Place) { f.places = append([]*schedule.Place{p}, f.places...) }

func newModel(r *rand.Rand) *model {
	m := &model{
		Rand: r, due: map[string]map[string]int64{}, tenants: map[string]int64{}, states: map[string]state{},
		size: [2]int{1 + r.IntN(3), 1 + r.IntN(4)}, far: r.IntN(4) == 0, changing: r.IntN(3) == 0, replaces: r.IntN(2) == 0,
	}
	m.far = m.far || m.replaces && r.IntN(2) == 0
	switch r.IntN(12) {
	case 0:
		m.size = [2]int{1, 200}
	case 1:
		m.size = [2]int{300, 1}
	}
	m.world = &world{
		now: 1_763_600_000_000_000 + r.Int64N(1_000_000), ledgers: map[string]*ledger{}, lanes: map[envelope.Lane][]*task{},
		paused: map[string]int64{}, dead: map[string]bool{}, last: map[envelope.Lane]string{}, slots: map[envelope.Lane]int64{}, overrides: map[string]override{},
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

// step does one random thing.
func (m *model) step() {
	if m.err != nil {
		return
	}
	p := m.IntN(100)
	if p < 30 || p >= 60 { // the leader knows by then
		m.lapse()
	}
	switch {
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
		if m.chance(2) {
			m.refresh()
		} else {
			m.depose()
		}
	case p < 83 && m.replaces:
		m.replace()
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

// run decides and commits until there is nothing to do, as a leader does: it may decide more
// while commits are under way.
func (m *model) run() {
	m.hire()
	batch, window := pick(m, 1, 5, 100), pick(m, 1, 1, 2, 4)
	m.replies, m.refused, m.listens = nil, nil, pick(m, 10, 10, 10, 2, 1)
	for round := range 3000 {
		if len(m.replies) > 0 && round < 50 && !m.closed && m.chance(3) {
			m.offer()
			m.now++
		}
		m.open()
		had := len(m.places.places)
		c := m.s.Decide(m.now, &m.places, batch)
		plan := c.Plan
		if m.lapsed() {
			m.idle(c)
			continue
		}
		if m.chance(300) {
			m.depose() // before the commit
			continue
		}
		committed, more := m.send(c)
		if m.err != nil {
			return
		}
		if len(m.refused) > 0 {
			m.undo(window, more || plan.Next <= m.now)
			continue
		}
		if !committed {
			continue
		}
		if m.chance(300) {
			m.depose() // before the reply
			continue
		}
		more = more || plan.Next <= m.now
		if len(m.replies) > 0 && (len(m.replies) == window || !more) {
			m.replies[0]()
			m.replies = m.replies[1:]
			continue
		}
		if more {
			continue
		}
		if !m.fail(m.left(plan, had)) && round > 0 && m.read == len(m.notices) {
			m.notices, m.read, m.kept = nil, 0, 0
		}
		return
	}
	m.fail(fmt.Errorf("the leader goes round without end"))
}

// send commits a plan with all that has changed, unless something is not as the leader saw
// it, and reports whether there was something to do or to learn.
func (m *model) send(c schedule.Commit) (committed, more bool) {
	plan := c.Plan
	if len(m.refused) > 0 || m.chance(30) && len(plan.Left) > 0 { // and all those behind it
		m.note("a commit is refused")
		m.refused = append(m.refused, c)
		return false, len(plan.Left) > 0 || !c.Needs.Empty()
	}
	committed, err := m.commit(plan)
	if m.fail(err) || !committed {
		return false, false
	}
	m.write(c)
	m.kept = m.read
	if len(plan.Left)+len(c.States)+len(c.Parks) == 0 && c.Needs.Empty() {
		return true, false // there is nothing to commit
	}
	m.replies = append(m.replies, m.look(c))
	return true, len(plan.Left) > 0 || !c.Needs.Empty()
}

// undo lets the scheduler know of refused commits, some time after the first of them.
func (m *model) undo(window int, more bool) {
	if more && len(m.replies)+len(m.refused) < window && m.chance(2) {
		return
	}
	m.answer()
}

// answer lets the scheduler know what became of the commits under way.
func (m *model) answer() {
	for _, reply := range m.replies {
		reply()
	}
	if len(m.refused) > 0 {
		m.s.Undo(m.refused, m.now)
	}
	m.replies, m.refused = nil, nil
}

// explain notes what the rules of a lane go by.
func (m *model) explain(l envelope.Lane) {
	commonLimits := scopesOf(l)
	scopes := slices.DeleteFunc(slices.Collect(maps.Keys(m.ledgers)), func(scope string) bool {
		return !slices.Contains(commonLimits[:], scope) && !strings.HasPrefix(scope, envelope.LimitScope)
	})
	for _, scope := range slices.Sorted(slices.Values(scopes)) {
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

// knows lets the scheduler know the states that count a job.
func (m *model) knows(t *task) {
	for range 10 {
		if m.s.Knows(t.lane, t.env) {
			return
		}
		m.amend()
	}
	m.fail(fmt.Errorf("the states of %s are told and not known", t.lane.Name()))
}
