package wallclock

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// never is the last instant: that of package rules.
const never = int64(1) << 53

const (
	second = int64(1_000_000)
	minute = 60 * second
	hour   = 60 * minute
	day    = 24 * 60 * minute
)

// run returns the offset of a zone at an instant, and until when it holds.
func run(zone *time.Location, t int64) (offset, end int64) {
	if t < tabledFrom || t >= tabledTo {
		return look(zone, t)
	}
	runs := tableOf(zone)
	i, found := slices.BinarySearchFunc(runs, t, func(r offsetRun, t int64) int { return cmp.Compare(r.end, t) })
	if found { // it ends then
		i++
	}
	return runs[i].offset, runs[i].end
}

// look asks package time, which takes a microsecond for dates of our days.
func look(zone *time.Location, t int64) (offset, end int64) {
	at := time.UnixMicro(t).In(zone)
	_, east := at.Zone()
	_, until := at.ZoneBounds()
	switch {
	case until.IsZero():
		return int64(east) * second, never
	case until.UnixMicro() <= t: // package time ends the last day of a leap year with the day before
		return int64(east) * second, min(t-t%hour+hour, never)
	}
	return int64(east) * second, min(until.UnixMicro(), never)
}

// An offsetRun is an offset, and until when it holds.
type offsetRun struct{ end, offset int64 }

// The runs of a zone are remembered from the year 2000 to 2060.
var (
	tabledFrom = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	tabledTo   = time.Date(2060, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro()
	tables     sync.Map // by zone
)

func tableOf(zone *time.Location) []offsetRun {
	if known, is := tables.Load(zone); is {
		return known.([]offsetRun)
	}
	var runs []offsetRun
	for t := tabledFrom; t < tabledTo; {
		offset, end := look(zone, t)
		runs = append(runs, offsetRun{end, offset})
		t = end
	}
	tables.Store(zone, runs)
	return runs
}

// first returns the first instant from t on at which the clock shows a local time or a later one.
func first(zone *time.Location, t, local int64) int64 {
	for t < never {
		offset, end := run(zone, t)
		if at := max(t, local-offset); at < end {
			return at
		}
		t = end
	}
	return never
}

// dayOf returns the number of the local day of a local time: 0 is 1970-01-01, a Thursday.
func dayOf(local int64) int64 {
	if local < 0 {
		return (local+1)/day - 1
	}
	return local / day
}

// weekday returns the day of the week of a local day: 0 is Monday.
func weekday(of int64) int { return int(((of+3)%7 + 7) % 7) }

// A Unit is a part of the calendar.
type Unit string

const (
	Day   Unit = "day"
	Week  Unit = "week" // from Monday on
	Month Unit = "month"
)

// Nominal returns how long a unit is as a rule: the longest month for a month; 0 for no unit.
func (u Unit) Nominal() time.Duration {
	switch u {
	case Day:
		return 24 * time.Hour
	case Week:
		return 7 * 24 * time.Hour
	case Month:
		return 31 * 24 * time.Hour
	}
	return 0
}

// farthest is more than any clock is ahead of UTC, or behind it.
const farthest = 30 * 60 * minute

// Around returns when the unit began that contains an instant, and when the next one begins.
func (u Unit) Around(zone *time.Location, t int64) (begin, end int64) {
	offset, _ := run(zone, t)
	for of := dayOf(t + offset); ; {
		from, next := u.days(of)
		if end = first(zone, next*day-farthest, next*day); end > t {
			return first(zone, from*day-farthest, from*day), end
		}
		of = next // the clock was set back behind midnight
	}
}

// days returns the first local day of the unit that contains a local day, and that of the next unit.
func (u Unit) days(of int64) (from, next int64) {
	switch u {
	case Week:
		from = of - int64(weekday(of))
		return from, from + 7
	case Month:
		date := time.Unix(of*day/second, 0).UTC()
		begin := func(month time.Month) int64 {
			return time.Date(date.Year(), month, 1, 0, 0, 0, 0, time.UTC).UnixMicro() / day
		}
		return begin(date.Month()), begin(date.Month() + 1)
	}
	return of, of + 1
}

// DayBegins returns when the day of a date begins in a zone: when its clock first shows that day, or a later one where it skips it.
func DayBegins(zone *time.Location, date time.Time) int64 {
	of := dateOf(date)
	return first(zone, of*day-farthest, of*day)
}

// DaysSince returns how many days after that of a date the clock of a zone shows at an instant.
func DaysSince(zone *time.Location, date time.Time, t int64) int {
	offset, _ := run(zone, t)
	return int(dayOf(t+offset) - dateOf(date))
}

// dateOf returns the number of the day of a date.
func dateOf(date time.Time) int64 {
	return time.Date(date.Year(), date.Month(), date.Day(), 0, 0, 0, 0, time.UTC).Unix() / (24 * 60 * 60)
}
