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

// Verify proves from a log of starts that the rules were kept, or returns every start
// that broke one, in order of subject, rule and time. The log needs no order. It is
// written from the definitions of the rules and shares nothing with the scripts.
//
// A leak is a promise about slots: give it those, since a start is always a little
// after its slot. It is allowed one microsecond, the grain of slots.
func Verify(events []Event, rules []Rule) []Violation {
	bySubject := make(map[string][]Event)
	for _, e := range events {
		if e.Cost == 0 {
			e.Cost = 1
		}
		bySubject[e.Subject] = append(bySubject[e.Subject], e)
	}
	var found []Violation
	for _, log := range bySubject {
		slices.SortStableFunc(log, func(a, b Event) int { return a.At.Compare(b.At) })
		for _, r := range rules {
			found = append(found, verify(log, r)...)
		}
	}
	slices.SortStableFunc(found, func(a, b Violation) int { return strings.Compare(a.Subject, b.Subject) })
	return found
}

// verify checks one rule on one subject's starts, oldest first.
func verify(log []Event, r Rule) []Violation {
	switch r.kind {
	case kindLeak:
		return verifyLeak(log, r)
	case kindWindow:
		return verifyWindow(log, r)
	case kindSpacing:
		return verifySpacing(log, r)
	}
	return nil
}

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

// verifyLeak follows a run of starts in which the bucket never was idle: the k-th unit
// of cost must not leave before k periods / n have passed since the first.
func verifyLeak(log []Event, r Rule) (found []Violation) {
	const grain = time.Microsecond
	var first time.Time
	units := 0
	for _, e := range log {
		// units × period stays within int64: a run that long would last centuries.
		due := first.Add(time.Duration(float64(units) * float64(r.period) / float64(r.limit)))
		if units == 0 || e.At.After(due.Add(grain)) {
			first, units = e.At, 0
		} else if early := due.Sub(e.At); early > grain {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%v before its turn", early)})
		}
		units += e.Cost
	}
	return found
}
