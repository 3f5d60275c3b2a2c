package throttle

import (
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/waterclock/waterclock/internal/wallclock"
)

// Rules that depend on a zone are judged by what its clock shows, as package time says it: they share no code with what gives out
// slots.

// clocks are those of zones.
type clocks map[string]*time.Location

// show returns what the clock of a zone shows.
func (c clocks) show(at time.Time, zone string) time.Time {
	where := c[zone]
	if where == nil {
		var err error
		if where, err = time.LoadLocation(zone); err != nil {
			where = time.UTC
		}
		c[zone] = where
	}
	return at.In(where)
}

// verifyHours finds the starts at which none of some hours is open.
func verifyHours(log []Event, of []Rule) (found []Violation) {
	clocks := make(clocks)
	for _, e := range log {
		if !slices.ContainsFunc(of, func(r Rule) bool { return r.isOpen(clocks.show(e.At, r.zone)) }) {
			found = append(found, Violation{e.Subject, of[0], e.At, "it is " + clocks.show(e.At, of[0].zone).Format("Mon 15:04:05.000 on 2006-01-02") + " there"})
		}
	}
	return found
}

// isOpen reports whether hours are open when the clock of their zone shows this.
func (r Rule) isOpen(local time.Time) bool {
	date := local.Format("2006-01-02")
	if holidays := strings.Split(r.holidays, ","); slices.Contains(holidays, date) || slices.Contains(holidays, date[5:]) {
		return false
	}
	now, yesterday := local.Format("15:04"), (local.Weekday()+6)%7
	for _, span := range strings.Split(r.hours, ",") {
		from, to, _ := strings.Cut(span, "-")
		switch {
		case from < to && from <= now && now < to && r.on(local.Weekday()):
			return true
		case from > to && (now >= from && r.on(local.Weekday()) || now < to && r.on(yesterday)):
			return true
		}
	}
	return false
}

// on reports whether the rule is about a day of the week.
func (r Rule) on(day time.Weekday) bool {
	const week = "mon tue wed thu fri sat sun"
	place := func(name string) int { return strings.Index(week, name) }
	at := place(strings.ToLower(day.String()[:3]))
	for _, part := range strings.Split(r.days, ",") {
		from, to, run := strings.Cut(part, "-")
		switch {
		case part == "":
			return true
		case !run && at == place(from), run && place(from) <= at && at <= place(to):
			return true
		}
	}
	return false
}

// verifyCalendar counts each day, week or month that the clock shows. One that the clock goes back to is over.
func verifyCalendar(log []Event, r Rule) (found []Violation) {
	shown, sum, clocks := "", 0, make(clocks)
	for _, e := range log {
		if text := nameOf(r.unit, clocks.show(e.At, r.zone)); text > shown {
			shown, sum = text, 0
		}
		if sum += e.Cost; sum > r.limit {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%d in %s", sum, shown)})
		}
	}
	return found
}

// nameOf names the day, week or month of a local time, so that later ones have later names.
func nameOf(unit wallclock.Unit, local time.Time) string {
	switch unit {
	case "week":
		year, week := local.ISOWeek()
		return fmt.Sprintf("week %d-%02d", year, week)
	case "month":
		return local.Format("2006-01")
	}
	return local.Format(time.DateOnly)
}

// verifyWarmup counts what each start has before it: in the window of its day, or in its own day, week or month. A day that the clock
// goes back to is over.
func verifyWarmup(log []Event, r Rule) (found []Violation) {
	begin, err := time.Parse(time.DateOnly, r.from)
	if err != nil {
		return nil
	}
	day, shown, clocks := 0, "", make(clocks)
	counted := make([]int, len(log)+1) // by all starts before
	own := 0                           // the first start of the day, week or month
	for i, e := range log {
		counted[i+1] = counted[i] + e.Cost
		local := clocks.show(e.At, r.zone)
		year, month, date := local.Date()
		day = max(day, int(time.Date(year, month, date, 0, 0, 0, 0, time.UTC).Sub(begin)/(24*time.Hour))+1)
		limit, period := r.onDay(day)
		first, within := own, period.String()
		if r.unit != "" {
			if text := nameOf(r.unit, local); text > shown {
				shown, own = text, i
			}
			first, within = own, shown
		} else {
			first = sort.Search(i, func(k int) bool { return e.At.Sub(log[k].At) < period })
		}
		if sum := counted[i+1] - counted[first]; sum > limit {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%d in %s on day %d, which has %d", sum, within, day, limit)})
		}
	}
	return found
}

// onDay returns what the window of a day of a warm-up admits, and in which time; by the calendar the latter is 0.
func (r Rule) onDay(day int) (limit int, period time.Duration) {
	for part := range strings.SplitSeq(r.windows, ",") {
		number, window, _ := strings.Cut(part, ":")
		if from, err := strconv.Atoi(number); err != nil || from > max(1, day) {
			break
		}
		count, per, _ := strings.Cut(window, "/")
		limit, _ = strconv.Atoi(count)
		period, _ = time.ParseDuration(per)
	}
	return limit, period
}
