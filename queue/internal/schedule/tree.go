package schedule

import (
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A scheduler knows the tenants that something was told of, or whose bounds come soon; of a tenant the users, of a user
// the lanes, one for each priority and label; and the instances of limits by name that lanes wait for. Each of them but a
// lane is a subject: rules count for it, it can be paused, and so many jobs of it may run. What the rules remember of a
// subject is read when it is needed first (known), changed by starts, and written by the next commit (changed).

// A subject is whoever a set of rules counts for: the queue, a tenant, a user, or an instance of a limit by name.
// All instants are in µs.
type subject struct {
	rules     *rules.Set  // nil for none
	state     rules.State // what the rules remember; empty until it is known
	known     bool        // the state was read: nothing is decided before
	asked     bool        // the state is being read
	changed   bool        // the state has changed since a commit took it along
	paused    int64       // until when; 0, or an instant that has passed, for no pause
	limit     Concurrency // how many jobs may run at once
	leases    bool        // its places are leased: it counts jobs of other partitions, too
	leased    int         // how many of them there are
	running   int         // claims, from the decision on
	fullSince int64       // when its concurrency limit was reached last: the slot of the job that has reached it
	fullUntil int64       // when a place became free after that, last
}

// A toucher has a state to write: each subject, by the node of the tree that it is part of.
type toucher interface {
	subjectOf() *subject
	scope() string
}

// A tenant waits in line by its bound or its share, and lets its lanes take turns. It comes into memory when it is
// named, and leaves it when it was at rest for some time (rest.go).
type tenant struct {
	subject
	name    string
	policy  Policy
	lanes   [priorities]lanes // by priority
	apart   []*waiters        // its lanes that have stepped out of lines of limits by name
	users   map[string]*user
	turns   uint64 // of its lanes: how many there have been
	bound   int64  // no job of it starts before
	share   int64  // what it has been served, by its weight
	at      int    // place among those that are due
	rank    int    // place among those that are ready
	waits   bool   // for something that is being read
	awaits  bool   // was taken out of line for a reading: it keeps its share
	resting int    // how often it was found with nothing to do
}

// lanes are those of one priority of a tenant: an index in memory. A lane is in one of the heaps, or in none if nothing
// waits in it, or if only Redis remembers its bound.
type lanes struct {
	front
	turn    uint64 // of the lane that was read last with the bound of the frontier; the next ones are for those that are read later
	due     heap[*lane]
	reading heap[*lane] // whose first jobs are being read
}

// keptTurns is how many turns are reserved for lanes with one bound that are read later.
const keptTurns = 1 << 32

// leads reports whether the first of the lanes that are due comes before all that are not in memory. Among lanes with one bound
// those come first that were read, then those that are not in memory, and last those that were served since.
func (l *lanes) leads() bool {
	bound := l.due.first()
	return bound < l.frontier || bound == l.frontier && l.after != "" && l.due.entries[0].turn <= l.turn
}

func newLanes() lanes {
	at := func(l *lane) *int { return &l.at }
	return lanes{front: newFront(), due: heap[*lane]{at: at, turn: (*lane).turn}, reading: heap[*lane]{at: at, turn: (*lane).turn}}
}

// A user has the lanes of a tenant for which its rules count together.
type user struct {
	subject
	tenant *tenant
	name   string
	lanes  []*lane
	named  map[laneName]*lane // those of lanes, where there are many
	idle   bool               // in the list of the idle
	person person             // by whose clock those of its rules go that are of the user's
	held   *lane              // for whose costly job the lanes behind it wait; nil for none
	room   int64              // when the user's rules have room for that job
}

// A laneName tells a lane of a user from the others.
type laneName struct {
	priority int
	label    string
}

// A lane is one line of jobs: those of a user of one priority that wait for the same limits by name, in the order in
// which they came.
type lane struct {
	user *user
	laneName
	standing // in the line of a limit by name
	heads    []Head
	asked    bool   // its heads are being read
	missed   bool   // a job has come meanwhile, perhaps after the reading
	at       int    // place in a heap of its tenant
	expires  int    // place among those that expire
	last     int64  // slot of the job that was taken last: the next one does not overtake it
	served   uint64 // the number of its last turn, or of when it came to have jobs; 0 if it has none
	noted    int64  // the bound that Redis has of it, as far as is known
	looked   int64  // a job that was offered before may have left since
	parked   bool   // in the list of the parked
	early    bool   // and it may be due before the bound that Redis has
}

func (s *Scheduler) subjectOf() *subject { return &s.queue }

func (s *Scheduler) scope() string { return envelope.QueueScope }

func (t *tenant) subjectOf() *subject { return &t.subject }

func (t *tenant) scope() string { return envelope.TenantScope(t.name) }

func (u *user) subjectOf() *subject { return &u.subject }

func (u *user) scope() string { return envelope.UserScope(u.tenant.name, u.name) }

func (l *lane) name() envelope.Lane {
	return envelope.Lane{Tenant: l.user.tenant.name, User: l.user.name, Priority: l.priority, Label: l.label}
}

// learn reads what the rules remember, unless that is known: it may have changed since it was read. What cannot be read
// counts as nothing: the rules begin anew.
func (u *subject) learn(text string) {
	u.asked = false
	if !u.known {
		if err := u.state.Decode(text); err != nil {
			u.state.Reset()
		}
		u.known = true
	}
}

// tenant returns a tenant, which comes into memory if it is not there: without a bound, and with the share that the
// scheduler before has known.
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

// user returns a user, who comes into memory if it is not there.
func (t *tenant) user(s *Scheduler, name string) *user {
	u := t.users[name]
	if u == nil {
		u = &user{tenant: t, name: name}
		u.state.Of(&u.person.Person)
		u.govern()
		if len(s.paused) > 0 {
			u.paused = s.paused[u.scope()]
		}
		t.users[name] = u
	}
	return u
}

// govern puts the limits in force that the policy of the tenant has for the user.
func (u *user) govern() {
	limit := u.tenant.policy.OfUser(u.name)
	u.rules, u.limit = limit.Rules, limit.Concurrency
	u.person.govern(u.tenant.policy.Person)
}

// find returns a lane, if it is in memory.
func (t *tenant) find(lane envelope.Lane) *lane {
	if u := t.users[lane.User]; u != nil {
		return u.find(laneName{lane.Priority, lane.Label})
	}
	return nil
}

// fewLanes is how many lanes of a user are looked through.
const fewLanes = 8

func (u *user) find(name laneName) *lane {
	if u.named != nil {
		return u.named[name]
	}
	for _, l := range u.lanes {
		if l.laneName == name {
			return l
		}
	}
	return nil
}

// lane returns a lane, which is made if it is not there: in no heap, since nothing is known to wait in it.
func (u *user) lane(priority int, label string) *lane {
	name := laneName{priority, label}
	l := u.find(name)
	if l == nil {
		l = &lane{user: u, laneName: name, standing: standing{place: outside}, at: outside, expires: outside}
		u.lanes = append(u.lanes, l)
		if len(u.lanes) > fewLanes {
			if u.named == nil {
				u.named = make(map[laneName]*lane)
				for _, l := range u.lanes {
					u.named[l.laneName] = l
				}
			}
			u.named[name] = l
		}
	}
	return l
}

// turn returns the number of a lane's turn. One that comes to have jobs stands behind those that have some.
func (l *lane) turn() uint64 {
	if l.served == 0 {
		l.takeTurn()
	}
	return l.served
}

// takeTurn lets a lane stand behind all others of its tenant that may start something at the same instant.
func (l *lane) takeTurn() {
	l.user.tenant.turns++
	l.served = l.user.tenant.turns
}

// plain lets the lanes without a label be in memory: those that every user has.
func (u *user) plain() {
	for priority := range priorities {
		u.lane(priority, "")
	}
}

// priorities is how many there are.
const priorities = 3

// index returns the index that a lane belongs to.
func (l *lane) index() *lanes { return &l.user.tenant.lanes[l.priority] }

// heap returns the heap that a lane belongs to.
func (l *lane) heap() *heap[*lane] {
	if l.asked {
		return &l.index().reading
	}
	return &l.index().due
}

// reads reports whether first jobs of lanes of a tenant are being read.
func (t *tenant) reads() bool {
	for p := range t.lanes {
		if t.lanes[p].reading.len() > 0 {
			return true
		}
	}
	return false
}

// bound returns the instant before which a lane's next job does not start; Never if nothing waits.
func (l *lane) bound() int64 { return l.heap().bound(l) }

// inLine reports whether a tenant waits for its bound or its turn.
func (t *tenant) inLine() bool { return t.at != outside || t.rank != outside }
