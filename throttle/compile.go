package throttle

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
)

// ErrImpossibleCost is returned when an action costs more than one of its rules can
// ever admit: waiting would never end.
var ErrImpossibleCost = errors.New("throttle: cost can never be admitted")

// admits returns an error wrapping [ErrImpossibleCost] if the rule can never admit cost.
func (r Rule) admits(cost int) error {
	switch plain := r.plain(); {
	case !plain.Impossible(cost):
		return nil
	case r.kind == KindLeak:
		return fmt.Errorf("%w: %d, for which %q takes more than a century", ErrImpossibleCost, cost, r)
	default:
		return fmt.Errorf("%w: %d, but %q admits %d at most", ErrImpossibleCost, cost, r, plain.Most())
	}
}

// checkCost returns an error wrapping [ErrImpossibleCost] if one of the rules can never
// admit cost, or if cost is not positive. A shadow rule admits every cost.
func checkCost(cost int, of []Rule) error {
	if cost < 1 || cost > rules.MaxLimit {
		return fmt.Errorf("%w: %d; a cost is from 1 to %d, and 0 means 1", ErrImpossibleCost, cost, rules.MaxLimit)
	}
	for _, r := range of {
		if err := r.admits(cost); err != nil {
			return err
		}
	}
	return nil
}

// compile appends the cost and the rules in the form in which the scripts read them (make_rules in
// rules.lua): a JSON list of the cost and of [kind, n, period_µs, burst or ramp_µs, flags], the guard in µs if there is one, for a window by the
// calendar when its periods begin around now, and for a warm-up its windows.
func (s Subject) compile(b []byte, now int64) []byte {
	b = strconv.AppendInt(append(b, '['), int64(s.Cost), 10)
	return append(appendRules(b, s, now), ']')
}

// appendRules appends the rules of a subject, behind something else.
func appendRules(b []byte, s Subject, now int64) []byte {
	for _, r := range s.Rules {
		b = append(append(append(b, `,["`...), r.scriptKind()...), '"')
		for _, n := range [...]int64{int64(r.limit), s.periodOf(r).Microseconds(), int64(r.burst+r.buckets) + r.ramp.Microseconds()} {
			b = strconv.AppendInt(append(b, ','), n, 10)
		}
		b = append(r.flags(append(b, `,"`...)), '"')
		if guard := s.guardOf(r); guard > 0 || r.unit != "" || r.kind == KindWarmup {
			b = strconv.AppendInt(append(b, ','), guard.Microseconds(), 10)
		}
		switch {
		case r.unit != "":
			b = r.appendBegins(b, now)
		case r.kind == KindWarmup:
			b = append(b, ",false"...)
		}
		if r.kind == KindWarmup {
			b = r.appendStages(b, s.stepSlack(r))
		}
		b = append(b, ']')
	}
	return b
}

// scriptKind returns the kind of the rule in the scripts, which have two more.
func (r Rule) scriptKind() string {
	switch {
	case r.ramp > 0:
		return "ramp"
	case r.kind == KindWarmup && r.unit != "":
		return "warmup_calendar"
	}
	return string(r.kind)
}

// mostBegins is how many periods by the calendar a script is told of: the one before the present one, the present one, and those behind it. It
// gives no slots behind them.
const mostBegins = 12

// appendBegins appends when the periods begin that are around now, in µs.
func (r Rule) appendBegins(b []byte, now int64) []byte {
	begin, _ := r.plain().Around(now)
	begin, end := r.plain().Around(begin - 1)
	b = append(b, ",["...)
	for i := range mostBegins {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, begin, 10)
		begin = end
		_, end = r.plain().Around(begin)
	}
	return append(b, ']')
}

// appendStages appends the windows of a warm-up, see [rules.Stage].
func (r Rule) appendStages(b []byte, slack time.Duration) []byte {
	b = append(b, ",["...)
	for i, s := range r.plain().Stages(slack) {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "[%d,%d,%d,%d]", s.From, s.Until, s.Limit, s.Period)
	}
	return append(b, ']')
}

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
