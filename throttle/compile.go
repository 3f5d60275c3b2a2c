package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

// ErrImpossibleCost is returned when an action costs more than one of its rules can
// ever admit: waiting would never end.
var ErrImpossibleCost = errors.New("throttle: cost can never be admitted")

// most returns the most that the rule can ever admit at once.
func (r Rule) most() int {
	switch r.kind {
	case kindLeak, kindSpacing:
		return 1
	case kindTokenBucket:
		return r.burst
	}
	return r.limit
}

// admits returns an error wrapping [ErrImpossibleCost] if the rule can never admit cost.
func (r Rule) admits(cost int) error {
	switch {
	case r.shadow || r.kind == kindSpacing:
		return nil
	case r.kind == kindLeak:
		if r.takes(cost) > horizon {
			return fmt.Errorf("%w: %d, for which %q takes more than a century", ErrImpossibleCost, cost, r)
		}
		return nil
	case cost > r.most():
		return fmt.Errorf("%w: %d, but %q admits %d at most", ErrImpossibleCost, cost, r, r.most())
	}
	return nil
}

// CheckCost returns an error wrapping [ErrImpossibleCost] if one of the rules can never
// admit cost, or if cost is not positive. A shadow rule admits every cost.
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

// Compile returns the rules in the form in which the scripts read them (parse in
// rules.lua). The distances that windows and spacings keep are widened by slack:
// whoever starts up to slack after the slot still keeps them.
func Compile(slack time.Duration, rules ...Rule) string {
	return string(compile(nil, slack, rules, Rule.String))
}

// compile appends a JSON list of [kind, n, period_µs, burst, flags, name]. It is on the
// path of every decision, where nobody needs the names.
func compile(b []byte, slack time.Duration, rules []Rule, name func(Rule) string) []byte {
	b = append(b, '[')
	for i, r := range rules {
		if i > 0 {
			b = append(b, ',')
		}
		period := r.period
		if r.kind == kindWindow || r.kind == kindSpacing {
			period += slack
		}
		b = append(append(b, `["`...), r.kind...)
		b = append(b, '"')
		for _, n := range [...]int64{int64(r.limit), period.Microseconds(), int64(r.burst + r.buckets)} {
			b = strconv.AppendInt(append(b, ','), n, 10)
		}
		b = append(r.flags(append(b, `,"`...)), `",`...)
		b = append(strconv.AppendQuote(b, name(r)), ']')
	}
	return append(b, ']')
}

// nameless spares the scripts that need no names of rules from reading them.
func nameless(Rule) string { return "" }

// flags appends a letter for each option of the rule, or a dash.
func (r Rule) flags(b []byte) []byte {
	if !r.drop && !r.shadow && !r.counts {
		return append(b, '-')
	}
	if r.drop {
		b = append(b, 'd')
	}
	if r.shadow {
		b = append(b, 's')
	}
	if r.counts {
		b = append(b, 'c')
	}
	return b
}
