package outbox

import (
	"context"
	"log/slog"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A feed offers the rows of one queue. It has two goroutines, those of [feed.run] and [feed.keep].
type feed struct {
	*Relay
	queue  string
	client *queue.Client
	log    *slog.Logger

	trouble time.Time // since when rounds fail; the zero time if they do not
}

// The times of a feed.
const (
	firstBackoff = 100 * time.Millisecond
	lastBackoff  = 5 * time.Second
	patience     = 30 * time.Second // with the database, for one statement or transaction
	goodbye      = 3 * time.Second  // when ctx has ended
)

// run plays rounds until ctx ends.
func (f *feed) run(ctx context.Context) {
	backoff := firstBackoff
	defer f.release(ctx)
	for {
		more, err := f.round(ctx)
		if ctx.Err() != nil {
			return
		}
		f.tell(err)
		wait := f.config.Interval
		switch {
		case err != nil:
			wait, backoff = backoff, min(2*backoff, lastBackoff)
		case more:
			wait, backoff = 0, firstBackoff
		default:
			backoff = firstBackoff
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// tell logs that rounds fail, or that they do no longer.
func (f *feed) tell(err error) {
	switch {
	case err != nil && f.trouble.IsZero():
		f.trouble = time.Now()
		f.log.Error("the outbox's rows cannot be offered; trying again", "error", err)
	case err == nil && !f.trouble.IsZero():
		f.log.Info("the outbox's rows are offered again", "after", time.Since(f.trouble).Round(time.Millisecond))
		f.trouble = time.Time{}
	}
}
