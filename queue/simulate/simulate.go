// Package simulate computes what would become of jobs under some policies, in memory and at once.
//
// It runs the scheduler of the queue ([Run]) over offers: jobs, and when each is offered. Time
// passes from one event to the next, so that a day of offers takes as long as its decisions. It
// assumes that every attempt succeeds and that all IDs differ, and ignores collapse keys, pauses and overrides.
// Jobs with a digest key start together, as in a queue: they have one slot.
// [Compare] runs it twice, under the policies before and after a change.
package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/policies"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// An Offer is a job and when it was offered.
type Offer struct {
	At time.Time // when it was offered
	queue.Job
}

// A Result is what would become of one offer.
type Result struct {
	Offer
	Slot   time.Time    // when the job would start; the zero time if it would be dropped
	Reason queue.Reason // why it would be dropped, or [Invalid]; empty if it would start
	Rule   string       // as in queue.Drop; for Invalid what is wrong
}

// Invalid is the reason of a job that the policies make invalid, such as one that lacks what a limit by name with missing:
// refuse needs. A queue would not accept it.
const Invalid queue.Reason = "invalid"

// Waited is the time from the offer, or from NotBefore, to the start. It has no meaning for a job
// that would be dropped.
func (r Result) Waited() time.Duration {
	since := r.At
	if r.NotBefore.After(since) {
		since = r.NotBefore
	}
	return r.Slot.Sub(since)
}

// A Config has the conditions under which jobs are simulated. The zero value limits nothing.
type Config struct {
	Policies queue.Policies // what limits the jobs

	// Takes is how long each job runs, for concurrency limits. With 0 a job ends at once.
	Takes time.Duration

	// Accepted says that a queue has the jobs already, under other policies. Then none of them is [Invalid]: a limit
	// does not count a job that lacks what it needs.
	Accepted bool

	// Places is how many jobs the fleet runs at once. Limits that are a percentage are a share of
	// them, and jobs wait for a free one. 0 means no bound.
	Places int
}

// Run computes what would become of offers. The results are in the order of the offers' instants.
// The error wraps [queue.ErrInvalidPolicies] or [queue.ErrInvalidJob].
func Run(c Config, offers []Offer) ([]Result, error) {
	if err := c.Policies.Validate(); err != nil {
		return nil, err
	}
	for i, o := range offers {
		if err := o.Validate(); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(offers), err)
		}
	}
	source, err := yaml.Marshal(alone(c.Policies))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrInvalidPolicies, err)
	}
	policies, err := policies.Compile("simulated", string(source), 1, 0)
	if err != nil {
		return nil, err
	}
	m := newMemory(c, policies, offers)
	m.run()
	return m.results, nil
}

// alone returns policies whose limits are not shared, of a queue with one partition: nobody else spends them in a simulation.
func alone(p queue.Policies) queue.Policies {
	p.Partitions, p.Limits = 0, maps.Clone(p.Limits)
	for name, l := range p.Limits {
		l.Shared = false
		p.Limits[name] = l
	}
	return p
}

// sealed returns what decides about a job, as the scheduler knows it.
func sealed(j queue.Job) *envelope.Envelope {
	return &envelope.Envelope{
		ID: j.ID, Cost: max(1, j.Cost), Deadline: envelope.Micros(j.StartBy), Until: envelope.Micros(j.FinishBy),
		Priority: envelope.Normal - int(j.Priority), Type: j.Type, Keys: j.Keys, Costs: j.Costs,
	}
}

// farAway stands for as many places as there are jobs.
const farAway = 1 << 30

// memory is a queue in memory: the lanes, and what comes next.
type memory struct {
	Config
	policies *schedule.Policies
	sched    *schedule.Scheduler
	results  []Result
	now      int64
	stamp    int64
	offers   []int                             // of results, by when they enter their lanes
	lanes    map[envelope.Lane][]schedule.Head // what waits
	parked   map[index][]schedule.Bound        // lanes that wait for long, by their bounds
	of       map[string][]int                  // entry of a lane → results: one, or those of a digest
	digests  map[string]*digest                // those that have not left their lanes, by their stamps
	open     map[place]*digest                 // those of them that others may join
	later    []*digest                         // those that are not in their lanes yet, by when they are due
	people   map[string]wallclock.Person       // by scope, their clocks
	waiting  map[string]int                    // by scope, of those with a capacity
	running  []ending                          // by when they end
	free     int
}

