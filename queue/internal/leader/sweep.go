package leader

import (
	"context"

	"github.com/waterclock/waterclock/queue/internal/retry"
)

// Bounds in Redis were computed by the rules of their time. When policies change, one that was computed under the old
// rules may be too late: its lane would wait for an instant that the new rules do not know. So all bounds of all
// tenants are lowered to now, beside the rounds, a tenant at a time. The leader then computes them anew as it comes to
// them.
//
// A sweep that ends early, since its leader does, is begun anew by the next one: the version under which bounds were
// swept last is noted in Redis at the end. A step of the old sweep may come after that: the leader that there is then
// is told of it. The doctor finds bounds that no rule explains.

// sweep lowers the bounds of lanes in Redis that were computed under other policies: a bound may be too early, and
// never too late. It goes through all tenants beside the rounds. Each step that lowers bounds tells the leader of it by
// a notice. A sweep that is replaced by another ends between two tenants. After an error it reads the same page of
// tenants again: lowering a bound twice does no harm.
func (t *term) sweep(ctx context.Context, version int64, replaced <-chan struct{}) {
	trouble := retry.NewTrouble(t.w.Log, "sweeping bounds")
	meta, err := query(ctx, t, t.w.Store.Meta)
	for ; err != nil; meta, err = query(ctx, t, t.w.Store.Meta) {
		if retry.Pause(ctx, trouble.After(err)); ctx.Err() != nil {
			return
		}
	}
	trouble.After(nil)
	if meta.Swept == version {
		return
	}
	for cursor := uint64(0); ; {
		names, next, err := queryBoth(ctx, t, cursor, t.w.Store.ScanTenants)
		for _, name := range names {
			select {
			case <-replaced:
				return
			default:
			}
			if err != nil {
				break
			}
			now, _ := t.w.Clock.Now()
			_, err = query(ctx, t, func(ctx context.Context) (struct{}, error) {
				return struct{}{}, t.w.Store.LowerBounds(ctx, name, now)
			})
		}
		if ctx.Err() != nil {
			return
		}
		if wait := trouble.After(err); wait > 0 {
			retry.Pause(ctx, wait)
			continue
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if err := t.w.Store.SetSwept(ctx, version); err != nil {
		t.w.Log.Debug("noting the end of a sweep", "err", err)
	}
}
