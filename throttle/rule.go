package throttle

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrInvalidRule is returned when a rule has numbers that mean nothing, such as zero
// per second.
var ErrInvalidRule = errors.New("throttle: invalid rule")

// kind names an algorithm. The scripts know it by the same name (kinds in rules.lua),
// and so do policies.
type kind string

const (
	kindLeak           kind = "leak"
	kindTokenBucket    kind = "token_bucket"
	kindWindow         kind = "window"
	kindSpacing        kind = "spacing"
	kindFixedWindow    kind = "fixed_window"
	kindSlidingCounter kind = "sliding_counter"
)

// A Rule is one limit. Make it with [Leak], [TokenBucket], [Window], [Spacing],
// [FixedWindow] or [SlidingCounter]. The zero value is not a rule.
//
// A rule over its limit defers: its slot lies ahead. [Rule.OrDrop] makes it drop,
// [Rule.AsShadow] makes it watch without saying no, and [Rule.CountingDropped] makes it
// count what was refused too.
type Rule struct {
	kind    kind
	limit   int
	period  time.Duration
	burst   int // of a token bucket
	buckets int // of a sliding counter
	drop    bool
	shadow  bool
	counts  bool
}

// Leak lets n actions start per period, evenly spaced, and saves nothing up: after an
// idle hour there is still no burst. It is the leaky bucket as a queue (GCRA without
// tolerance). Fractions of a microsecond are carried along, so that 7000 a second is
// exactly 7000 a second.
func Leak(n int, per time.Duration) Rule {
	return Rule{kind: kindLeak, limit: n, period: per}
}

// TokenBucket holds up to burst tokens and gains n per period, continuously. An action
// takes as many as it costs, or waits for them. After an idle time burst actions may
// start at once: in any span d at most burst + n·d/period start. (GCRA: the bucket is
// one stored instant, and nothing ever refills it.)
func TokenBucket(n int, per time.Duration, burst int) Rule {
	return Rule{kind: kindTokenBucket, limit: n, period: per, burst: burst}
}

// Window lets at most n actions start in any period of that length, wherever it
// begins: the rolling window, exact. An action exactly one period old no longer counts.
func Window(n int, per time.Duration) Rule {
	return Rule{kind: kindWindow, limit: n, period: per}
}

// Spacing keeps any two actions at least d apart, whatever they cost.
func Spacing(d time.Duration) Rule {
	return Rule{kind: kindSpacing, limit: 1, period: d}
}

// FixedWindow lets at most n actions start in each period, counted from the Unix epoch:
// an hour begins on the hour and 24h at midnight UTC. The cheapest rule, and one that
// lets 2n through across an edge: for a limit on any hour use [Window].
func FixedWindow(n int, per time.Duration) Rule {
	return Rule{kind: kindFixedWindow, limit: n, period: per}
}

// SlidingCounter approximates [Window] with a few counters instead of a log of n slots.
// With 2 buckets it is the count of this period plus that of the period before, weighted
// by how much of it still overlaps the window; the estimate never exceeds n. With more
// it is a ring: the period is cut into that many buckets (an hour into 3 of 20 minutes),
// and no run of so many consecutive buckets ever counts more than n.
func SlidingCounter(n int, per time.Duration, buckets int) Rule {
	return Rule{kind: kindSlidingCounter, limit: n, period: per, buckets: buckets}
}

// OrDrop returns the rule with its answer changed: what it would defer, it drops.
func (r Rule) OrDrop() Rule {
	r.drop = true
	return r
}

// AsShadow returns the rule as one that only watches: it is evaluated and reported
// ([Decision].Shadow), but nothing waits for it. The shadow rules of a subject live in
// a world of their own, in which what they would have refused has not happened. So a
// limit can be tried out on live traffic.
func (r Rule) AsShadow() Rule {
	r.shadow = true
	return r
}

// CountingDropped returns the rule with refused actions counted as well: whoever keeps
// asking keeps being refused until the flood ends. It is ClassDojo's original behaviour.
// An action that [Limiter.Allow] defers or drops was refused; what [Limiter.Reserve]
// defers was not.
func (r Rule) CountingDropped() Rule {
	r.counts = true
	return r
}

