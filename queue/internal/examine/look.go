package examine

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// Examine returns what it finds, nothing for a queue that is sound.
func (e *Examiner) Examine(ctx context.Context) ([]Finding, error) {
	l, err := e.look(ctx)
	if err != nil {
		return nil, err
	}
	return l.findings(), nil
}

// confirmAfter is the time between the looks at what is suspected.
const confirmAfter = 100 * time.Millisecond

// look examines the queue. What it has found at first has to be there twice more.
func (e *Examiner) look(ctx context.Context) (*look, error) {
	l := &look{Examiner: e, key: store.NewKeys(e.Store.Name()), more: make(map[Kind]int)}
	l.prefix = strings.TrimSuffix(l.key.Meta(), "meta")
	for _, step := range []func(context.Context) error{
		l.survey, l.clock, l.types, l.meta, l.workers, l.lanes, l.folds, l.ahead, l.owners, l.counters, l.backlogs,
	} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	for range 2 {
		if len(l.found) == 0 {
			break
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(confirmAfter):
		}
		if err := l.confirm(ctx); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// confirm looks again at all that was found.
func (l *look) confirm(ctx context.Context) (err error) {
	l.found = slices.DeleteFunc(l.found, func(d damage) bool {
		if err != nil || d.still == nil {
			return false
		}
		still, failed := d.still(ctx)
		err = failed
		return !still
	})
	return err
}
