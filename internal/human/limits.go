package human

import (
	"fmt"
	"math"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// Percent writes a part of 1: "75 %". What is not all is not 100 %, and what is something not 0 %.
func Percent(part float64) string {
	percent := math.Round(100 * part)
	switch {
	case part > 0 && percent < 1:
		return "<1 %"
	case part < 1 && percent > 99:
		percent = 99
	}
	return fmt.Sprintf("%.0f %%", percent)
}

// NextStart says from when on a limit by name lets a job start, for the values of its key.
func NextStart(now time.Time, k queue.LimitKey) string {
	switch {
	case k.Paused.After(now):
		return "paused, goes on " + From(now, k.Paused)
	case k.Next.IsZero():
		return "when one has ended"
	case k.Next.After(now):
		return From(now, k.Next)
	}
	return "now"
}
