package rules

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The bounds keep every product within the integers that Lua numbers hold exactly, and
// every slot before [Never].
const (
	MaxLimit  = 1_000_000 // of a count, and of a cost
	maxPeriod = 366 * 24 * time.Hour
	maxRing   = 60
)

// SetRate reads what stands beside the kind in a policy: a duration for a spacing, and
// COUNT/PERIOD for the others. The error says what would be right.
func (r *Rule) SetRate(value string) error {
	if _, known := kinds[r.Kind]; !known {
		return fmt.Errorf("unknown kind %q: want leak, token_bucket, window, spacing, fixed_window or sliding_counter", r.Kind)
	}
	if r.Kind == Spacing {
		period, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("spacing %q: want a duration such as 3s or 250ms", value)
		}
		r.Limit, r.Period = 1, period
		return nil
	}
	count, per, found := strings.Cut(value, "/")
	n, err := strconv.Atoi(count)
	if found && err == nil {
		if per != "" && !strings.ContainsRune("0123456789.+-", rune(per[0])) {
			per = "1" + per
		}
		r.Limit = n
		r.Period, err = time.ParseDuration(per)
	}
	if !found || err != nil {
		return fmt.Errorf("%s %q: want COUNT/PERIOD such as 50/s or 10/1m (a day is 24h)", r.Kind, value)
	}
	return nil
}

// Wrong returns what is wrong with the numbers of the rule and what would be right, or
// nothing.
func (r Rule) Wrong() string {
	bucket, counter := r.Kind == TokenBucket, r.Kind == SlidingCounter
	switch {
	case r.Limit < 1 || r.Limit > MaxLimit:
		return fmt.Sprintf("%d must be from 1 to %d", r.Limit, MaxLimit)
	case r.Period < time.Microsecond || r.Period > maxPeriod:
		return fmt.Sprintf("the period must be from 1µs to %s", FormatPeriod(maxPeriod))
	case r.Period%time.Microsecond != 0:
		return "the period must be whole microseconds"
	case bucket && (r.Burst < 1 || r.Burst > MaxLimit):
		return fmt.Sprintf("burst %d must be from 1 to %d", r.Burst, MaxLimit)
	case bucket && r.Takes(r.Burst) > Century:
		return "burst takes more than a century to refill"
	case counter && (r.Buckets < 2 || r.Buckets > maxRing):
		return fmt.Sprintf("buckets %d must be from 2 to %d", r.Buckets, maxRing)
	case counter && r.Period < time.Duration(r.Buckets)*time.Microsecond:
		return "each bucket must be at least 1µs long"
	}
	return ""
}
