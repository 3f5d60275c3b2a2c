package retry

import (
	"context"
	"errors"
	"log/slog"
	"time"
)

// Whoever needs Redis tries again for as long as it takes: an outage must not end a worker. The log would
// fill with the same error, and Redis would be asked by everybody at once when it is back. So a loop
// reports the first error and the end of the trouble, and waits longer each time, up to a second.

// A Trouble is a loop's memory of failing: it waits longer between tries, and says once
// that it began and once that it is over.
type Trouble struct {
	log   *slog.Logger
	act   string
	since time.Time
	wait  time.Duration
}

// NewTrouble returns the memory of a loop that does something, which it names to people.
func NewTrouble(log *slog.Logger, act string) *Trouble {
	return &Trouble{log: log, act: act}
}

// After notes the outcome of one try and returns how long to wait before the next: 0
// when it went well.
func (t *Trouble) After(err error) time.Duration {
	const first, longest = 50 * time.Millisecond, time.Second
	switch {
	case err == nil:
		if t.wait > 0 {
			t.log.Info(t.act+" again", "after", time.Since(t.since).Round(time.Millisecond))
		}
		t.wait = 0
	case errors.Is(err, context.Canceled):
		return first
	case t.wait == 0:
		t.log.Error(t.act+" does not work; trying again until it does", "err", err)
		t.since, t.wait = time.Now(), first
	default:
		t.wait = min(2*t.wait, longest)
	}
	return t.wait
}