// An ending is when a job ends that runs.
type ending struct {
	at    int64
	claim envelope.Claim
}

// An index is the lanes of a tenant and priority.
type index struct {
	tenant   string
	priority int
}

func newMemory(c Config, policies *schedule.Policies, offers []Offer) *memory {
	w := &memory{
		Config: c, policies: policies, lanes: make(map[envelope.Lane][]schedule.Head), parked: make(map[index][]schedule.Bound), of: make(map[string][]int),
		digests: make(map[string]*digest), open: make(map[place]*digest), people: make(map[string]wallclock.Person), waiting: make(map[string]int), free: cmp.Or(c.Places, farAway),
	}
	for _, o := range offers {
		w.results = append(w.results, Result{Offer: o})
	}
	slices.SortStableFunc(w.results, func(a, b Result) int { return a.At.Compare(b.At) })
	w.offers = make([]int, len(w.results))
	for i := range w.offers {
		w.offers[i] = i
	}
	slices.SortStableFunc(w.offers, func(a, b int) int { return cmp.Compare(w.enters(a), w.enters(b)) })
	w.sched = schedule.New(schedule.Settings{Policies: w.policies}, "")
	w.sched.Step(0, schedule.Capacity(w.free))
	return w
}

// enters returns when a job enters its lane.
func (w *memory) enters(i int) int64 {
	return max(envelope.Micros(w.results[i].At), envelope.Micros(w.results[i].NotBefore))
}

// run goes from one instant at which something happens to the next, until nothing does.
func (w *memory) run() {
	for {
		next := w.decide()
		if len(w.offers) > 0 {
			next = min(next, w.enters(w.offers[0]))
		}
		if len(w.running) > 0 {
			next = min(next, w.running[0].at)
		}
		if len(w.later) > 0 {
			next = min(next, w.later[0].due)
		}
		if next == schedule.Never {
			return
		}
		w.now = max(w.now, next)
		for len(w.running) > 0 && w.running[0].at <= w.now {
			w.sched.Step(w.now, schedule.Ended{w.running[0].claim})
			w.running = w.running[1:]
			w.free++
		}
		for len(w.later) > 0 && w.later[0].due <= w.now {
			d := w.later[0]
			w.later = w.later[1:]
			w.mature(d)
		}
		for len(w.offers) > 0 && w.enters(w.offers[0]) <= w.now {
			w.offer(w.offers[0])
			w.offers = w.offers[1:]
		}
	}
}

// offer puts a job into its lane, or drops it.
func (w *memory) offer(i int) {
	r := &w.results[i]
	env := sealed(r.Job)
	w.stamp = max(w.stamp+1, w.now)
	w.hear(r.Job)
	env.Stamp, env.NotBefore = envelope.Stamp(w.stamp), envelope.Micros(r.NotBefore)
	lane := envelope.Lane{Tenant: r.Tenant, User: r.User, Priority: env.Priority}
	lane.Label = w.policies.Label(lane, env)
	if r.Reason, r.Rule = w.invalid(lane, env); r.Reason != "" {
		return
	}
	if r.DigestKey == "" || w.startsDigest(lane, r.DigestKey) {
		if r.Reason, r.Rule = w.full(lane, env); r.Reason != "" {
			return
		}
	}
	if r.DigestKey != "" {
		w.gather(lane, i, env)
		return
	}
	w.of[env.Stamp] = []int{i}
	w.enter(lane, schedule.Head{Entry: env.Stamp, Job: env.Stamp, Env: env})
}

// enter puts a job at the end of its lane.
func (w *memory) enter(lane envelope.Lane, head schedule.Head) {
	w.wait(lane, head.Env, 1)
	w.lanes[lane] = append(w.lanes[lane], head)
	if len(w.lanes[lane]) == 1 {
		w.sched.Step(w.now, schedule.First{Lane: lane, Head: head})
	}
}

