// Package pace says how fast rules let jobs start in the long run, for whoever tells people how long a backlog takes.
package pace

import (
	"math"
	"time"

	"github.com/waterclock/waterclock/throttle"
)

// Sustained returns how many starts a second rules allow in the long run, and which of them bounds it: infinite, and nil,
// without rules.
func Sustained(rules []throttle.Rule) (perSecond float64, by *throttle.Rule) {
	perSecond = math.Inf(1)
	for i, r := range rules {
		if r.Shadows() || r.Drops() || r.Kind() == throttle.KindHours {
			continue
		}
		if of := float64(r.Limit()) / r.Period().Seconds(); of < perSecond {
			perSecond, by = of, &rules[i]
		}
	}
	return perSecond, by
}

// Drains returns how long so many jobs take at a rate; false if for ever, or at once.
func Drains(waiting int64, perSecond float64) (time.Duration, bool) {
	if waiting == 0 || perSecond <= 0 || math.IsInf(perSecond, 1) {
		return 0, false
	}
	seconds := float64(waiting) / perSecond
	return time.Duration(seconds * float64(time.Second)), seconds < 100*365*24*3600
}