// Drops reports whether the rule drops what is over its limit, see [Rule.OrDrop].
func (r Rule) Drops() bool { return r.drop }

// Shadows reports whether the rule only watches, see [Rule.AsShadow].
func (r Rule) Shadows() bool { return r.shadow }

// CountsDropped reports whether the rule counts what was refused too, see
// [Rule.CountingDropped].
func (r Rule) CountsDropped() bool { return r.counts }

// String returns the rule as it is written in a policy, without its options: "leak
// 50/s", "spacing 3s", "token_bucket 10/1m burst 20". Decisions name rules this way.
func (r Rule) String() string {
	switch r.kind {
	case "":
		return "no rule"
	case kindTokenBucket:
		return fmt.Sprintf("%s %s burst %d", r.kind, r.rate(), r.burst)
	case kindSlidingCounter:
		return fmt.Sprintf("%s %s buckets %d", r.kind, r.rate(), r.buckets)
	}
	return string(r.kind) + " " + r.rate()
}

// rate returns the numbers that stand beside the kind in a policy: "10/1m", "3s".
func (r Rule) rate() string {
	switch {
	case r.kind == kindSpacing:
		return formatPeriod(r.period)
	case r.kind == kindLeak && r.period == time.Second:
		return fmt.Sprintf("%d/s", r.limit)
	}
	return fmt.Sprintf("%d/%s", r.limit, formatPeriod(r.period))
}

// formatPeriod writes 1m0s as 1m and 24h0m0s as 24h.
func formatPeriod(d time.Duration) string {
	s := d.String()
	if m, found := strings.CutSuffix(s, "m0s"); found {
		s = m + "m"
	}
	if h, found := strings.CutSuffix(s, "h0m"); found {
		s = h + "h"
	}
	return s
}

// The bounds keep every product within the integers that Lua numbers hold exactly, and
// every slot before the year 2255, where those end for microseconds.
const (
	maxLimit   = 1_000_000
	maxPeriod  = 366 * 24 * time.Hour
	maxBuckets = 60
	horizon    = 100 * maxPeriod
)

// Validate returns an error wrapping [ErrInvalidRule] that names what is wrong with
// the rule and what would be right, or nil.
func (r Rule) Validate() error {
	if r.kind == "" {
		return fmt.Errorf("%w: the zero Rule; make one with Leak, Window and so on", ErrInvalidRule)
	}
	if wrong := r.wrong(); wrong != "" {
		return fmt.Errorf("%w: %s: %s", ErrInvalidRule, r, wrong)
	}
	return nil
}

// wrong returns what is wrong with the numbers of the rule, or nothing.
func (r Rule) wrong() string {
	bucket, counter := r.kind == kindTokenBucket, r.kind == kindSlidingCounter
	switch {
	case r.limit < 1 || r.limit > maxLimit:
		return fmt.Sprintf("%d must be from 1 to %d", r.limit, maxLimit)
	case r.period < time.Microsecond || r.period > maxPeriod:
		return fmt.Sprintf("the period must be from 1µs to %s", formatPeriod(maxPeriod))
	case r.period%time.Microsecond != 0:
		return "the period must be whole microseconds"
	case bucket && (r.burst < 1 || r.burst > maxLimit):
		return fmt.Sprintf("burst %d must be from 1 to %d", r.burst, maxLimit)
	case bucket && r.takes(r.burst) > horizon:
		return "burst takes more than a century to refill"
	case counter && (r.buckets < 2 || r.buckets > maxBuckets):
		return fmt.Sprintf("buckets %d must be from 2 to %d", r.buckets, maxBuckets)
	case counter && r.period < time.Duration(r.buckets)*time.Microsecond:
		return "each bucket must be at least 1µs long"
	}
	return ""
}

// takes returns how long the rate takes for cost actions, capped where it would
// overflow.
func (r Rule) takes(cost int) time.Duration {
	each, rest := r.period/time.Duration(r.limit), r.period%time.Duration(r.limit)
	if each > 2*horizon/time.Duration(cost) {
		return 2 * horizon
	}
	return each*time.Duration(cost) + time.Duration(float64(rest)*float64(cost)/float64(r.limit))
}
