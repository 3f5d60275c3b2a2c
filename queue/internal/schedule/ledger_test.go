package schedule_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/waterclock/waterclock/internal/rules"
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

const minute = 60_000_000

// nextMinute returns when the next minute begins.
func nextMinute(at int64) int64 { return (at/minute + 1) * minute }

// open tells whether hours are open: those of the model are closed for one of five minutes. Each has one of three, so
// that there are always two of five in which all are open.
func (l limit) open(at int64) bool { return at/minute%5 != l.n }

// closedFor are hours that are closed for a minute of five.
func closedFor(n int64) rules.Rule {
	var spans []string
	for m := n + 1; m < n+24*60; m += 5 {
		spans = append(spans, fmt.Sprintf("%02d:%02d-%02d:%02d", m/60%24, m%60, (m+4)/60%24, (m+4)%60))
	}
	return rules.Rule{Kind: rules.Hours, Hours: strings.Join(spans, ","), Zone: "UTC"}
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

	surplus bool // a job was given back that was not counted
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
	case rules.Hours:
		for !l.open(from) || !l.open(from+schedule.Grace) {
			from = nextMinute(from)
		}
		return from
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
// than was spent: that of a slot ahead of the first that newer rules counted; and
// that of a cost above what a log keeps, where longer rules were in force before; that of a slot in the
// period of a fixed window that came into force later in it; and that of a job which the limit by name did
// not count when it started.
const lenient = true

// foreign tells whether a slot ahead that other rules had counted was given back.
func (led *ledger) foreign() bool {
	for _, s := range led.starts {
		if s.gone && s.era < led.era && s.at > led.since || s.gone && led.era > 0 && s.cost > 1 {
			return true
		}
		for _, l := range led.limits {
			if s.gone && s.era < led.era && l.kind == rules.FixedWindow && s.at/l.period >= led.since/l.period {
				return true
			}
		}
	}
	return led.surplus
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

// soon returns the first instant that limits allow which drop, if that comes by an instant, or by the newest start.
func (led *ledger) soon(t, by, cost int64, upper bool) int64 {
	if lenient && !upper && led.foreign() {
		return t
	}
	for _, s := range led.counted(led.starts, upper, 0) {
		by = max(by, s.at)
	}
	for _, l := range led.limits {
		if !l.drop {
			continue
		}
		at := l.first(led, t, cost, upper)
		if l.guarded() {
			at = l.off(at)
		}
		if at <= by {
			t = at
		}
	}
	return t
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

// closes tells whether hours that drop are closed at an instant.
func (led *ledger) closes(at int64) bool {
	return slices.ContainsFunc(led.limits, func(l limit) bool { return l.drop && l.kind == rules.Hours && l.first(led, at, 1, true) > at })
}

// spend counts a start: by the latest instant at which it may happen, and by its slot where that is what is paid.
func (led *ledger) spend(id int, slot, latest, cost int64) {
	add := func(all []spend, at int64) []spend {
		odd := slices.ContainsFunc(all, func(s spend) bool { return s.at > at })
		return append(all, spend{id: id, at: at, cost: cost, era: led.era, odd: odd})
	}
	led.starts, led.paid = add(led.starts, latest), add(led.paid, slot)
}

// refund takes a start back.
func refund(all []spend, id int) {
	newest := int64(0)
	for _, s := range all {
		if !s.gone {
			newest = max(newest, s.at)
		}
	}
	for i := range all {
		if s := &all[i]; s.id == id && !s.gone {
			s.gone, s.newest, s.last = true, newest, s.at == newest && !s.odd
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
