package schedule_test

import (
	"fmt"
	"slices"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A limit is a rule by its definition: it looks at all starts there ever were.
type limit struct {
	kind   rules.Kind
	n      int64
	period int64 // µs
	burst  int64
	drop   bool
}

// wide is the period within which starts count: a job may start up to a grace late.
func (l limit) wide() int64 { return l.period + schedule.Grace }

// A spend is one start as a subject remembers it.
type spend struct {
	id       int
	at, cost int64
	era      int
	odd      bool  // it lies before one that was made earlier
	gone     bool  // it was refunded
	again    bool  // by another slot than was paid
	newest   int64 // the newest start when that happened
	last     bool  // it was the newest itself
}

// A ledger is what has started of one subject: by its starts, and by the slots that were
// paid. Where starts were refunded, or rules have changed, what is remembered of them may
// be stricter than the truth: `upper` asks for the most that it may be.
type ledger struct {
	limits []limit
	since  int64 // since when these limits are in force
	era    int   // how often they have changed
	vague  bool  // older limits may still matter
	starts []spend
	paid   []spend
}

// first returns the first instant >= from at which the limit lets a cost start.
func (l limit) first(led *ledger, from, cost int64, upper bool) int64 {
	switch l.kind {
	case rules.Window:
		return l.firstOfWindow(led, from, min(cost, l.n), upper)
	case rules.Spacing:
		for _, s := range led.counted(led.starts, upper, l.wide()) {
			from = max(from, s.at+l.wide())
		}
		return from
	case rules.FixedWindow:
		return l.firstOfPeriod(led, from, min(cost, l.n), upper)
	case rules.Leak:
		if n := len(led.paid); n > 0 && (upper || led.paid[n-1].era == led.era) {
			last, units := led.paid[n-1], led.paid[n-1].cost
			if last.gone && (last.last || !upper) {
				units = 0
			}
			return max(from, last.at+units*(l.period/l.n))
		}
		return from
	}
	return max(from, l.full(led, upper)+(min(cost, l.burst)-l.burst)*(l.period/l.n))
}

// full returns when a token bucket is full again.
func (l limit) full(led *ledger, upper bool) (at int64) {
	for i, s := range led.paid {
		cost := s.cost
		switch {
		case !upper && (s.gone || s.era < led.era):
			if s.again && lenient {
				return 0
			}
			continue
		case s.gone && s.last && i == len(led.paid)-1:
			cost = 0
		}
		at = max(at, s.at) + cost*(l.period/l.n)
		if most := s.at + l.burst*(l.period/l.n); at > most && (!upper || i == len(led.paid)-1) {
			at = most // nothing lacks more than all its tokens
		}
	}
	return at
}

// counted returns the starts that count. What was refunded counts at most as a start that
// was out of sight when the newest one was made.
func (led *ledger) counted(all []spend, upper bool, wide int64) []spend {
	counted := make([]spend, 0, len(all))
	for _, s := range all {
		switch {
		case !upper && (s.gone || s.era < led.era):
		case s.gone:
			counted = append(counted, spend{at: s.newest - wide, cost: s.cost})
		default:
			counted = append(counted, s)
		}
	}
	return counted
}

func (l limit) firstOfWindow(led *ledger, t, cost int64, upper bool) int64 {
	counted := led.counted(led.starts, upper, l.wide())
	for _, s := range counted {
		if s.at+l.wide() > t {
			t = max(t, s.at) // starts come in order
		}
	}
	for {
		sum, oldest := int64(0), int64(schedule.Never)
		for _, s := range counted {
			if s.at > t-l.wide() {
				sum += s.cost
				oldest = min(oldest, s.at)
			}
		}
		if sum+cost <= l.n || sum == 0 {
			return t
		}
		t = oldest + l.wide()
	}
}

func (l limit) guarded() bool {
	return l.kind == rules.FixedWindow && l.period > 4*schedule.Grace
}

// off moves an instant out of the end of a period, where a start could be late.
func (l limit) off(t int64) int64 {
	if end := (t/l.period + 1) * l.period; l.guarded() && t >= end-schedule.Grace {
		return end
	}
	return t
}

func (l limit) firstOfPeriod(led *ledger, t, cost int64, upper bool) int64 {
	for {
		t = l.off(t)
		begin, sum, later := t/l.period*l.period, int64(0), int64(0)
		for _, s := range led.starts {
			if !upper && (s.gone || s.era < led.era) {
				continue
			}
			if s.at >= begin+l.period {
				later = max(later, s.at/l.period*l.period)
			}
			if s.at >= begin && s.at < begin+l.period && !(s.gone && !s.odd && s.newest/l.period == s.at/l.period) {
				sum += s.cost
			}
		}
		switch {
		case later > 0:
			t = later
		case sum+cost <= l.n || sum == 0:
			return t
		default:
			t = begin + l.period
		}
	}
}

// lenient says that some refunds are not held against the scheduler, which give back more
// than was spent: that of a job that started late, where a token bucket gives back what it
// was refilled with since; that of a slot ahead of the first that newer rules counted; and
// that of a cost above what a log keeps, where longer rules were in force before.
const lenient = true

// foreign tells whether a slot ahead that other rules had counted was given back.
func (led *ledger) foreign() bool {
	for _, s := range led.starts {
		if s.gone && s.era < led.era && s.at > led.since || s.gone && led.era > 0 && s.cost > 1 {
			return true
		}
	}
	return false
}

// first returns the first instant that all limits allow which defer.
func (led *ledger) first(from, cost int64, upper bool) int64 {
	if lenient && !upper && led.foreign() {
		return from
	}
	for t := from; ; {
		before := t
		for _, l := range led.limits {
			if !l.drop {
				t = l.first(led, t, cost, upper)
			}
			if l.guarded() {
				t = l.off(t)
			}
		}
		if t == before {
			return t
		}
	}
}

// refuses tells whether a limit that drops does not allow an instant.
func (led *ledger) refuses(at, cost int64, upper bool) bool {
	if lenient && !upper && led.foreign() {
		return false
	}
	for _, l := range led.limits {
		if l.drop && l.first(led, at, cost, upper) > at {
			return true
		}
	}
	return false
}

func (led *ledger) spend(id int, at, cost int64) {
	made := spend{id: id, at: at, cost: cost, era: led.era}
	made.odd = slices.ContainsFunc(led.starts, func(s spend) bool { return s.at > at })
	led.starts, led.paid = append(led.starts, made), append(led.paid, made)
}

// refund takes a start back: exactly, if that is told of the slot that was paid.
func refund(all []spend, id int, exact bool) {
	newest := int64(0)
	for _, s := range all {
		if !s.gone {
			newest = max(newest, s.at)
		}
	}
	for i := range all {
		if s := &all[i]; s.id == id && !s.gone {
			s.gone, s.newest, s.last, s.again = true, newest, exact && s.at == newest && !s.odd, !exact
		}
	}
}

// forget drops what is so old that no limit can tell.
func (led *ledger) forget(now int64) {
	const long = 60_000_000
	old := func(s spend) bool { return s.at < now-long }
	if n := len(led.paid); n == 0 || led.paid[n-1].at < now-long/2 {
		led.vague, led.paid = false, nil
	}
	if now > led.since+long && !led.buckets() {
		led.vague = false
	}
	if len(led.starts) > 50 {
		led.starts = slices.DeleteFunc(led.starts, old)
	}
	if len(led.paid) > 500 && !led.buckets() {
		led.paid = slices.DeleteFunc(led.paid, old)
	}
}

func (led *ledger) buckets() bool {
	return slices.ContainsFunc(led.limits, func(l limit) bool { return l.kind == rules.TokenBucket })
}

// A task is a job in the model.
type task struct {
	id       int
	attempt  int // the number of its last start
	lane     envelope.Lane
	env      *envelope.Envelope
	spent    int64 // where the rules about starts have it
	paid     int64 // where it was paid
	running  bool
	claim    string // its name, while it runs
	over     bool
	returned bool
}

func (t *task) entry() string { return t.env.String() }
func (t *task) cost() int64   { return int64(t.env.Cost) }

// A world is the model of a queue: plain lists of jobs and of starts, and the definitions.
type world struct {
	now     int64
	ledgers map[string]*ledger // by scope
	lanes   map[envelope.Lane][]*task
	paused  map[string]int64
	dead    map[string]bool // cancelled IDs
	rules   func(scope string) []limit
	maxWait int64
	started int
	reach   int64                    // how far away the farthest worker is, µs
	last    map[envelope.Lane]string // the stamp of the last first attempt
	slots   map[envelope.Lane]int64  // the last slot: the next job of the lane is not before it
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

// opens returns from when on nothing that pauses keeps a lane.
func (w *world) opens(l envelope.Lane, from int64) int64 {
	for _, scope := range scopesOf(l) {
		from = max(from, w.paused[scope])
	}
	return from
}

// slot returns when a job may start by all definitions.
func (w *world) slot(t *task, from int64, upper bool) int64 {
	for at := w.opens(t.lane, from); ; {
		before := at
		for _, scope := range scopesOf(t.lane) {
			at = w.ledger(scope).first(at, t.cost(), upper)
		}
		if at == before {
			return at
		}
	}
}

// vague tells whether the rules of a lane may be stricter than their definitions.
func (w *world) vague(l envelope.Lane) bool {
	for _, scope := range scopesOf(l) {
		if w.ledger(scope).vague {
			return true
		}
	}
	return false
}

func (w *world) deadline(t *task) int64 {
	if t.env.Deadline == 0 && w.maxWait > 0 {
		return max(t.env.Offered(), t.env.NotBefore) + w.maxWait
	}
	return t.env.Deadline
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
	ahead := place.Ahead
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
	case s.Slot > high && !w.vague(t.lane):
		return fmt.Errorf("job %d has a slot %d µs too late (in %d)", t.id, s.Slot-high, s.Slot-w.now)
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
	for _, scope := range scopesOf(t.lane) {
		if w.ledger(scope).refuses(s.Slot, t.cost(), false) {
			return fmt.Errorf("job %d starts, and a rule of %s refuses it", t.id, scope)
		}
	}
	if t.env.Failures == 0 && !t.returned {
		if t.env.Stamp <= w.last[t.lane] {
			return fmt.Errorf("job %d starts after a younger one", t.id)
		}
		w.last[t.lane] = t.env.Stamp
	}
	w.started++
	t.running, t.spent, t.paid, t.attempt = true, s.Spent, s.Spent, w.started
	w.slots[t.lane] = s.Slot
	for _, scope := range scopesOf(t.lane) {
		w.ledger(scope).spend(t.attempt, s.Spent, t.cost())
	}
	return nil
}

// drop checks the reason for a drop.
func (w *world) drop(t *task, d schedule.Drop) error {
	t.over = true
	low, high := w.slot(t, w.now, false), w.slot(t, w.now, true)
	switch d.Reason {
	case schedule.Cancelled:
		if !w.dead[t.env.ID] {
			return fmt.Errorf("job %d is dropped as cancelled", t.id)
		}
		delete(w.dead, t.env.ID)
		return nil
	case schedule.Expired:
		high = w.slot(t, max(w.now+w.reach, w.slots[t.lane]), true) // nor does it overtake the one before it
		if deadline := w.deadline(t); deadline == 0 || high <= deadline && !w.vague(t.lane) {
			return fmt.Errorf("job %d is dropped as expired, and may start %d µs before its deadline", t.id, deadline-high)
		}
		return nil
	case schedule.Refused:
		for _, scope := range scopesOf(t.lane) {
			if led := w.ledger(scope); led.vague || low != high || led.refuses(high, t.cost(), true) {
				return nil
			}
		}
		return fmt.Errorf("job %d is refused by %q, which allows it", t.id, d.Rule)
	}
	return fmt.Errorf("job %d is dropped as %q: %v", t.id, d.Reason, d.Head.Err)
}

// restart checks the answer to a job that starts late.
func (w *world) restart(t *task, to, spread int64, ok bool) error {
	strict, lax := false, false
	for _, scope := range scopesOf(t.lane) {
		led := w.ledger(scope)
		before := slices.Clone(led.starts)
		moved := slices.IndexFunc(led.starts, func(s spend) bool { return s.id == t.attempt && !s.gone })
		old := lenient && moved >= 0 && led.starts[moved].era < led.era // see foreign
		led.starts = slices.DeleteFunc(led.starts, func(s spend) bool { return s.id == t.attempt && !s.gone })
		for _, l := range led.limits {
			if l.kind == rules.Leak || l.kind == rules.TokenBucket {
				continue
			}
			strict = strict || !old && !(lenient && led.foreign()) && l.first(led, to, t.cost(), false) > to
			lax = lax || l.first(led, to, t.cost(), true) > to
		}
		led.starts = before
		refund(led.starts, t.attempt, true)
		lax = lax || led.vague || slices.ContainsFunc(led.starts, func(s spend) bool { return s.gone })
	}
	switch {
	case ok && strict:
		return fmt.Errorf("job %d starts late, and a rule does not allow that", t.id)
	case !ok && !strict && !lax:
		return fmt.Errorf("job %d does not start late, and all rules allow it", t.id)
	case !ok:
		w.unspend(t, true)
		return nil
	}
	for _, scope := range scopesOf(t.lane) {
		led := w.ledger(scope)
		odd := slices.ContainsFunc(led.starts, func(s spend) bool { return s.at > to+spread })
		led.starts = append(led.starts, spend{id: t.attempt, at: to + spread, cost: t.cost(), era: led.era, odd: odd})
		slices.SortStableFunc(led.starts, func(a, b spend) int { return int(a.at - b.at) })
	}
	t.spent = to + spread
	return nil
}

// unspend gives a start back: to its user, or to all.
func (w *world) unspend(t *task, all bool) {
	for i, scope := range scopesOf(t.lane) {
		if !all && i < 2 {
			continue
		}
		led := w.ledger(scope)
		refund(led.starts, t.attempt, true)
		refund(led.paid, t.attempt, t.spent == t.paid)
	}
}

// blocked tells whether a job waits for a bigger one, to which the rules of its tenant, or
// of the queue, are held open.
func (w *world) blocked(t *task) bool {
	for lane, jobs := range w.lanes {
		if len(jobs) == 0 || jobs[0] == t || jobs[0].cost() == 1 {
			continue
		}
		if w.ledger(envelope.QueueScope).first(w.now, jobs[0].cost(), true) > w.now {
			return true
		}
		if lane.Tenant == t.lane.Tenant && w.ledger(envelope.TenantScope(lane.Tenant)).first(w.now, jobs[0].cost(), true) > w.now {
			return true
		}
	}
	return false
}
