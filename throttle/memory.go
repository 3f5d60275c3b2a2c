package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// memoryStore keeps states in a map and decides as decide.lua does.
type memoryStore struct {
	mu       sync.Mutex
	subjects map[string]*memory
	turns    map[string]*turns // by subject
	sets     []*compiled
	sweep    int // decisions until the next sweep
	clock    func() time.Time
}

// NewMemoryStore returns a store that keeps state in this process, for tests and for
// programs that run alone. It answers as the Redis store does, decision by decision, on
// the process's clock. Idle subjects are forgotten.
func NewMemoryStore() Store {
	return &memoryStore{subjects: make(map[string]*memory), turns: make(map[string]*turns), clock: time.Now}
}

// A memory is what is remembered of a subject.
type memory struct {
	state   rules.State
	expires int64 // when all of it is as none
}

// compiled are the rules of some subjects.
type compiled struct {
	rules  []Rule
	slack  time.Duration
	set    *rules.Set
	places []int // in rules, of those of the set: all hours are one of them
}

// mostSets bounds how many compiled sets are kept. Programs have a few.
const mostSets = 64

// compile returns the rules of a subject as a set, one that was made before if there is one.
func (s *memoryStore) compile(of Subject) *compiled {
	if i := slices.IndexFunc(s.sets, func(c *compiled) bool { return c.slack == of.Slack && slices.Equal(c.rules, of.Rules) }); i >= 0 {
		return s.sets[i]
	}
	c := &compiled{rules: slices.Clone(of.Rules), slack: of.Slack}
	plain := make([]rules.Rule, len(of.Rules))
	hours := false
	for i, r := range of.Rules {
		plain[i] = r.plain()
		plain[i].Guard = of.guardOf(r)
		if r.kind == KindWarmup {
			plain[i].Guard = of.stepSlack(r)
		}
		if plain[i].Period = of.periodOf(r); r.kind == KindHours && hours {
			continue
		}
		hours = hours || r.kind == KindHours
		c.places = append(c.places, i)
	}
	c.set = rules.Compile(0, plain...)
	if len(s.sets) == mostSets {
		s.sets = nil
	}
	s.sets = append(s.sets, c)
	return c
}

func (s *memoryStore) decide(ctx context.Context, r request) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{}, fmt.Errorf("throttle: deciding: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.forget(now)
	return r.decision(s.open(r.subjects, now).rule(r))
}

func (s *memoryStore) decideMany(ctx context.Context, requests []request) ([]Decision, error) {
	if err := ctx.Err(); err != nil {
		return make([]Decision, len(requests)), fmt.Errorf("throttle: deciding: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.forget(now)
	decisions, call := make([]Decision, len(requests)), &turnCall{of: s.turns, now: now}
	for i, r := range requests {
		d, err := s.open(r.subjects, now), error(nil)
		if r.by == "" {
			decisions[i], err = r.decision(d.rule(r))
		} else {
			decisions[i], err = r.decision(call.ask(d, r, runAt(requests, i)))
		}
		if err != nil {
			return decisions, err
		}
	}
	return decisions, nil
}

func (s *memoryStore) refund(_ context.Context, g *grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.forget(now)
	for _, subject := range s.open(g.subjects, now).subjects {
		subject.set.Refund(&subject.memory.state, rules.At(g.slot), subject.cost, g.objected)
		subject.save(now)
	}
	return nil
}

func (s *memoryStore) reset(_ context.Context, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.subjects, key)
		delete(s.turns, key)
	}
	return nil
}

// forget sweeps out what has expired, once per as many decisions as there are subjects:
// so the cost of a decision stays the same however many there are.
func (s *memoryStore) forget(now int64) {
	if s.sweep--; s.sweep > 0 {
		return
	}
	for key, m := range s.subjects {
		if now >= m.expires {
			delete(s.subjects, key)
		}
	}
	for key, t := range s.turns {
		if now >= t.expires {
			delete(s.turns, key)
		}
	}
	s.sweep = 100 + len(s.subjects)
}

// open gathers the subjects of a request.
func (s *memoryStore) open(subjects []Subject, now int64) *memoryDecision {
	d := &memoryDecision{now: now, subjects: make([]memorySubject, len(subjects))}
	for i, subject := range subjects {
		m := s.subjects[subject.Key]
		if m == nil {
			m = &memory{}
			s.subjects[subject.Key] = m
		}
		if now >= m.expires {
			m.state.Reset()
		}
		of := s.compile(subject)
		d.subjects[i] = memorySubject{of.set, m, subject.Cost, of.places}
	}
	return d
}

// A memorySubject is a subject of a request, under its rules.
type memorySubject struct {
	set    *rules.Set
	memory *memory
	cost   int
	places []int // of the set's rules among those of the request
}

// margin is how much longer, in ms, a state is kept than it is of use, as in Redis.
const margin = 20

