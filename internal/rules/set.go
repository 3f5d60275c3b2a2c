package rules

import (
	"math"
	"time"
)

// A Set is the compiled rules of a subject. It never changes and may be shared. A nil Set
// has no rules.
type Set struct {
	rules                  []rule
	logs                   [sides]look // what the rules look at in each log
	drops, counts, shadows bool
	again                  bool // some rule does not allow all instants behind one that it allows
	remembers              bool // some rule has a state: all but hours have
	hours                  int  // the rule that stands for all hours that defer; -1 if there are none
}

// A look is what rules look at in a log.
type look struct {
	keep, span int64
	step       int64 // slots within one step of the clock are kept as one; 0 if each is kept
	exact      bool  // a small window needs each
}

// coarsen lets the log of a window count in steps, unless a window that looks at the same log is
// small.
func (l *look) coarsen(n, period int64) {
	switch step := period / mostSlots; {
	case n <= mostSlots:
		l.step, l.exact = 0, true
	case l.exact:
	case l.step == 0:
		l.step = step
	default:
		l.step = min(l.step, step)
	}
}

// mostSlots is how many slots of a large window are kept, about: a state is read and written as a
// whole.
const mostSlots = 1000

// A rule is a Rule, compiled.
type rule struct {
	Rule
	name   string
	kind   kind
	id     id   // names its field in a State
	side   side // its log, and its world
	logged bool // windows and spacings
	paced  bool // leaks and token buckets: they count slots
	top    int  // costs above it count as all of it
	pace
	length int64          // of one period or bucket, counted from the epoch
	guard  int64          // no slot lies within so much of its end
	zone   *time.Location // of a calendar window: its periods are those of a calendar there
	plans  []plan         // of hours: one of them has to be open
	ramp   int64          // of a leak that has one
	stages []stage        // of a warm-up
}

// A kind is what an algorithm does. The first two answer, the others change the state of
// the subject.
type kind interface {
	// when returns the first instant >= t at which the rule admits cost, at most r.top.
	when(st *State, r *rule, t, cost int64) int64
	// full returns the instant from which the rule cannot tell the state from none.
	full(st *State, r *rule) int64
	// spend counts an action.
	spend(st *State, r *rule, a action)
	// undo gives the slot t back.
	undo(st *State, r *rule, t, cost int64)
}

// A Spent is a slot that was taken, and by when its action starts: at the slot, as a rule. Leaks and token buckets count the slot, all
// others the latest instant at which the action may start.
type Spent struct{ Slot, Latest int64 }

// At returns an action that starts at its slot.
func At(slot int64) Spent { return Spent{slot, slot} }

// at returns what a rule counts.
func (s Spent) at(r *rule) int64 {
	if r.paced {
		return s.Slot
	}
	return s.Latest
}

// An action starts at an instant and costs something, or was refused then.
type action struct {
	at, cost int64
	refused  bool
}

var kinds = map[Kind]struct {
	code  id
	kind  kind
	paced bool // it counts slots ([Spent])
}{
	Leak:           {codeLeak, leak{}, true},
	TokenBucket:    {codeTokenBucket, tokenBucket{}, true},
	FixedWindow:    {code: codeFixedWindow, kind: fixedWindow{}},
	SlidingCounter: {code: codeSlidingCounter, kind: slidingCounter{}},
	Calendar:       {code: codeFixedWindow, kind: fixedWindow{}},
	Warmup:         {code: codeFixedWindow, kind: warmup{}},
	Hours:          {code: noCode, kind: hours{}},
	Window:         {kind: window{}},
	Spacing:        {kind: spacing{}},
}

// noCode is that of a kind that remembers nothing.
const noCode = id(1 << 30)

// guardFactor: a period that is shorter than so many slacks gets no guard, which would
// take too much of it.
const guardFactor = 4

