package dashboard

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/waterclock/waterclock/queue/watch"
)

// watched is a queue as the dashboard sees it: what was read of it lately, for everybody who looks.
type watched struct {
	name      string
	inspector *watch.Watcher
	cache     cache
	survey    survey
	rates     rates
	latest    atomic.Pointer[watch.Point] // nil before the first reading, and while Redis is away
}

func newWatched(name string, inspector *watch.Watcher) *watched {
	return &watched{name: name, inspector: inspector}
}

// readPatience is how long one reading may take.
const readPatience = 5 * time.Second

// run reads the queue every second until ctx ends.
func (w *watched) run(ctx context.Context, log *slog.Logger, told *streams) {
	tick := time.NewTicker(readEvery)
	defer tick.Stop()
	failed := false
	for {
		err := w.read(ctx)
		if err != nil && !failed && ctx.Err() == nil {
			log.Warn("the dashboard cannot read a queue", "queue", w.name, "err", err)
		}
		failed = err != nil
		told.tell(w.name)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (w *watched) read(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readPatience)
	defer cancel()
	p, err := w.inspector.Record(ctx)
	if err != nil {
		w.latest.Store(nil)
		return err
	}
	w.latest.Store(&p)
	return nil
}

// now returns the newest reading: that of run, if it runs, or one of its own.
func (w *watched) now(ctx context.Context) (watch.Point, error) {
	if p := w.latest.Load(); p != nil && time.Since(p.At).Abs() < 3*readEvery {
		return *p, nil
	}
	return w.inspector.Record(ctx)
}
