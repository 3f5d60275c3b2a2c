package throttle

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// memoryStore decides as decide.lua does, in the same steps and with the same names.
type memoryStore struct {
	mu       sync.Mutex
	subjects map[string]*memory
	sweep    int // decisions until the next sweep
	clock    func() time.Time
}

// NewMemoryStore returns a store that keeps state in this process, for tests and for
// programs that run alone. It answers as the Redis store does, decision by decision, on
// the process's clock. Idle subjects are forgotten.
func NewMemoryStore() Store {
	return &memoryStore{subjects: make(map[string]*memory), clock: time.Now}
}

// A memory is the state of a subject.
type memory struct {
	logs    map[string]*memoryLog // by side, "" is the subject's own
	states  map[string][]int64    // by field
	expires int64                 // when all of it is as none
	written bool                  // and not saved
}

// A memoryLog holds slots, oldest first.
type memoryLog struct{ slots []int64 }

func (s *memoryStore) decide(ctx context.Context, r request) (Decision, error) {
	if err := ctx.Err(); err != nil {
		return Decision{Outcome: Undecided}, fmt.Errorf("throttle: deciding: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.forget(now)
	return r.decision(s.rule(r, now))
}

func (s *memoryStore) decideMany(ctx context.Context, requests []request) ([]Decision, error) {
	decisions := make([]Decision, len(requests))
	for i, r := range requests {
		var err error
		if decisions[i], err = s.decide(ctx, r); err != nil {
			for j := i; j < len(requests); j++ {
				decisions[j] = Decision{Outcome: Undecided}
			}
			return decisions, err
		}
	}
	return decisions, nil
}

// rule finds out about one request, and spends.
func (s *memoryStore) rule(r request, now int64) ruling {
	d := s.open(r.subjects, now)
	slot, binding := d.earliest(now, r.cost)
	refusal := d.refusing(slot, r.cost)
	found := ruling{slot: slot, now: now, full: now}
	switch {
	case refusal != nil:
		found.outcome, binding = Dropped, refusal
	case slot > now:
		found.outcome = Deferred
	}
	objection := d.objecting(slot, r.cost)
	if objection != nil {
		found.objector, found.shadow = objection.subject, objection.place
	}
	spends := found.outcome == Admitted && r.verb != verbPeek ||
		found.outcome == Deferred && r.verb == verbReserve && micros(slot-now) <= horizon
	switch {
	case spends:
		d.spend(slot, r.cost, objection == nil)
	case r.verb == verbAllow || found.outcome == Dropped && r.verb == verbReserve:
		d.spendRefused(now, r.cost)
	}
	if binding == nil {
		binding = d.strictest(now)
	}
	if binding != nil {
		found.subject, found.rule = binding.subject, binding.place
		found.remaining, found.full = binding.room(now), binding.full()
	}
	d.save(now)
	return found
}

func (s *memoryStore) refund(_ context.Context, g *grant) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock().UnixMicro()
	s.forget(now)
	d := s.open(g.subjects, now)
	d.refund(g)
	d.save(now)
	return nil
}

func (s *memoryStore) reset(_ context.Context, keys []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		delete(s.subjects, key)
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
		if m.expire(now); len(m.logs) == 0 && len(m.states) == 0 {
			delete(s.subjects, key)
		}
	}
	s.sweep = 100 + len(s.subjects)
}

// expire drops what can no longer be told from nothing.
func (m *memory) expire(now int64) {
	if now >= m.expires {
		clear(m.logs)
		clear(m.states)
	}
}

// open gathers the rules of the subjects and their states.
func (s *memoryStore) open(subjects []Subject, now int64) *memoryDecision {
	d := &memoryDecision{memories: make([]*memory, len(subjects))}
	for i, subject := range subjects {
		m := s.subjects[subject.Key]
		if m == nil {
			m = &memory{logs: make(map[string]*memoryLog), states: make(map[string][]int64)}
			s.subjects[subject.Key] = m
		}
		m.expire(now)
		d.memories[i] = m
		seen := make(map[string]int)
		for j, rule := range subject.Rules {
			b := newBound(rule, m, seen)
			b.subject, b.place = i+1, j+1
			if rule.shadow {
				d.shadows = append(d.shadows, b)
			} else {
				d.rules = append(d.rules, b)
			}
		}
	}
	return d
}

// newBound binds a rule to the state that it looks at.
func newBound(rule Rule, m *memory, seen map[string]int) *bound {
	b := &bound{Rule: rule, memory: m, period: rule.period.Microseconds(), n: int64(rule.limit)}
	b.field = string(rule.kind)
	switch {
	case rule.shadow:
		b.side, b.field = "shadow", "shadow:"+b.field
	case rule.counts:
		b.side = "counting"
	}
	seen[b.field]++
	b.field = fmt.Sprint(b.field, seen[b.field])
	return b
}

