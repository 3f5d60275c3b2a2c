package wallclock

import (
	"fmt"
	"time"
)

// A Bell rings at one local time of some days of the week. Where the clock is set forward over that time it rings when the clock
// shows a later one; where it is set back the first time counts.
type Bell struct {
	at   int64 // of the day
	days [7]bool
}

// ParseBell reads a time such as "08:00", and days of the week such as "mon-fri" (all of them if it is empty). The error says
// what would be right.
func ParseBell(at, days string) (b Bell, err error) {
	if b.at, err = parseTime(at); err != nil || b.at == day {
		return Bell{}, fmt.Errorf("time %q: want one such as 08:00", at)
	}
	b.days = [7]bool{true, true, true, true, true, true, true}
	if days != "" {
		b.days, err = parseDays(days)
	}
	return b, err
}

// Next returns the first instant after t at which the bell rings by the clock of a zone.
func (b Bell) Next(zone *time.Location, t int64) int64 {
	offset, _ := run(zone, t)
	for of := dayOf(t+offset) - 1; ; of++ {
		if !b.days[weekday(of)] {
			continue
		}
		if at := first(zone, of*day+b.at-farthest, of*day+b.at); at > t {
			return at
		}
	}
}
