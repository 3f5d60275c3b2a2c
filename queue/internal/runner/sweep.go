package runner

import "context"

// sweep lowers the bounds of lanes in Redis that were computed under other policies: a
// bound may be too early, and never too late. It goes through all tenants beside the
// rounds, and tells them of each whose bounds it has changed.
func (t *term) sweep(ctx context.Context, version int64) {
	meta, err := t.r.store.Meta(ctx)
	if err != nil || meta.Swept == version {
		return
	}
	trouble := newTrouble(t.r.log, "sweeping bounds")
	for cursor := uint64(0); ; {
		names, next, err := t.r.store.ScanTenants(ctx, cursor)
		for _, name := range names {
			if err != nil {
				break
			}
			var changed bool
			now, _ := t.r.clock.now()
			if changed, err = t.r.store.LowerBounds(ctx, name, now); changed {
				t.report(ctx, func(now int64) { t.sched.Loosen(name, now) })
			}
		}
		if ctx.Err() != nil {
			return
		}
		if wait := trouble.after(err); wait > 0 {
			pause(ctx, wait)
			continue
		}
		if cursor = next; cursor == 0 {
			break
		}
	}
	if err := t.r.store.SetSwept(ctx, version); err != nil {
		t.r.log.Debug("noting the end of a sweep", "err", err)
	}
}
