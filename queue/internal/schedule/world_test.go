package schedule_test

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A task is a job in the model.
type task struct {
	id       int
	attempt  int // the number of its last start
	lane     envelope.Lane
	env      *envelope.Envelope
	spent    int64 // where the rules about starts have it
	running  bool
	claim    envelope.Claim // while it runs
	over     bool
	returned bool
	counted  []count // by whom its last start was counted
}

func (t *task) entry() string { return t.env.String() }
func (t *task) cost() int64   { return int64(t.env.Cost) }

// A count is what a job costs somebody for whom rules count.
type count struct {
	scope  string
	cost   int64
	ofUser bool
}

// counts returns whoever counts a job.
func (w *world) counts(t *task) (all []count) {
	for i, scope := range scopesOf(t.lane) {
		all = append(all, count{scope, t.cost(), i == 2})
	}
	for _, n := range w.named {
		if scope, cost := n.of(t.lane, t.env); cost > 0 {
			all = append(all, count{scope, cost, n.key == "user"})
		}
	}
	return all
}

// A world is the model of a queue: plain lists of jobs and of starts, and the definitions.
type world struct {
	now     int64
	ledgers map[string]*ledger // by scope
	lanes   map[envelope.Lane][]*task
	paused  map[string]int64
	dead    map[string]bool // cancelled IDs
	rules   func(scope string) []limit
	named   []namedLimit
	maxWait int64
	started int
	reach   int64                    // how far away the farthest worker is, µs
	reached int64                    // how far away any was
	last    map[envelope.Lane]string // the stamp of the last first attempt
	slots   map[envelope.Lane]int64  // the last slot: the next job of the lane is not before it

	overrides map[string]override // by scope: those that count by now
}

func (w *world) ledger(scope string) *ledger {
	led := w.ledgers[scope]
	if led == nil {
		led = &ledger{limits: w.rules(scope)}
		w.ledgers[scope] = led
	}
	return led
}

func scopesOf(l envelope.Lane) [3]string {
	return [3]string{envelope.QueueScope, envelope.TenantScope(l.Tenant), envelope.UserScope(l.Tenant, l.User)}
}

// opens returns from when on nothing that pauses keeps a job.
func (w *world) opens(t *task, from int64) int64 {
	for _, of := range w.counts(t) {
		from = max(from, w.paused[of.scope])
	}
	return from
}

// slot returns when a job may start by all definitions. What drops lets it wait for as long as the farthest worker is away.
func (w *world) slot(t *task, from int64, upper bool) int64 {
	at, reach := w.deferred(t, w.opens(t, from), upper), w.reach
	if upper { // a bound may be of the fleet before
		reach = w.reached
	}
	for by := at + reach; ; {
		before := at
		for _, of := range w.counts(t) {
			at = w.ledger(of.scope).soon(at, by, of.cost, upper)
		}
		if at == before {
			return at
		}
		at = w.deferred(t, at, upper)
	}
}

// deferred returns from when on a job may start by all limits that defer.
func (w *world) deferred(t *task, at int64, upper bool) int64 {
	for {
		before := at
		for _, of := range w.counts(t) {
			at = w.ledger(of.scope).first(at, of.cost, upper)
		}
		if at == before {
			return at
		}
	}
}

// vague tells whether the rules of a job may be stricter than their definitions.
func (w *world) vague(t *task) bool {
	for _, of := range w.counts(t) {
		if w.ledger(of.scope).vague {
			return true
		}
	}
	return false
}

func (w *world) deadline(t *task) int64 {
	if t.env.Deadline != 0 || w.maxWait == 0 {
		return t.env.Deadline
	}
	at := max(t.env.Offered(), t.env.NotBefore)
	for left := w.maxWait; ; at = nextMinute(at) { // closed minutes do not count
		if w.closed(t, at) {
			continue
		}
		if nextMinute(at)-at >= left {
			return at + left
		}
		left -= nextMinute(at) - at
	}
}

// closed tells whether hours of a job are closed at an instant.
func (w *world) closed(t *task, at int64) bool {
	for _, of := range w.counts(t) {
		for _, l := range w.ledger(of.scope).limits {
			if l.kind == rules.Hours && !l.drop && !l.open(at) {
				return true
			}
		}
	}
	return false
}

// pop takes the first job out of a lane, if it is the one.
func (w *world) pop(l envelope.Lane, begin string) (*task, error) {
	lane := w.lanes[l]
	if len(lane) == 0 || lane[0].env.Stamp != begin {
		return nil, fmt.Errorf("%s is not the first of lane %s", begin, l.Name())
	}
	w.lanes[l] = lane[1:]
	return lane[0], nil
}

