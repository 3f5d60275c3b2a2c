package throttle

import (
	"fmt"
	"slices"
	"strings"
	"time"
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
		local := clocks.show(e.At, r.zone)
		text := local.Format("2006-01-02")
		switch r.unit {
		case "week":
			year, week := local.ISOWeek()
			text = fmt.Sprintf("week %d-%02d", year, week)
		case "month":
			text = local.Format("2006-01")
		}
		if text > shown {
			shown, sum = text, 0
		}
		if sum += e.Cost; sum > r.limit {
			found = append(found, Violation{e.Subject, r, e.At, fmt.Sprintf("%d in %s", sum, shown)})
		}
	}
	return found
}
