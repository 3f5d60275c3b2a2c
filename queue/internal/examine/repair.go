package examine

import (
	"context"
	"errors"
	"fmt"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// repair makes one step of a repair.
func (l *look) repair(ctx context.Context, m store.Mend) error {
	_, err := l.Store.Mend(ctx, []store.Mend{m})
	return err
}

// rounds is how often a repair looks again: what was mended may have hidden something.
const rounds = 20

// Repair mends what it finds, as far as that is safe, until there is nothing more that it can
// mend. It returns what it has mended, and what is left.
func (e *Examiner) Repair(ctx context.Context) (mended, left []Finding, err error) {
	for range rounds {
		l, err := e.look(ctx)
		if err != nil {
			return mended, nil, err
		}
		did, err := l.mendAll(ctx)
		mended = append(mended, did...)
		if err != nil || len(did) == 0 {
			return mended, l.findings(), err
		}
	}
	left, err = e.Examine(ctx)
	return mended, left, err
}

// mendAll mends what was found. Counters are mended when nothing else is left to mend.
func (l *look) mendAll(ctx context.Context) (mended []Finding, err error) {
	for _, last := range []bool{false, true} {
		for i, d := range l.found {
			if d.mend == nil || d.later != last {
				continue
			}
			switch err := d.mend(ctx); {
			case errors.Is(err, errMoves):
				l.found[i].Repair += fmt.Sprintf(", but %v to measure it: repair again when fewer do", err)
			case err != nil:
				return mended, err
			default:
				mended = append(mended, d.Finding)
			}
		}
		if len(mended) > 0 {
			break
		}
	}
	if len(mended) > 0 { // a key that was renamed has told nobody
		err = l.repair(ctx, store.Mend{})
	}
	return mended, err
}
