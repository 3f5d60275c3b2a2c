package policies

import (
	"fmt"
	"slices"
	"time"
)

// A start is what the log has of a call that was made.
type start struct {
	call
	at, until time.Time // when it began and ended
}

// A promise is what a service says of calls that have a key in common.
type promise struct {
	name string
	of   counting

	// keeps judges the calls of one key, in order of time. It returns what is wrong, or "", and reports whether all that
	// is promised was used up. A call may start so much later than it was let.
	keeps func(calls []counted, late time.Duration) (wrong string, full bool)

	running bool // it is about how many run at once, not how many begin
}

// A counted call counts n.
type counted struct {
	start
	n int
}

// most says that at most so many are counted within any period: between two calls that are closer.
func most(name string, of counting, limit int, period time.Duration) promise {
	return promise{name: name, of: of, keeps: func(calls []counted, _ time.Duration) (string, bool) {
		sum, first, highest := 0, 0, 0
		for _, c := range calls {
			sum += c.n
			for ; c.at.Sub(calls[first].at) >= period; first++ {
				sum -= calls[first].n
			}
			highest = max(highest, sum)
			if sum > limit {
				return fmt.Sprintf("%d within %v, from %s on; at most %d may", sum, period, clock(calls[first].at), limit), true
			}
		}
		return "", highest == limit
	}}
}

// bucket says that a bucket of a size never overflows into which each call pours what it counts, and which runs out at so
// many a period. A call may come late, which makes it closer to the one that follows.
func bucket(name string, of counting, size, rate int, period time.Duration) promise {
	return promise{name: name, of: of, keeps: func(calls []counted, late time.Duration) (string, bool) {
		perNanosecond := float64(rate) / float64(period)
		level, highest := 0.0, 0.0
		for i, c := range calls {
			if i > 0 {
				level = max(0, level-perNanosecond*float64(c.at.Sub(calls[i-1].at)))
			}
			level += float64(c.n)
			highest = max(highest, level)
			if allowed := float64(size) + perNanosecond*float64(late+time.Microsecond); level > allowed {
				return fmt.Sprintf("%.2f are in a bucket of %d at %s", level, size, clock(c.at)), true
			}
		}
		return "", highest > float64(size)*0.9
	}}
}

// atOnce says that at most so many run at once.
func atOnce(name string, of counting, limit int) promise {
	return promise{name: name, of: of, running: true, keeps: func(calls []counted, _ time.Duration) (string, bool) {
		highest := 0
		var ends []time.Time // of those that run
		for _, c := range calls {
			ends = slices.DeleteFunc(ends, func(end time.Time) bool { return !end.After(c.at) })
			ends = append(ends, c.until)
			highest = max(highest, len(ends))
			if len(ends) > limit {
				return fmt.Sprintf("%d run at once at %s; at most %d may", len(ends), clock(c.at), limit), true
			}
		}
		return "", highest == limit
	}}
}

// judge returns which promises the log breaks, and which of them no key has used up.
func judge(promises []promise, log []start, late time.Duration) (broken, unused []string) {
	log = slices.SortedStableFunc(slices.Values(log), func(a, b start) int { return a.at.Compare(b.at) })
	for _, p := range promises {
		keys := make(map[string][]counted)
		for _, s := range log {
			if key, n := p.of(s.job); key != "" {
				keys[key] = append(keys[key], counted{s, n})
			}
		}
		used := false
		for key, calls := range keys {
			wrong, full := p.keeps(calls, late)
			used = used || full
			if wrong != "" {
				broken = append(broken, fmt.Sprintf("%s of %s: %s", p.name, key, wrong))
			}
		}
		if !used {
			unused = append(unused, p.name)
		}
	}
	return broken, unused
}

// wait returns how long the slowest but one in a hundred of some calls waited.
func wait(log []start, begin time.Time) time.Duration {
	var waits []time.Duration
	for _, s := range log {
		waits = append(waits, s.at.Sub(begin.Add(s.after)))
	}
	if len(waits) == 0 {
		return 0
	}
	slices.Sort(waits)
	return waits[(len(waits)*99+99)/100-1]
}

func clock(t time.Time) string { return t.Format("15:04:05.000000") }
