package throttle

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// Callers that say who they are ([Request.By]) take turns at a subject that lets less start than they want. Whoever has been served
// least, by its weight, takes all that is near. The others are told when their turn may come.
//
//	served   what a caller has taken of the subject, divided by its weight. It saves nothing up while it wants nothing: when it comes back
//	         it is served as much as the least of those who have stayed, at least
//	turn     a caller has it if no other one that wants slots has been served less. It is decided once in a call
//	quantum  the slots that a caller takes at once, of a rule whose slots pass: it waits until all of them are near. One by one, each slot would
//	         take a call of its own. (The quantum of deficit round robin.)
//	again    when to ask again: when the quantum comes within reach that the others leave who have been served less
//
// Slots are handed out in their order. So nobody gets one before the first that is of use to a caller that is farther away: while it has its turns,
// what is near for it is near for all.
//
// A slot is not lost because whose turn it is does not come: who comes when it is about to pass takes it, whoever that is. A caller
// that has not asked by the time it was told, and some time more, wants nothing.
//
// turns.lua and ask.lua do the same in Redis.
const (
	// turnUnit is what one unit costs a caller of weight 1.
	turnUnit = 1_000_000
	// turnShare is the part of a caller's reach in which its quantum lies. The rest is for callers that are late: the first slots of a quantum must
	// not be over when they ask.
	turnShare = 0.375
	// turnMost is how many more slots a caller wants that says so ([Request.More]).
	turnMost = 64
	// turnPatience is how long what does not pass is left to those whose turn it is.
	turnPatience = 10 * time.Millisecond
	// turnAbsence is how late a caller may ask again, in order to be waited for.
	turnAbsence = 10 * time.Millisecond
	// turnFarthest is how far ahead the only slot of a caller may be that is not near.
	turnFarthest = time.Second
	// turnLongest and turnShortest bound for how long a caller leaves slots to others, which may be gone meanwhile: slots that pass, and
	// others.
	turnLongest  = 50 * time.Millisecond
	turnShortest = 2 * time.Millisecond
	// turnsKept is for how long turns are remembered.
	turnsKept = 10 * time.Second
)

// turns are those of the callers of one subject.
type turns struct {
	least   int64 // nobody who wants slots has been served less
	callers map[string]*caller
	expires int64
}

// A caller has been served so much, by its weight. It wants slots until an instant, its newest is at last, and slots are of use to it that lie
// so far ahead.
type caller struct{ served, weight, until, last, after int64 }

// wants reports whether a caller waits for its turn. An instant that lies further ahead is from before the clock was set back.
func (c *caller) wants(now int64) bool {
	return c.until >= now && c.until <= now+(turnFarthest+turnAbsence).Microseconds()
}

// A turn is what a caller may do in one call.
type turn struct {
	*caller
	of    *turns
	reach int64 // how far ahead slots are of use to all who want some
	has   bool  // it is the caller's turn
	taken bool  // it has taken something
}

// enter begins a call.
func (t *turns) enter(who string, weight, now, after int64) *turn {
	least, others, reach := int64(rules.Never), false, after
	for name, c := range t.callers {
		switch {
		case name == who:
		case c.wants(now):
			least, others, reach = min(least, c.served), true, max(reach, c.after)
		case c.served <= t.least:
			delete(t.callers, name)
		}
	}
	me := t.callers[who]
	if me == nil {
		me = &caller{}
		t.callers[who] = me
	}
	if !me.wants(now) {
		me.served = max(me.served, t.least)
	}
	me.weight, me.until, me.after = weight, now, after
	t.least = max(t.least, min(least, me.served))
	t.expires = now + turnsKept.Microseconds()
	return &turn{caller: me, of: t, reach: reach, has: !others || me.served <= least}
}

// takes notes that a slot was taken.
func (t *turn) takes(slot, cost int64) {
	t.served += cost * turnUnit / t.weight
	t.last = max(t.last, slot)
	t.taken = true
}

// A turnRule is a rule that binds callers who take turns, with its period under the slack of its subject, in µs.
type turnRule struct {
	Rule
	period int64
}

// span returns how long the rule takes to let so many start, in µs.
func (r turnRule) span(units int64) int64 {
	return int64(math.Floor(float64(units) * float64(r.period) / float64(r.limit)))
}

// quantum returns how many slots are a quantum for a caller that wants so many.
func (r turnRule) quantum(within, wanted int64) int64 {
	if !r.passes() {
		return 1
	}
	return min(wanted, 1+int64(math.Floor(float64(within)*turnShare*float64(r.limit)/float64(r.period))))
}

// again returns for how long the caller should wait, in µs, until its next quantum is near. The next slot is near in far µs. Others whose turn comes
// before take quanta until they have been served as much: one at least.
func (t *turn) again(now, far, within, wanted int64, r turnRule) int64 {
	quantum, units := r.quantum(within, turnMost), int64(0)
	for _, c := range t.of.callers {
		if less := t.served - c.served; c.wants(now) && (less > 0 || less == 0 && c.last < t.last) {
			units += max(1, (less*c.weight/turnUnit+quantum-1)/quantum) * quantum
		}
	}
	rest := r.span(units)
	if !r.passes() {
		return max(far, min(rest, turnShortest.Microseconds()), 0)
	}
	return max(far+min(rest, turnLongest.Microseconds())+r.span(min(quantum, wanted)-1), 0)
}

// passes reports whether a slot that nobody takes is lost.
func (r Rule) passes() bool {
	switch r.kind {
	case KindLeak, KindSpacing:
		return true
	case KindTokenBucket:
		return time.Duration(r.burst)*(r.period/time.Microsecond)/time.Duration(r.limit) < turnPatience/time.Microsecond
	}
	return false
}

