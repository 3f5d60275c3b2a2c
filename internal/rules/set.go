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
	remembers              bool // some rule has a state that is written: all but hours and grants have
	hours                  int  // the rule that stands for all hours that defer; -1 if there are none
}

// kinds has the algorithm of each kind of rule.
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
	Granted:        {code: noCode, kind: granted{}, paced: true},
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
		s.remembers = s.remembers || r.Kind != Hours && r.Kind != Granted
	}
	return s
}

func newRule(r Rule, slack int64) rule {
	if r.Kind == Warmup {
		r, slack = r.Tidied(), max(slack, r.Guard.Microseconds())
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
	case Granted:
		c.top = math.MaxInt
		return c
	case Leak, Spacing:
		c.top = math.MaxInt
		if r.Ramp > 0 {
			c.kind, c.ramp = ramp{}, r.Ramp.Microseconds()
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
	c.guard = max(c.guard, r.Guard.Microseconds())
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

// Remembers reports whether some rule has a state that is written: all but hours and grants have.
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