// start checks a start and counts it.
func (w *world) start(t *task, s schedule.Start, place *schedule.Place) error {
	ahead := max(place.Ahead, t.env.Late)
	low, high := w.slot(t, w.now, false), w.slot(t, w.now, true)
	if ahead > 0 && w.now+ahead > low {
		high = w.slot(t, max(w.now+ahead, w.now), true)
	}
	if last := w.slots[t.lane]; last > low { // it does not overtake the one before it
		high = max(high, w.slot(t, max(last, w.now), true))
	}
	switch {
	case s.Slot < low:
		return fmt.Errorf("job %d has a slot %d µs too early (in %d)", t.id, low-s.Slot, s.Slot-w.now)
	case s.Slot > high && !w.vague(t):
		return fmt.Errorf("job %d has a slot %d µs too late (in %d)", t.id, s.Slot-high, s.Slot-w.now)
	case s.Slot >= w.endFor(t):
		return fmt.Errorf("job %d has a slot %d µs after the end of an override that governs it", t.id, s.Slot-w.endFor(t))
	case ahead > 0 && s.Slot < w.now+ahead:
		return fmt.Errorf("job %d has a slot in %d µs, and its worker is %d µs away", t.id, s.Slot-w.now, ahead)
	case s.Spent != s.Slot+place.Spread:
		return fmt.Errorf("job %d is remembered %d µs after its slot, want %d", t.id, s.Spent-s.Slot, place.Spread)
	case w.dead[t.env.ID]:
		return fmt.Errorf("job %d starts, and is cancelled", t.id)
	case w.deadline(t) > 0 && s.Slot > w.deadline(t):
		return fmt.Errorf("job %d has a slot %d µs after its deadline", t.id, s.Slot-w.deadline(t))
	case s.Head.Env.Cost != t.env.Cost:
		return fmt.Errorf("job %d starts at cost %d, want %d", t.id, s.Head.Env.Cost, t.env.Cost)
	}
	for _, of := range w.counts(t) {
		if w.ledger(of.scope).refuses(s.Slot, of.cost, false) {
			return fmt.Errorf("job %d starts, and a rule of %s refuses it", t.id, of.scope)
		}
	}
	if t.env.Failures == 0 && !t.returned {
		if t.env.Stamp <= w.last[t.lane] {
			return fmt.Errorf("job %d starts after a younger one", t.id)
		}
		w.last[t.lane] = t.env.Stamp
	}
	w.started++
	t.running, t.spent, t.attempt = true, s.Spent, w.started
	w.slots[t.lane] = s.Slot
	t.lane = s.Lane // it goes back there
	t.counted = w.counts(t)
	for _, of := range t.counted {
		w.ledger(of.scope).spend(t.attempt, s.Slot, s.Spent, of.cost)
	}
	return nil
}

// drop checks the reason for a drop.
func (w *world) drop(t *task, d schedule.Drop) error {
	t.over = true
	low, high := w.slot(t, w.now, false), w.slot(t, w.now, true)
	far := w.slot(t, max(w.now+max(w.reach, t.env.Late), w.slots[t.lane]), true) // at the farthest worker; nor does it overtake the one before it
	switch d.Reason {
	case schedule.Cancelled:
		if !w.dead[t.env.ID] {
			return fmt.Errorf("job %d is dropped as cancelled", t.id)
		}
		delete(w.dead, t.env.ID)
		return nil
	case schedule.Expired:
		if deadline := w.deadline(t); deadline == 0 || far <= deadline && !w.vague(t) {
			return fmt.Errorf("job %d is dropped as expired, and may start %d µs before its deadline", t.id, deadline-far)
		} else if w.endFor(t) <= deadline {
			return fmt.Errorf("job %d is dropped as expired %d µs before its deadline, and an override ends before", t.id, deadline-w.now)
		}
		return nil
	case schedule.Refused:
		for _, of := range w.counts(t) {
			if led := w.ledger(of.scope); led.vague || low != high || led.refuses(high, of.cost, true) || led.closes(far) {
				return nil
			}
		}
		return fmt.Errorf("job %d is refused by %q, which allows it", t.id, d.Rule)
	}
	return fmt.Errorf("job %d is dropped as %q: %v", t.id, d.Reason, d.Head.Err)
}

// unspend gives a start back: to its user, or to all.
func (w *world) unspend(t *task, all bool) {
	for _, of := range t.counted {
		if !all && !of.ofUser {
			continue
		}
		led := w.ledger(of.scope)
		refund(led.starts, t.attempt)
		refund(led.paid, t.attempt)
	}
	for _, of := range w.counts(t) { // limits by name that count it only by now give it back, too
		if !slices.ContainsFunc(t.counted, func(c count) bool { return c.scope == of.scope }) {
			w.ledger(of.scope).surplus = true
		}
	}
}

// blocked tells whether a job waits for a bigger one, for which room is kept in the rules of its user, of its tenant, or
// of the queue.
func (w *world) blocked(t *task) bool {
	for lane, jobs := range w.lanes {
		if len(jobs) == 0 || jobs[0] == t {
			continue
		}
		if w.behind(t, jobs[0]) {
			return true
		}
		if jobs[0].cost() == 1 {
			continue
		}
		if w.waits(envelope.QueueScope, jobs[0].cost()) {
			return true
		}
		if lane.Tenant == t.lane.Tenant && lane.User == t.lane.User && lane.Priority <= t.lane.Priority &&
			w.waits(envelope.UserScope(lane.Tenant, lane.User), jobs[0].cost()) {
			return true
		}
		if lane.Tenant == t.lane.Tenant && w.waits(envelope.TenantScope(lane.Tenant), jobs[0].cost()) {
			return true
		}
	}
	return false
}

// waits tells whether the limits of a scope let a cost wait.
func (w *world) waits(scope string, cost int64) bool {
	led := w.ledger(scope)
	at := led.first(w.now, cost, true)
	return led.soon(at, at+w.reached, cost, true) > w.now
}

// behind tells whether a limit by name may keep a job waiting since it waits for another one: that costs more of it, or
// waits for something else beside.
func (w *world) behind(t, other *task) bool {
	others := w.counts(other)
	for _, of := range w.counts(t)[3:] {
		for _, o := range others[3:] {
			if o.scope == of.scope && (o.cost > of.cost || len(others) > 4) && w.slot(other, w.now, true) > w.now {
				return true
			}
		}
	}
	return false
}