// hear notes what a job tells of its user's clock.
func (w *memory) hear(j queue.Job) {
	person, err := wallclock.NewPerson(j.Zone, j.Quiet)
	scope := envelope.PersonScope(j.Tenant, j.User)
	if was := w.people[scope]; err == nil && person.Over(was).String() != was.Over(was).String() {
		w.people[scope] = person.Over(was)
		w.sched.Step(w.now, schedule.ClockSet{Tenant: j.Tenant, User: j.User})
	}
}

// leave takes the first job out of a lane. Nobody joins a digest that has left.
func (w *memory) leave(lane envelope.Lane) {
	w.close(w.lanes[lane][0].Entry)
	w.wait(lane, w.lanes[lane][0].Env, -1)
	w.lanes[lane] = w.lanes[lane][1:]
}

// Next returns a free place: it is asked by the scheduler.
func (w *memory) Next() *schedule.Place {
	if w.free == 0 {
		return nil
	}
	w.free--
	return &schedule.Place{}
}

// Free gives a place back that was not used.
func (w *memory) Free(*schedule.Place) { w.free++ }

// Reach is 0: nobody is far away.
func (w *memory) Reach() int64 { return 0 }

// decide starts and drops what may be by now, and returns when there is more to decide.
func (w *memory) decide() int64 {
	const batch = 1000
	for {
		commit := w.sched.Decide(w.now, w, batch)
		plan := commit.Plan
		for _, left := range plan.Left {
			w.leave(left.Lane)
		}
		for _, start := range plan.Starts {
			w.start(start)
		}
		for _, drop := range plan.Drops {
			w.drop(drop.Head.Entry, queue.Reason(drop.Reason), drop.Rule)
		}
		for _, p := range commit.Parks {
			w.park(p)
		}
		w.sched.Learn(commit, w.find(commit.Needs), w.now)
		if commit.Needs.Empty() && len(plan.Left) == 0 && plan.Next > w.now {
			return plan.Next
		}
	}
}

// start lets a job run until it ends.
func (w *memory) start(s schedule.Start) {
	for n, i := range w.of[s.Head.Entry] {
		if w.tooLate(s, n) {
			w.results[i].Reason = queue.ReasonExpired
			continue
		}
		w.results[i].Slot = envelope.Instant(s.Slot)
	}
	e := ending{s.Slot + w.Takes.Microseconds(), s.Claim}
	at, _ := slices.BinarySearchFunc(w.running, e, func(a, b ending) int { return cmp.Compare(a.at, b.at) })
	w.running = slices.Insert(w.running, at, e)
}

// park notes the bound of a lane, which the scheduler forgets until then.
func (w *memory) park(p schedule.Park) {
	of := index{p.Lane.Tenant, p.Lane.Priority}
	bound := schedule.Bound{Name: p.Lane.User, Label: p.Lane.Label, At: p.At, Member: p.Lane.User + " " + p.Lane.Label}
	at, _ := slices.BinarySearchFunc(w.parked[of], bound, earlier)
	w.parked[of] = slices.Insert(w.parked[of], at, bound)
}

func earlier(a, b schedule.Bound) int {
	return cmp.Or(cmp.Compare(a.At, b.At), cmp.Compare(a.Member, b.Member))
}

// find returns what the scheduler needs: the lanes that it has parked, and first jobs. Its own memory of
// states is the only one.
func (w *memory) find(needs schedule.Needs) schedule.Found {
	found := schedule.Found{States: make([]string, len(needs.States)), Waiting: make([]int64, len(needs.States))}
	for i, scope := range needs.States {
		if person, is := w.people[scope]; is {
			found.States[i] = person.String()
		}
	}
	for _, need := range needs.Lanes {
		of := index{need.Tenant, need.Priority}
		from, known := slices.BinarySearchFunc(w.parked[of], schedule.Bound{At: need.From, Member: need.After}, earlier)
		if known && need.After != "" {
			from++
		}
		w.parked[of] = w.parked[of][from:] // what lies before was found before
		found.Fronts = append(found.Fronts, w.parked[of][:min(need.N, len(w.parked[of]))])
	}
	for _, lane := range needs.Heads {
		heads := w.lanes[lane]
		found.Heads = append(found.Heads, heads[:min(len(heads), headsEach)])
	}
	return found
}

// headsEach is how many jobs of a lane the scheduler is told at a time.
const headsEach = 10