// save sets when a state that was written expires, rounded up as in Redis.
func (s memorySubject) save(now int64) {
	if s.set.Len() == 0 {
		return
	}
	s.set.Forget(&s.memory.state, now)
	s.memory.expires = now + 1000*(margin+max(1, (s.set.Full(&s.memory.state)-now+999)/1000))
}

// A memoryDecision is a request's subjects.
type memoryDecision struct {
	now      int64
	subjects []memorySubject
}

// A place is that of a rule in a request: its subject, and the rule among the subject's. Within a decision in
// memory it is that among the rules of the set.
type place struct{ subject, rule int }

var nowhere = place{-1, -1}

// rule finds out about a request, and spends.
func (d *memoryDecision) rule(r request) ruling {
	slot, binding := d.earliest(d.now + r.bounds.after.Microseconds())
	found := ruling{outcome: Admitted, now: d.now, full: d.now, next: d.now}
	if slot > d.now {
		found.outcome = Deferred
	}
	if refusal := d.refusing(slot); refusal != nowhere {
		found.outcome, binding = Dropped, refusal
	}
	found.taken = r.spends(found.outcome, micros(slot-d.now))
	var objector place
	switch {
	case found.taken:
		objector = d.objecting(slot)
		d.spend(slot, objector == nowhere)
	case r.verb == verbAllow || r.verb == verbCount || found.outcome == Dropped && r.verb == verbReserve:
		d.spendRefused()
		if found.outcome == Deferred { // the refusal counts against whoever comes back
			slot, binding = d.earliest(d.now)
		}
		fallthrough
	default:
		objector = d.objecting(slot)
	}
	if binding == nowhere {
		binding = d.strictest()
	}
	if binding != nowhere {
		of := d.subjects[binding.subject]
		found.remaining = of.set.Room(&of.memory.state, binding.rule, d.now)
		found.next = of.set.NextFree(&of.memory.state, binding.rule, d.now, found.remaining)
		found.full = of.set.FullOf(&of.memory.state, binding.rule)
	}
	found.slot, found.binding, found.objector = slot, d.asked(binding), d.asked(objector)
	return found
}

// asked returns the place of a rule in the request.
func (d *memoryDecision) asked(p place) place {
	if p != nowhere {
		p.rule = d.subjects[p.subject].places[p.rule]
	}
	return p
}

// earliest returns the first instant from one on that every rule of every subject allows, and the rule
// that moved it last. What a rule allows it allows later too, and nobody is asked again; but for hours.
func (d *memoryDecision) earliest(from int64) (slot int64, binding place) {
	slot, binding = from, nowhere
	for range passes {
		before, again := slot, false
		for i, s := range d.subjects {
			again = again || s.set.AskedAgain()
			if at, rule := s.set.Earliest(&s.memory.state, slot, s.cost); rule >= 0 {
				slot, binding = at, place{i, rule}
			}
		}
		if !again || slot == before {
			break
		}
	}
	return slot, binding
}

// passes bounds how often the rules are asked again.
const passes = 100

// admitted returns the first instant that rules allow, also those that drop if they do by the time from which on they admit anything:
// slots of callers that are farther away lie ahead.
func (d *memoryDecision) admitted(from int64) (slot int64, binding place) {
	slot, binding = d.earliest(from)
	for range passes {
		later := slot
		for _, s := range d.subjects {
			later = s.set.Soon(&s.memory.state, later, later, s.cost)
		}
		if later == slot {
			break
		}
		var binds place
		if slot, binds = d.earliest(later); binds != nowhere {
			binding = binds
		}
	}
	return slot, binding
}

func (d *memoryDecision) refusing(slot int64) place {
	for i, s := range d.subjects {
		if rule := s.set.Refusing(&s.memory.state, slot, s.cost); rule >= 0 {
			return place{i, rule}
		}
	}
	return nowhere
}

func (d *memoryDecision) objecting(slot int64) place {
	for i, s := range d.subjects {
		if rule := s.set.Objecting(&s.memory.state, slot, s.cost); rule >= 0 {
			return place{i, rule}
		}
	}
	return nowhere
}

// strictest finds the rule that leaves the least room, the first of several.
func (d *memoryDecision) strictest() place {
	found, least := nowhere, 0
	for i, s := range d.subjects {
		for rule := range s.set.Len() {
			if r := s.set.Rule(rule); r.Shadow || r.Kind == rules.Hours {
				continue
			}
			if left := s.set.Room(&s.memory.state, rule, d.now); found == nowhere || left < least {
				found, least = place{i, rule}, left
			}
		}
	}
	return found
}

func (d *memoryDecision) spend(slot int64, shadows bool) {
	for _, s := range d.subjects {
		s.set.Spend(&s.memory.state, rules.At(slot), s.cost, shadows)
		s.save(d.now)
	}
}

func (d *memoryDecision) spendRefused() {
	for _, s := range d.subjects {
		if s.set.SpendRefused(&s.memory.state, d.now, s.cost) {
			s.save(d.now)
		}
	}
}
