package schedule

import (
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Lead is how long before its slot a job may be given to a worker, in µs: it hides the
// round trips.
const Lead = 20_000

// Grace is how long after its slot a job may start without asking again, in µs. The rules
// about starts are that much wider than written.
const Grace = 5_000

// A Scheduler decides for one queue. One goroutine uses it.
type Scheduler struct {
	begun     int64            // the instant of the first fact: what happened before may not have been told
	lead      int64            // how long before its slot a job may be given to a worker, in µs: Lead and Far
	reach     int64            // how far ahead slots may lie, in µs ([Places.Reach])
	policies  *Policies        // in force; nil for none
	queue     subject          // the queue's own rules, and what runs of all tenants
	paused    map[string]int64 // scope → until when; it may have passed
	cancelled map[string]bool  // IDs of jobs that never run

	tenants   map[string]*tenant
	instances map[string]*instance // scope → a limit by name, for the values of its key
	opening   heap[*instance]      // those for which lanes wait, by when they let the next one start
	calling   []*instance          // those that have called a lane
	resting   []*instance          // those that nothing may wait for
	tickets   uint64               // how many lanes have come into a line
	inLine    map[string]int       // limit by name → how many lanes wait in its lines
	weights   map[string]int       // of the tenants that wait for parts of shared limits, by scope
	weighedAt int64
	wanting   map[*instance]bool // shared limits for which lanes may wait that have no grant
	leasing   map[*instance]bool // whose places are leased, and of which jobs run or wait, or places are left
	far       int64              // how far ahead the last worker that got a job under a shared limit has to be told
	others    []Remembered       // scratch of ungranted

	due   heap[*tenant] // by bound: those that are not ready
	ready heap[*tenant] // by share: those whose bounds have come
	share int64         // that of the tenant that was served last
	front front         // of the index of tenants
	held  *tenant       // whose big job waits for room in the queue's rules: it is next

	// What the next commit takes along, and what is kept beside the lines.
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

// New returns a scheduler that knows of no lanes yet. It begins with what people have decided, and with what the
// queue's own rules remember.
func New(settings Settings, queue string) *Scheduler {
	s := &Scheduler{
		lead: Lead, tenants: make(map[string]*tenant), instances: make(map[string]*instance), inLine: make(map[string]int), wanting: make(map[*instance]bool), leasing: make(map[*instance]bool), front: newFront(),
		running: running{claims: make(map[envelope.Claim]run), workers: make(map[string]int)}, paused: make(map[string]int64),
	}
	s.due.at = func(t *tenant) *int { return &t.at }
	s.ready.at = func(t *tenant) *int { return &t.rank }
	s.expiring.at = func(l *lane) *int { return &l.expires }
	s.opening.at = func(of *instance) *int { return &of.opens }
	s.queue.learn(queue)
	s.change(settings, 0)
	return s
}

// Knows reports whether what the rules remember that count a job of a lane is known; if not, the next commit
// asks for it. The job may be nil: then the lane's label says which limits by name those are. Facts that change states
// ([Refunded]) are told only when they are known.
func (s *Scheduler) Knows(lane envelope.Lane, env *envelope.Envelope) bool {
	t := s.tenant(lane.Tenant)
	s.askClock(t.user(s, lane.User))
	known := !s.lacksClock(t.user(s, lane.User))
	for _, of := range append(s.named(lane, env), share{who: s}, share{who: t}, share{who: t.user(s, lane.User)}) {
		if named, is := of.who.(*instance); is && named.shared != nil { // of grants nothing is written
			continue
		}
		s.ask(of.who)
		known = known && of.who.subjectOf().known
	}
	return known
}

// Over returns the tenants whose backlogs were above their capacity when they were read, and, after a change of
// policies, all whose policy drops the oldest jobs. It returns each once: the caller has to remember it.
func (s *Scheduler) Over() []string {
	names := s.over
	s.over = nil
	return names
}

// Cancelled reports whether the job with that ID never runs.
func (s *Scheduler) Cancelled(id string) bool { return s.cancelled[id] }

// CancelledAll reports whether a job never runs, or none of the members of a digest.
func (s *Scheduler) CancelledAll(env *envelope.Envelope) bool {
	for _, part := range env.Parts() {
		if part.ID == "" || !s.cancelled[part.ID] {
			return false
		}
	}
	return true
}

// Tenants returns how many tenants are remembered.
func (s *Scheduler) Tenants() int { return len(s.tenants) }

// Policies returns the policies in force; nil if there are none.
func (s *Scheduler) Policies() *Policies { return s.policies }
