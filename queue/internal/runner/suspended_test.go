package runner

import (
	"time"
)

// suspend lets a machine have slept: its monotonic clock stood still, and the wall clock and
// Redis's went on.
func (r *Runner) suspend(d time.Duration) { r.worker.Clock.Shift(0, d) }