// Compile returns the rules as a set for subjects whose actions start up to slack after
// their slots. Windows and spacings are wider by slack. Fixed windows and sliding counters
// give no slot within the last slack of a period (of a bucket), unless it is short, so that
// the start falls into the period that counted it; hours give none within the last slack before they close.
//
// With a slack, windows of more than a thousand are counted in steps of a thousandth of the shortest
// of their periods: what started within one step counts as if all of it had started with the last of
// it. So a slot comes later by up to a step, and a state stays small.
//
// Hours are alternatives, and become one rule of the set, in the place of the first of them.
func Compile(slack time.Duration, rs ...Rule) *Set {
	s := &Set{rules: make([]rule, 0, len(rs)), hours: -1}
	seen := make(map[id]id)
	hours := -1
	for _, r := range rs {
		c := newRule(r, slack.Microseconds())
		switch {
		case r.Kind == Hours && hours >= 0:
			s.rules[hours].or(c)
			continue
		case r.Kind == Hours:
			hours = len(s.rules)
			if !r.Drop && !r.Shadow {
				s.hours = hours
			}
		case c.logged:
			log := &s.logs[c.side]
			log.keep, log.span = max(log.keep, c.n+1), max(log.span, c.period)
			if r.Kind != Spacing && slack > 0 {
				log.coarsen(c.n, c.shortest())
			}
		default:
			c.id |= seen[c.id] << idBits
			seen[c.id&(1<<idBits-1)]++
		}
		for i := range c.stages {
			c.stages[i].id = c.id
		}
		s.rules = append(s.rules, c)
		s.drops = s.drops || r.Drop && !r.Shadow
		s.counts = s.counts || r.Counts && !r.Shadow
		s.shadows = s.shadows || r.Shadow
		s.again = s.again || c.guard > 0 || r.Kind == Hours || r.Kind == Warmup
		s.remembers = s.remembers || r.Kind != Hours
	}
	return s
}

func newRule(r Rule, slack int64) rule {
	if r.Kind == Warmup {
		r = r.Tidied()
	}
	known := kinds[r.Kind]
	c := rule{Rule: r, name: r.brief(), kind: known.kind, paced: known.paced, id: known.code << 1, top: r.Most()}
	period := r.Period.Microseconds()
	switch {
	case r.Shadow:
		c.side, c.id = shadow, c.id|1
	case r.Counts:
		c.side = counting
	}
	switch r.Kind {
	case Leak, Spacing:
		c.top = math.MaxInt
		if r.Ramp > 0 {
			c.kind, c.ramp, c.id = ramp{}, r.Ramp.Microseconds(), c.id-codeLeak<<1+codeRamp<<1
		}
	case Hours:
		c.top, c.plans = math.MaxInt, []plan{newPlan(r)}
		if !r.Shadow {
			c.guard = slack
		}
		return c
	case FixedWindow:
		c.length = period
	case Calendar:
		c.length, c.zone = period, zoneOf(r)
	case Warmup:
		c.stages = newStages(r, slack)
		if r.Unit != "" {
			c.length, c.zone = period, zoneOf(r)
		}
	case SlidingCounter:
		c.length = period
		if r.Buckets > 2 {
			c.length = (period + int64(r.Buckets) - 1) / int64(r.Buckets)
		}
	}
	if r.Kind == Window || r.Kind == Spacing || r.Kind == Warmup && r.Unit == "" {
		c.logged = true
		period += slack
	}
	if c.length > guardFactor*slack && !r.Shadow {
		c.guard = slack
	}
	c.pace = newPace(int64(r.Limit), period)
	return c
}

// list returns the rules of a set, none of a nil one.
func (s *Set) list() []rule {
	if s == nil {
		return nil
	}
	return s.rules
}

// Len returns how many rules the set has.
func (s *Set) Len() int { return len(s.list()) }

// Rule returns the i-th rule.
func (s *Set) Rule(i int) Rule { return s.rules[i].Rule }

// Name returns the i-th rule as [Rule.String] writes it.
func (s *Set) Name(i int) string { return s.rules[i].name }

// Remembers reports whether some rule has a state: all but hours have.
func (s *Set) Remembers() bool { return s != nil && s.remembers }

// Drops reports whether a rule drops what it would defer.
func (s *Set) Drops() bool { return s != nil && s.drops }

// Counts reports whether a rule counts what was refused.
func (s *Set) Counts() bool { return s != nil && s.counts }

// Shadows reports whether a rule only watches.
func (s *Set) Shadows() bool { return s != nil && s.shadows }

// Most returns the most that the i-th rule can ever admit at once: 1 for a leak and a
// spacing.
func (s *Set) Most(i int) int { return s.rules[i].Most() }

// Impossible returns the index of the first rule that can never admit cost, or -1, see
// [Rule.Impossible].
func (s *Set) Impossible(cost int) int {
	for i := range s.list() {
		if s.rules[i].Rule.Impossible(cost) {
			return i
		}
	}
	return -1
}
