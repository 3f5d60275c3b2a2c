package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrImpossibleCost is returned when an action costs more than one of its rules can
// ever admit: waiting would never end.
var ErrImpossibleCost = errors.New("throttle: cost can never be admitted")

// ErrInvalidRule is returned when a rule has numbers that mean nothing, such as zero
// per second.
var ErrInvalidRule = errors.New("throttle: invalid rule")

// kind names an algorithm. The scripts know it by the same name (kinds in rules.lua).
type kind string

const (
	kindLeak    kind = "leak"
	kindWindow  kind = "window"
	kindSpacing kind = "spacing"
)

// A Rule is one limit. Make it with [Leak], [Window] or [Spacing]. The zero value is
// not a rule.
//
// A rule over its limit defers: its slot lies ahead. [Rule.OrDrop] makes it drop.
type Rule struct {
	kind   kind
	limit  int
	period time.Duration
	burst  int
	drop   bool
}

// Leak lets n actions start per period, evenly spaced, and saves nothing up: after an
// idle hour there is still no burst. It is the leaky bucket as a queue (GCRA without
// tolerance). Fractions of a microsecond are carried along, so that 7000 a second is
// exactly 7000 a second.
func Leak(n int, per time.Duration) Rule {
	return Rule{kind: kindLeak, limit: n, period: per}
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

// OrDrop returns the rule with its answer changed: what it would defer, it drops.
func (r Rule) OrDrop() Rule {
	r.drop = true
	return r
}

// Drops reports whether the rule drops what is over its limit, see [Rule.OrDrop].
func (r Rule) Drops() bool { return r.drop }

// String returns the rule as it is written in a policy: "window 10/1m", "leak 50/s",
// "spacing 3s". Decisions name rules this way.
func (r Rule) String() string {
	switch r.kind {
	case "":
		return "no rule"
	case kindSpacing:
		return string(r.kind) + " " + formatPeriod(r.period)
	case kindLeak:
		if r.period == time.Second {
			return fmt.Sprintf("%s %d/s", r.kind, r.limit)
		}
	}
	return fmt.Sprintf("%s %d/%s", r.kind, r.limit, formatPeriod(r.period))
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

// Validate returns an error wrapping [ErrInvalidRule] that names what is wrong with
// the rule and what would be right, or nil.
func (r Rule) Validate() error {
	switch {
	case r.kind == "":
		return fmt.Errorf("%w: the zero Rule; make one with Leak, Window or Spacing", ErrInvalidRule)
	case r.limit < 1:
		return fmt.Errorf("%w: %s: %d must be at least 1", ErrInvalidRule, r, r.limit)
	case r.limit > maxLimit:
		return fmt.Errorf("%w: %s: %d must be at most %d", ErrInvalidRule, r, r.limit, maxLimit)
	case r.period < time.Microsecond:
		return fmt.Errorf("%w: %s: the period must be at least 1µs", ErrInvalidRule, r)
	case r.period > maxPeriod:
		return fmt.Errorf("%w: %s: the period must be at most %v", ErrInvalidRule, r, maxPeriod)
	}
	return nil
}

// The bounds keep cost × period within the integers that Lua numbers hold exactly.
const (
	maxLimit  = 1_000_000
	maxPeriod = 366 * 24 * time.Hour
)

// admits returns an error wrapping [ErrImpossibleCost] if the rule can never admit cost.
func (r Rule) admits(cost int) error {
	if r.kind == kindWindow && cost > r.limit {
		return fmt.Errorf("%w: %d, but %q admits %d at most", ErrImpossibleCost, cost, r, r.limit)
	}
	return nil
}

// CheckCost returns an error wrapping [ErrImpossibleCost] if one of the rules can never
// admit cost, or if cost is not positive.
func CheckCost(cost int, rules ...Rule) error {
	if cost < 1 || cost > maxLimit {
		return fmt.Errorf("%w: %d; a cost is from 1 to %d", ErrImpossibleCost, cost, maxLimit)
	}
	for _, r := range rules {
		if err := r.admits(cost); err != nil {
			return err
		}
	}
	return nil
}

// Compile returns the rules in the form in which the scripts read them: a line each,
// "kind n period_µs burst flags name". The distances that windows and spacings keep
// are widened by slack: whoever starts up to slack after the slot still keeps them.
func Compile(slack time.Duration, rules ...Rule) string {
	var b strings.Builder
	for _, r := range rules {
		period := r.period
		if r.kind == kindWindow || r.kind == kindSpacing {
			period += slack
		}
		flags := "-"
		if r.drop {
			flags = "d"
		}
		b.WriteString(string(r.kind))
		for _, n := range []int64{int64(r.limit), period.Microseconds(), int64(r.burst)} {
			b.WriteString(" " + strconv.FormatInt(n, 10))
		}
		b.WriteString(" " + flags + " " + r.String() + "\n")
	}
	return b.String()
}
