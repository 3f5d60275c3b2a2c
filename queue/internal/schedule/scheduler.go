package schedule

import (
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Lead is how long before its slot a job may be given to a worker, in µs: it hides the
// round trips.
const Lead = 20_000

// Grace is how long after its slot a job may start without asking again, in µs. The rules
// about starts are that much wider than written.
const Grace = 5_000

// A Scheduler decides for one queue.
type Scheduler struct {
	lead      int64
	policies  *Policies
	queue     subject
	paused    map[string]int64 // scope → until when
	cancelled map[string]bool  // IDs of jobs that never run

	tenants map[string]*tenant
	due     heap[*tenant] // by bound: those that are not ready
	ready   heap[*tenant] // by share: those whose bounds have come
	share   int64         // that of the tenant that was served last
	front   front         // of the index of tenants
	held    *tenant       // whose big job waits for room in the queue's rules: it is next

	needs    Needs
	running  running
	expiring heap[*lane] // by the instant at which their first jobs are too late
	touched  []toucher   // whose states have changed since they were written
	parked   []*lane     // whose bounds have moved so far that Redis should know
	over     []string    // tenants whose backlogs are above their capacity
	idle     []*user     // with nothing waiting: forgotten some time later
	turns    turns       // of the scheduler before
	decided  int         // how many jobs have left their lanes with the last plan
	text     []byte      // where the text of a state is written
}

// A subject is whoever a set of rules counts for.
type subject struct {
	rules   *rules.Set
	state   rules.State
	known   bool // the state was read
	asked   bool // the state is being read
	changed bool // the state has changed since it was written
	paused  int64
	limit   Concurrency
	running int   // claims
	filled  int64 // since when it is full, or was last
	freed   int64 // when it was full last
}

// A toucher has a state to write.
type toucher interface {
	subjectOf() *subject
	scope() string
}

type tenant struct {
	subject
	name    string
	policy  Policy
	lanes   [3]lanes // by priority
	users   map[string]*user
	bound   int64 // no job of it starts before
	share   int64 // what it has been served, by its weight
	at      int   // place among those that are due
	rank    int   // place among those that are ready
	waits   bool  // for something that is being read
	resting int   // how often it was found with nothing to do
}

// lanes are those of one priority of a tenant. A lane is in one of the heaps, or in none if nothing
// waits in it.
type lanes struct {
	front
	due     heap[*lane]
	reading heap[*lane] // whose first jobs are being read
}

func newLanes() lanes {
	at := func(l *lane) *int { return &l.at }
	return lanes{front: newFront(), due: heap[*lane]{at: at}, reading: heap[*lane]{at: at}}
}

type user struct {
	subject
	tenant *tenant
	name   string
	lanes  [3]*lane
	idle   bool // in the list of the idle
}

type lane struct {
	user     *user
	priority int
	heads    []Head
	asked    bool  // its heads are being read
	missed   bool  // a job has come meanwhile, perhaps after the reading
	at       int   // place in a heap of its tenant
	expires  int   // place among those that expire
	last     int64 // slot of the job that was taken last
	noted    int64
	looked   int64 // when it was to be read again
	parked   bool  // in the list of the parked
}

func (s *Scheduler) subjectOf() *subject { return &s.queue }
func (s *Scheduler) scope() string       { return envelope.QueueScope }
func (t *tenant) subjectOf() *subject    { return &t.subject }
func (t *tenant) scope() string          { return envelope.TenantScope(t.name) }
func (u *user) subjectOf() *subject      { return &u.subject }
func (u *user) scope() string            { return envelope.UserScope(u.tenant.name, u.name) }

func (l *lane) name() envelope.Lane {
	return envelope.Lane{Tenant: l.user.tenant.name, User: l.user.name, Priority: l.priority}
}

// A Head is one of the first jobs of a lane.
type Head struct {
	Entry string             // as it stands in the lane: the job, or "=" and a collapse key
	Job   string             // the job
	Env   *envelope.Envelope // read; nil if it cannot be
	Err   error              // why not
}

// Collapse returns the collapse key under which the job is kept apart, if it is.
func (h Head) Collapse() (key string, folded bool) {
	if len(h.Entry) > 0 && h.Entry[0] == '=' {
		return h.Entry[1:], true
	}
	return "", false
}

// Begin returns how the entry begins: what tells it from any other.
func (h Head) Begin() string {
	if len(h.Entry) > 0 && h.Entry[0] == '=' {
		return h.Entry
	}
	return h.Entry[:min(len(h.Entry), envelope.StampLen)]
}

// New returns a scheduler that knows of no lanes yet. It begins with what people have decided, and with what the
// queue's own rules remember.
func New(settings Settings, queue string) *Scheduler {
	s := &Scheduler{
		lead: Lead, tenants: make(map[string]*tenant), front: front{missed: Never, limit: 256},
		running: running{claims: make(map[envelope.Claim]run), workers: make(map[string]int)}, paused: make(map[string]int64),
	}
	s.due.at = func(t *tenant) *int { return &t.at }
	s.ready.at = func(t *tenant) *int { return &t.rank }
	s.expiring.at = func(l *lane) *int { return &l.expires }
	s.queue.learn(queue)
	s.change(settings, 0)
	return s
}

// learn reads what the rules remember. What cannot be read is nothing: the rules begin
// anew.
func (u *subject) learn(text string) {
	u.asked = false
	if !u.known {
		if err := u.state.Decode(text); err != nil {
			u.state.Reset()
		}
		u.known = true
	}
}

func (s *Scheduler) touch(t toucher) {
	if u := t.subjectOf(); !u.changed && (u.rules.Len() > 0 || !u.state.Empty()) {
		u.changed = true
		s.touched = append(s.touched, t)
	}
}

func (s *Scheduler) tenant(name string) *tenant {
	t := s.tenants[name]
	if t == nil {
		t = &tenant{name: name, policy: s.policies.Of(name), users: make(map[string]*user), bound: Never, at: outside, rank: outside}
		t.rules, t.paused, t.limit = t.policy.Tenant, s.paused[envelope.TenantScope(name)], t.policy.TenantConcurrency
		t.share = s.turns.shares[name]
		for p := range t.lanes {
			t.lanes[p] = newLanes()
			if s.front.frontier == Never { // every tenant with lanes is known: this one has none
				t.lanes[p].front = whole()
			}
		}
		s.tenants[name] = t
	}
	return t
}

func (t *tenant) user(s *Scheduler, name string) *user {
	u := t.users[name]
	if u == nil {
		u = &user{tenant: t, name: name}
		u.rules, u.limit = t.policy.User, t.policy.UserConcurrency
		if len(s.paused) > 0 {
			u.paused = s.paused[u.scope()]
		}
		t.users[name] = u
	}
	return u
}

// find returns a lane, if it is in memory.
func (t *tenant) find(lane envelope.Lane) *lane {
	if u := t.users[lane.User]; u != nil {
		return u.lanes[lane.Priority]
	}
	return nil
}

func (u *user) lane(priority int) *lane {
	if u.lanes[priority] == nil {
		u.lanes[priority] = &lane{user: u, priority: priority, at: outside, expires: outside}
	}
	return u.lanes[priority]
}

// move gives a tenant a bound. It is ready when that comes.
func (s *Scheduler) move(t *tenant, bound int64) {
	t.bound = bound
	s.ready.remove(t)
	s.due.set(t, bound)
}

// rouse lets a tenant be looked at from an instant on.
func (s *Scheduler) rouse(t *tenant, at int64) {
	if t.waits || t.rank != outside {
		t.bound = min(t.bound, at)
		return
	}
	if at < t.bound || t.at == outside {
		t.bound = min(t.bound, at)
		s.due.set(t, t.bound)
	}
}

// index returns the index that a lane belongs to.
func (l *lane) index() *lanes { return &l.user.tenant.lanes[l.priority] }

// heap returns the heap that a lane belongs to.
func (l *lane) heap() *heap[*lane] {
	if l.asked {
		return &l.index().reading
	}
	return &l.index().due
}

// bound returns the instant before which a lane's next job does not start; Never if nothing waits.
func (l *lane) bound() int64 { return l.heap().bound(l) }

// hold gives a lane its first jobs.
func (s *Scheduler) hold(l *lane, heads []Head) {
	l.heads = heads
	if expires := l.expiry(); expires < Never {
		s.expiring.set(l, expires)
	} else {
		s.expiring.remove(l)
	}
}

// expiry returns the instant from which on the first job of a lane is too late to start.
func (l *lane) expiry() int64 {
	if len(l.heads) == 0 || l.heads[0].Env == nil {
		return Never
	}
	env, expires := l.heads[0].Env, int64(Never)
	if latest := l.user.tenant.policy.Deadline(env.Deadline, env.Begin()); latest > 0 {
		expires = latest + 1
	}
	if env.Until > 0 {
		expires = min(expires, env.Until)
	}
	return expires
}

// await takes a tenant out of all lines, with its bound kept, until what it lacks was read.
func (s *Scheduler) await(t *tenant) {
	bound := t.bound
	s.pass(t)
	t.bound = bound
}

// pass takes a tenant out of all lines.
func (s *Scheduler) pass(t *tenant) {
	t.bound = Never
	s.due.remove(t)
	s.ready.remove(t)
}

// inLine reports whether a tenant waits for its bound or its turn.
func (t *tenant) inLine() bool { return t.at != outside || t.rank != outside }
