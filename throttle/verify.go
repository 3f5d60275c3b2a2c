package throttle

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// An Event is one start in a log that [Verify] checks.
type Event struct {
	Subject string    // whose start it was: every rule counts each subject by itself
	At      time.Time // when it started
	Cost    int       // what it cost; 0 means 1
}

// A Violation is a place in a log where a rule was broken.
type Violation struct {
	Subject string
	Rule    Rule
	At      time.Time // the start that should not have been
	Detail  string    // what was seen there
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: %s broken at %s: %s", v.Subject, v.Rule, v.At.Format(time.RFC3339Nano), v.Detail)
}

// Verify checks a log of starts, and returns every start that broke a rule, in order of subject,
// rule and time. The log needs no order. Verify is written from the definitions of the rules and
// shares no code with the scripts.
//
// Leaks and token buckets hold for slots, and a start is always a little after its slot: so give
// Verify the slots for these rules. They may be off by one microsecond, the resolution of slots.
// A sliding counter is checked against its own estimate, not against the window that it
// approximates. Hours are alternatives: of several, one has to be open. Shadow rules are ignored.
func Verify(events []Event, rules []Rule) []Violation {
	bySubject := make(map[string][]Event)
	for _, e := range events {
		if e.Cost == 0 {
			e.Cost = 1
		}
		bySubject[e.Subject] = append(bySubject[e.Subject], e)
	}
	var found []Violation
	hours := slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return r.kind != KindHours || r.shadow })
	for _, log := range bySubject {
		slices.SortStableFunc(log, func(a, b Event) int { return a.At.Compare(b.At) })
		for _, r := range rules {
			found = append(found, verify(log, r)...)
		}
		if len(hours) > 0 && !slices.ContainsFunc(hours, func(r Rule) bool { return r.zone == "user" }) {
			found = append(found, verifyHours(log, hours)...)
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return strings.Compare(a.Subject, b.Subject) })
	return found
}

// verify checks one rule on one subject's starts, oldest first.
func verify(log []Event, r Rule) []Violation {
	if r.shadow || r.zone == "user" { // whose clock that is the log does not say
		return nil
	}
	switch r.kind {
	case KindLeak:
		return verifyLeak(log, r)
	case KindTokenBucket:
		return verifyTokenBucket(log, r)
	case KindWindow:
		return verifyWindow(log, r)
	case KindSpacing:
		return verifySpacing(log, r)
	case KindFixedWindow:
		return verifyFixedWindow(log, r)
	case KindSlidingCounter:
		return verifySlidingCounter(log, r)
	case KindCalendar:
		return verifyCalendar(log, r)
	case KindWarmup:
		return verifyWarmup(log, r)
	}
	return nil
}

// grain is that of slots.
const grain = time.Microsecond

func verifyWindow(log []Event, r Rule) (found []Violation) {
	oldest, sum := 0, 0
	for _, e := range log {
		sum += e.Cost
		for e.At.Sub(log[oldest].At) >= r.period {
			sum -= log[oldest].Cost
			oldest++
		}
		if sum > r.limit {
			found = append(found, Violation{e.Subject, r, e.At,
				fmt.Sprintf("%d within %v", sum, e.At.Sub(log[oldest].At))})
		}
	}
	return found
}

func verifySpacing(log []Event, r Rule) (found []Violation) {
	for i := 1; i < len(log); i++ {
		if d := log[i].At.Sub(log[i-1].At); d < r.period {
			found = append(found, Violation{log[i].Subject, r, log[i].At,
				fmt.Sprintf("%v after the one before", d)})
		}
	}
	return found
}

// A meter counts units that leave at a rate, exactly: the instant at which the last has
// left, in nanoseconds and n-ths of one.
type meter struct {
	rule     Rule
	at, rest int64
}

func (m *meter) add(units int) {
	n, period := int64(m.rule.limit), int64(m.rule.period)
	ticks := m.rest + int64(units)*(period%n)
	m.at += int64(units)*(period/n) + ticks/n
	m.rest = ticks % n
}

// restart lets a run of units begin at t.
func (m *meter) restart(t time.Time) { m.at, m.rest = t.UnixNano(), 0 }

// ahead is how long after t the last unit leaves.
func (m *meter) ahead(t time.Time) time.Duration { return time.Duration(m.at - t.UnixNano()) }

// verifyLeak follows a run of starts in which the bucket never was idle: no unit of cost
// may leave before those in front of it.
func verifyLeak(log []Event, r Rule) (found []Violation) {
	run := meter{rule: r}
	for _, e := range log {
		early := run.ahead(e.At)
		if early < -grain {
			run.restart(e.At)
		} else if early > grain {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%v before its turn", early)})
		}
		run.add(e.Cost)
	}
	return found
}

// verifyTokenBucket fills the bucket again: tokens that are missing come back at the
// rate, and never may more be missing than it holds.
func verifyTokenBucket(log []Event, r Rule) (found []Violation) {
	run, empty := meter{rule: r}, meter{rule: r}
	empty.add(r.burst)
	for _, e := range log {
		if run.ahead(e.At) < 0 {
			run.restart(e.At)
		}
		before := run
		run.add(e.Cost)
		if lacking := run.ahead(e.At) - time.Duration(empty.at); lacking > grain {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%v before its tokens", lacking)})
			run = before
		}
	}
	return found
}

func verifyFixedWindow(log []Event, r Rule) (found []Violation) {
	var start time.Time
	sum := 0
	for _, e := range log {
		if s := startOf(e.At, r.period); !s.Equal(start) {
			start, sum = s, 0
		}
		if sum += e.Cost; sum > r.limit {
			found = append(found, Violation{e.Subject, r, e.At,
				fmt.Sprintf("%d in the period that began at %s", sum, start.UTC().Format(time.RFC3339Nano))})
		}
	}
	return found
}

// verifySlidingCounter counts each bucket and sums up those that reach back one period.
func verifySlidingCounter(log []Event, r Rule) (found []Violation) {
	length := r.period
	if r.buckets > 2 {
		length = (r.period + time.Duration(r.buckets)*time.Microsecond - 1) / time.Duration(r.buckets)
		length = length.Truncate(time.Microsecond)
	}
	counts := make(map[time.Time]int)
	for _, e := range log {
		start := startOf(e.At, length)
		counts[start] += e.Cost
		estimate := float64(counts[start])
		for back := 1; back < r.buckets; back++ {
			weight := 1.0
			if r.buckets == 2 {
				weight = 1 - float64(e.At.Sub(start))/float64(length)
			}
			estimate += weight * float64(counts[start.Add(-time.Duration(back)*length)])
		}
		// A millionth is more than the fractions lose, and less than any count.
		if estimate > float64(r.limit)+1e-6 {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("an estimate of %.2f", estimate)})
		}
	}
	return found
}

// startOf is when the period around t began: periods are counted from the Unix epoch.
func startOf(t time.Time, period time.Duration) time.Time {
	return time.Unix(0, t.UnixNano()/int64(period)*int64(period))
}
