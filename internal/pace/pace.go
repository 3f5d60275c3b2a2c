// Package pace says how fast rules let jobs start in the long run, for whoever tells people how long a backlog takes.
package pace

import (
	"math"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/throttle"
)

// Sustained returns how many starts a second rules allow in the long run: infinite without rules. A warm-up allows what the window
// allows that holds at an instant.
func Sustained(all []throttle.Rule, now time.Time) (perSecond float64) {
	perSecond = math.Inf(1)
	for _, r := range all {
		if bounds(r) {
			perSecond = min(perSecond, rate(r.On(now)))
		}
	}
	return perSecond
}

// Drains returns how long so many jobs take from an instant on, and which of the rules makes it so long; nil if none does, or if it is
// for ever.
func Drains(waiting int64, all []throttle.Rule, now time.Time) (longest time.Duration, by *throttle.Rule) {
	for i, r := range all {
		if !bounds(r) || waiting == 0 {
			continue
		}
		if d, ends := drains(float64(waiting), r, now); ends && d > longest {
			longest, by = d, &all[i]
		}
	}
	return longest, by
}

// drains returns how long jobs take at the rate of one rule, which changes from day to day if it is a warm-up; false if for ever.
func drains(left float64, r throttle.Rule, now time.Time) (time.Duration, bool) {
	from, windows := r.Warmup()
	days := rules.Rule{Kind: rules.Kind(r.Kind()), From: from, Windows: windows, Zone: r.Zone()}
	for at := now; ; {
		perSecond := rate(r.On(at))
		changes := days.Changes(at.UnixMicro())
		until := time.UnixMicro(changes)
		if seconds := left / perSecond; changes == rules.Never || seconds < until.Sub(at).Seconds() {
			seconds += at.Sub(now).Seconds()
			return time.Duration(seconds * float64(time.Second)), seconds < 100*365*24*3600
		}
		left -= perSecond * until.Sub(at).Seconds()
		at = until
	}
}

func bounds(r throttle.Rule) bool {
	return !r.Shadows() && !r.Drops() && r.Kind() != throttle.KindHours
}

func rate(r throttle.Rule) float64 { return float64(r.Limit()) / r.Period().Seconds() }