// windowed reports whether a rule counts what starts within a time.
func (r Rule) windowed() bool {
	return r.kind == KindWindow || r.kind == KindFixedWindow || r.kind == KindSlidingCounter || r.kind == KindCalendar || r.kind == KindWarmup
}

// weight returns the weight of whoever asks.
func (s Subject) weight() int64 { return int64(cmp.Or(s.Weight, 1)) }

// A turnCall is a call of [Limiter.ReserveMany]: it has its turns once.
type turnCall struct {
	of   map[string]*turns
	now  int64
	has  map[string]*turn
	last int64 // the slot that it has taken last; 0 for none
	held *heldRun
}

// turn returns what the caller of a request may do at one of its subjects, which is nil if nobody has taken turns there and that is not
// necessary.
func (c *turnCall) turn(r request, subject int, necessary bool) *turn {
	s := r.subjects[subject]
	if has := c.has[s.Key]; has != nil {
		return has
	}
	t := c.of[s.Key]
	if t != nil && c.now >= t.expires {
		t = nil
	}
	if t == nil && !necessary {
		return nil
	}
	if t == nil {
		t = &turns{callers: make(map[string]*caller)}
		c.of[s.Key] = t
	}
	if c.has == nil {
		c.has = make(map[string]*turn)
	}
	c.has[s.Key] = t.enter(r.by, s.weight(), c.now, r.bounds.after.Microseconds())
	return c.has[s.Key]
}

// A heldRun is a request that has to wait. Behind it those of the same subjects wait with it: a lower cost does not overtake.
type heldRun struct {
	request
	ruling
}

// holds reports whether a request has to wait with the one before.
func (h *heldRun) holds(r request) bool {
	return h != nil && slices.EqualFunc(h.subjects, r.subjects, Subject.same)
}

// runAt returns how many requests from one on differ in nothing.
func runAt(requests []request, i int) int64 {
	n := 1
	for i+n < len(requests) && requests[i+n].goesOn(requests[i]) {
		n++
	}
	return int64(n)
}

// ask answers a request, the first of so many that differ in nothing, and spends if the caller takes the slot.
func (c *turnCall) ask(d *memoryDecision, r request, wanted int64) ruling {
	if c.held.holds(r) {
		return c.held.ruling
	}
	from, within := d.now+r.bounds.after.Microseconds(), r.bounds.within.Microseconds()
	first := from
	if c.last > 0 {
		first = max(from, c.last+r.gap)
	}
	slot, binding := d.admitted(first)
	known, any := make([]*turn, len(r.subjects)), false
	for i := range known {
		known[i] = c.turn(r, i, binding.subject == i)
		any = any || known[i] != nil
	}
	if binding == nowhere && any { // perhaps it has become free just now
		_, binding = d.earliest(first - turnPatience.Microseconds())
	}
	found := ruling{now: d.now, slot: slot, full: d.now, next: d.now, binding: nowhere, objector: nowhere, taken: slot-from <= within}
	var mine *turn
	var rule turnRule
	if binding != nowhere {
		if known[binding.subject] == nil {
			known[binding.subject] = c.turn(r, binding.subject, true)
		}
		mine = known[binding.subject]
		_, of := r.at(d.asked(binding))
		rule = turnRule{of, r.subjects[binding.subject].periodOf(of).Microseconds()}
		found.taken = mine.mayTake(slot-from, from, within, wanted, rule, len(r.subjects) == 1)
		from += mine.reach - mine.after
	}
	refusal := nowhere
	if found.taken {
		refusal = d.refusing(slot)
	}
	if refusal != nowhere {
		found.taken, mine = false, nil
	}
	if found.taken {
		for i, t := range known {
			if t != nil {
				t.takes(slot, int64(r.subjects[i].Cost))
			}
		}
		objector := d.objecting(slot)
		d.spend(slot, objector == nowhere)
		found.objector, c.last = d.asked(objector), slot
		if wanted > 1 {
			return found.timed()
		}
	}
	if mine != nil {
		next := slot
		if found.taken {
			next, wanted = mine.last, r.wantsMore()
		}
		found.again = mine.again(d.now, next-from-within, within, wanted, rule)
	}
	if !found.taken || r.more {
		c.awaits(known, found.again)
	}
	found = found.timed()
	if refusal != nowhere {
		found.outcome, found.binding = Dropped, d.asked(refusal)
	}
	if c.held = nil; !found.taken && refusal == nowhere {
		c.held = &heldRun{r, found}
	}
	return found
}

// wantsMore returns how many slots the caller of a request wants that has got all it has asked for.
func (r request) wantsMore() int64 {
	if r.more {
		return turnMost
	}
	return 1
}

// awaits notes until when others wait for the caller, which asks again in so many µs.
func (c *turnCall) awaits(known []*turn, again int64) {
	for _, t := range known {
		if t != nil {
			t.until = max(t.until, c.now+min(again, turnFarthest.Microseconds())+turnAbsence.Microseconds())
		}
	}
}

// mayTake reports whether the caller takes a slot that lies so far behind the first instant that is of use to it, and wants so many. Of a quantum
// all slots have to be near. A subject that decides alone may let it take one that is not, unless a rule counts: what is given back of a window can
// be used as long as none behind it was taken.
func (t *turn) mayTake(ahead, from, within, wanted int64, r turnRule, alone bool) bool {
	near := within + t.reach - t.after
	switch quantum := r.quantum(within, wanted); {
	case r.passes() && ahead <= within/3:
		return true
	case !t.has:
		return false
	case quantum > 1 && !t.taken:
		return ahead+r.span(quantum-1) <= near
	case ahead <= near:
		return true
	}
	return alone && !r.windowed() && !t.taken && t.last <= from+within && ahead <= turnFarthest.Microseconds()
}
