package throttle

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Run is one job in a log that [VerifyConcurrency] checks.
type Run struct {
	Subject string    // whose job it was: each subject counts by itself
	From    time.Time // when it started
	Until   time.Time // when it ended; the zero time if it has not
}

// An Excess is an instant in a log at which more ran than may.
type Excess struct {
	Subject string
	At      time.Time // the start that should not have been
	Running int       // how many ran then, with it
}

func (e Excess) String() string {
	return fmt.Sprintf("%s: %d at once at %s", e.Subject, e.Running, e.At.Format(time.RFC3339Nano))
}

// VerifyConcurrency checks in a log of starts and ends that at most n jobs of each subject ran at
// once, and returns every start above n, in order of subject and time. The log needs no order. A
// job that starts at the instant at which another one ends does not run at the same time.
func VerifyConcurrency(runs []Run, n int) (found []Excess) {
	bySubject := make(map[string][]Run)
	for _, r := range runs {
		bySubject[r.Subject] = append(bySubject[r.Subject], r)
	}
	for subject, log := range bySubject {
		slices.SortFunc(log, func(a, b Run) int { return a.From.Compare(b.From) })
		var beside []Run // those that ran when the last one started
		for _, r := range log {
			beside = slices.DeleteFunc(beside, func(b Run) bool { return !b.Until.IsZero() && !b.Until.After(r.From) })
			if beside = append(beside, r); len(beside) > n {
				found = append(found, Excess{subject, r.From, len(beside)})
			}
		}
	}
	slices.SortFunc(found, func(a, b Excess) int {
		return cmp.Or(cmp.Compare(a.Subject, b.Subject), a.At.Compare(b.At))
	})
	return found
}