// A memoryDecision is a request's rules, in its order.
type memoryDecision struct {
	memories       []*memory
	rules, shadows []*bound
}

func (d *memoryDecision) earliest(t int64, cost int) (int64, *bound) {
	var binding *bound
	for before := int64(-1); before != t; {
		before = t
		for _, b := range d.rules {
			if b.drop {
				continue
			}
			if at := b.whenClamped(t, cost); at > t {
				t, binding = at, b
			}
		}
	}
	return t, binding
}

func (d *memoryDecision) refusing(t int64, cost int) *bound {
	i := slices.IndexFunc(d.rules, func(b *bound) bool { return b.drop && b.whenClamped(t, cost) > t })
	if i < 0 {
		return nil
	}
	return d.rules[i]
}

func (d *memoryDecision) objecting(t int64, cost int) *bound {
	i := slices.IndexFunc(d.shadows, func(b *bound) bool {
		return cost > b.top() || b.whenClamped(t, cost) > t
	})
	if i < 0 {
		return nil
	}
	return d.shadows[i]
}

// strictest finds the rule that leaves the least room, the first of several.
func (d *memoryDecision) strictest(now int64) (found *bound) {
	least := 0
	for _, b := range d.rules {
		if left := b.room(now); found == nil || left < least {
			found, least = b, left
		}
	}
	return found
}

func (d *memoryDecision) spend(t int64, cost int, shadows bool) {
	d.take(d.rules, t, cost)
	if shadows {
		d.take(d.shadows, t, cost)
	}
}

func (d *memoryDecision) spendRefused(t int64, cost int) {
	d.take(slices.DeleteFunc(slices.Clone(d.rules), func(b *bound) bool { return !b.counts }), t, cost)
}

// take spends the rules; a log takes the slot once for all its rules.
func (d *memoryDecision) take(rules []*bound, t int64, cost int) {
	pushed := make(map[*memoryLog]bool)
	for _, b := range rules {
		if !b.logged() {
			b.spend(t, cost)
			continue
		}
		log := b.log()
		if log == nil {
			log = &memoryLog{}
			b.memory.logs[b.side] = log
		}
		if !pushed[log] {
			pushed[log] = true
			keep, _ := d.size(b)
			log.slots = append(log.slots, slices.Repeat([]int64{max(t, log.at(0))}, min(cost, keep))...)
			b.memory.written = true
		}
	}
}

func (d *memoryDecision) refund(g *grant) {
	rules := d.rules
	if !g.objected {
		rules = slices.Concat(rules, d.shadows)
	}
	done := make(map[*memoryLog]bool)
	for _, b := range rules {
		if !b.logged() {
			b.undo(g.slot, g.cost)
		} else if log := b.log(); log != nil && !done[log] {
			done[log] = true
			keep, span := d.size(b)
			removed := log.refund(g.slot, min(g.cost, keep), keep, span, b.side == "counting")
			b.memory.written = b.memory.written || removed
			if len(log.slots) == 0 {
				delete(b.memory.logs, b.side)
			}
		}
	}
}

// size returns how many slots a log keeps, one more than its rules look at, and for how long.
func (d *memoryDecision) size(of *bound) (keep int, span int64) {
	for _, b := range slices.Concat(d.rules, d.shadows) {
		if b.logged() && b.memory == of.memory && b.side == of.side {
			keep, span = max(keep, b.limit+1), max(span, b.period)
		}
	}
	return keep, span
}

// save trims what was written and sets when it expires, rounded up as in Redis.
func (d *memoryDecision) save(now int64) {
	for i, m := range d.memories {
		if !m.written {
			continue
		}
		m.written = false
		before, known := m.expires, make(map[string]bool)
		m.expires = now
		for _, b := range slices.Concat(d.rules, d.shadows) {
			if b.subject != i+1 {
				continue
			}
			if log := b.log(); b.logged() && log != nil {
				keep, _ := d.size(b)
				log.slots = log.slots[max(0, len(log.slots)-keep):]
			}
			known[b.part()] = true
			m.expires = max(m.expires, expiry(b.full(), now))
		}
		if m.hasMore(known) {
			m.expires = max(m.expires, expiry(before, now))
		}
	}
}

// hasMore tells whether there is more than the known parts: other rules looked at it, and
// may again.
func (m *memory) hasMore(known map[string]bool) bool {
	for side := range m.logs {
		if !known[logPart(side)] {
			return true
		}
	}
	for field := range m.states {
		if !known[field] {
			return true
		}
	}
	return false
}

// expiry is when a key whose state lives until full is gone: whole milliseconds from now.
func expiry(full, now int64) int64 {
	return now + 1000*max(1, (full-now+999)/1000)
}
