package throttle

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/internal/wallclock"
)

// ParseRule reads a rule as [Rule.MarshalText] writes it: the kind and its rate, as
// [Rule.String] does, then options.
//
//	leak 50/s
//	leak 50/s ramp 1m
//	token_bucket 10/1m burst 20
//	window 50/24h over=drop
//	spacing 3s
//	fixed_window 100/1h shadow
//	sliding_counter 1000/1h buckets 12 count_dropped
//	window 3/day Europe/Paris
//	hours 08:00-12:00,13:00-18:00 mon-fri Europe/Paris holidays=12-25,2026-04-06
//	warmup 2026-12-01 1:50/24h,2:100/24h,7:1000/24h Europe/Paris
//
// A rate is COUNT/PERIOD and a period is Go's, where 50/s is 50/1s. A sliding counter has
// 2 buckets unless it says otherwise. The error wraps [ErrInvalidRule], and says what is
// wrong and what would be right.
func ParseRule(text string) (Rule, error) {
	words := strings.Fields(text)
	if len(words) < 2 {
		return Rule{}, fmt.Errorf("%w %q: want a kind and its rate such as window 10/1m", ErrInvalidRule, text)
	}
	r := rules.Rule{Kind: rules.Kind(words[0])}
	err := r.SetRate(words[1])
	for rest := words[2:]; err == nil && len(rest) > 0; {
		rest, err = setOption(&r, rest)
	}
	if err != nil {
		return Rule{}, fmt.Errorf("%w %q: %w", ErrInvalidRule, text, err)
	}
	if r.Kind == rules.SlidingCounter && r.Buckets == 0 {
		r.Buckets = 2
	}
	read := fromPlain(r)
	return read, read.Validate()
}

// setOption reads the option that the words begin with, and returns those behind it.
func setOption(r *rules.Rule, words []string) (rest []string, err error) {
	switch {
	case words[0] == "over=drop":
		r.Drop = true
	case words[0] == "over=defer":
		r.Drop = false
	case words[0] == "shadow":
		r.Shadow = true
	case words[0] == "count_dropped":
		r.Counts = true
	case words[0] == "burst" && r.Kind == rules.TokenBucket && len(words) > 1:
		r.Burst, err = strconv.Atoi(words[1])
		words = words[1:]
	case words[0] == "ramp" && r.Kind == rules.Leak && len(words) > 1:
		if r.Ramp, err = time.ParseDuration(words[1]); err != nil {
			return nil, fmt.Errorf("ramp %q: want a time such as 1m", words[1])
		}
		words = words[1:]
	case words[0] == "buckets" && r.Kind == rules.SlidingCounter && len(words) > 1:
		r.Buckets, err = strconv.Atoi(words[1])
		words = words[1:]
	case r.Kind == rules.Hours && strings.HasPrefix(words[0], "holidays="):
		r.Holidays = strings.TrimPrefix(words[0], "holidays=")
	case r.Kind == rules.Hours && r.Days == "" && r.Zone == "" && (len(words) > 1 || r.Hours == rules.OfUser) && wallclock.AreDays(words[0]):
		r.Days = words[0]
	case r.Kind == rules.Hours && words[0] == "within" && len(words) > 1:
		r.Within = words[1]
		words = words[1:]
	case r.Kind == rules.Warmup && r.Windows == "":
		r.Windows = words[0]
	case (r.Kind == rules.Hours || r.Kind == rules.Calendar || r.Kind == rules.Warmup) && r.Zone == "":
		r.Zone = words[0]
	default:
		return nil, fmt.Errorf("%q: want over=drop, shadow or count_dropped, burst N of a token_bucket, buckets N of a sliding_counter, ramp TIME of a leak, holidays=DATES of hours",
			words[0])
	}
	if err != nil {
		return nil, fmt.Errorf("%q: want a whole number", words[0])
	}
	return words[1:], nil
}

// MarshalText writes the rule with its options: "window 50/24h over=drop". So it stands in
// JSON. It returns an error wrapping [ErrInvalidRule] for an invalid rule.
func (r Rule) MarshalText() ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	text := r.String()
	if r.holidays != "" {
		text += " holidays=" + r.holidays
	}
	if r.drop {
		text += " over=drop"
	}
	if r.shadow {
		text += " shadow"
	}
	if r.counts {
		text += " count_dropped"
	}
	return []byte(text), nil
}

// UnmarshalText reads the rule as [ParseRule] does. It leaves the rule as it was if there
// is an error.
func (r *Rule) UnmarshalText(text []byte) error {
	read, err := ParseRule(string(text))
	if err == nil {
		*r = read
	}
	return err
}
