package rules

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
)

// The bounds keep every product within the integers that Lua numbers hold exactly, and
// every slot before [Never].
const (
	MaxLimit  = 1_000_000 // of a count, and of a cost
	maxPeriod = 366 * 24 * time.Hour
	maxRing   = 60
	maxRamp   = 7 * 24 * time.Hour
)

// SetRate reads what stands beside the kind in a policy: a duration for a spacing, and
// COUNT/PERIOD for the others. The error says what would be right.
func (r *Rule) SetRate(value string) error {
	if _, known := kinds[r.Kind]; !known {
		return fmt.Errorf("unknown kind %q: want leak, token_bucket, window, spacing, fixed_window, sliding_counter, hours or warmup", r.Kind)
	}
	switch r.Kind {
	case Hours:
		r.Hours = value
		return nil
	case Warmup:
		r.From = value
		return nil
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
	if unit := wallclock.Unit(per); r.Kind == Window && err == nil && unit.Nominal() > 0 {
		r.Kind, r.Limit, r.Unit, r.Period = Calendar, n, unit, unit.Nominal()
		return nil
	}
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
	if r.Kind == Hours || r.Kind == Calendar {
		if wrong := r.wrongLocal(); wrong != "" {
			return wrong
		}
	}
	switch {
	case r.Kind == Warmup:
		return r.wrongWarmup()
	case r.Kind == Hours:
		return ""
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
	case r.Ramp != 0 && r.Kind != Leak:
		return "only a leak has a ramp"
	case r.Ramp < 0 || 0 < r.Ramp && r.Ramp < time.Second || r.Ramp > maxRamp:
		return fmt.Sprintf("ramp %s must be from 1s to %s", FormatPeriod(r.Ramp), FormatPeriod(maxRamp))
	case counter && r.Period < time.Duration(r.Buckets)*time.Microsecond:
		return "each bucket must be at least 1µs long"
	}
	return ""
}

// wrongLocal returns what is wrong with what a rule says about local times.
func (r Rule) wrongLocal() string {
	if r.Zone == "" {
		return "in which zone? want one, such as zone: Europe/Paris or zone: UTC"
	}
	if _, err := wallclock.Zone(r.Zone); err != nil && r.Zone != OfUser {
		return err.Error()
	}
	if r.Kind == Calendar {
		return ""
	}
	text := r.Hours
	switch {
	case r.Hours == OfUser && r.Zone != OfUser:
		return fmt.Sprintf("hours of the user are by the user's clock, and not by that of %s; want zone: user, or none", r.Zone)
	case r.Hours == OfUser:
		text = cmp.Or(r.Within, wholeDay)
	case r.Within != "":
		return "within is for hours: user"
	}
	if _, err := wallclock.ParseHours(text, r.Days, r.Holidays); err != nil {
		return err.Error()
	}
	if r.Counts {
		return "hours count nothing; want them without count_dropped"
	}
	return ""
}

// Tidied returns the rule with its local times, and the windows of a warm-up, as they are always written; those that are wrong stay as
// they are.
func (r Rule) Tidied() Rule {
	if r.Kind == Warmup {
		return r.tidiedWarmup()
	}
	if r.Kind != Hours {
		return r
	}
	text, own := &r.Hours, r.Hours == OfUser
	if own {
		r.Zone, text = cmp.Or(r.Zone, OfUser), &r.Within
	}
	read := *text
	if own {
		read = cmp.Or(read, wholeDay)
	}
	if open, err := wallclock.ParseHours(read, r.Days, r.Holidays); err == nil {
		hours, days, holidays := open.Texts()
		if r.Days, r.Holidays = days, holidays; *text != "" {
			*text = hours
		}
	}
	return r
}
