package leader

import (
	"context"
	"strconv"

	"github.com/waterclock/waterclock/internal/wallclock"
	"github.com/waterclock/waterclock/queue/internal/retry"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// Bounds in Redis were computed by the rules of their time. When policies change, one that was computed under the old
// rules may be too late: its lane would wait for an instant that the new rules do not know. So all bounds of all
// tenants are lowered to now, beside the rounds, a tenant at a time. The leader then computes them anew as it comes to
// them.
//
// Rules that go by a local time also depend on the data of the zones, which comes with the worker's program or its system. A
// leader whose data differ from those by which bounds were swept last sweeps them, too.
//
// A sweep that ends early, since its leader does, is begun anew by the next one: that under which bounds were
// swept last is noted in Redis at the end. A step of the old sweep may come after that: the leader that there is then
// is told of it. The doctor finds bounds that no rule explains.

// sweptUnder returns what bounds depend on, beside the states of rules: the version of the policies, and the data of the zones if
// a rule goes by a local time.
func sweptUnder(p *schedule.Policies) string {
	under := strconv.FormatInt(p.Since(), 10)
	if p.Zoned {
		under += " " + wallclock.Fingerprint()
	}
	return under
}

// sweep lowers the bounds of lanes in Redis that were computed under other policies: a bound may be too early, and
// never too late. It goes through all tenants beside the rounds. Each step that lowers bounds tells the leader of it by
// a notice. A sweep that is replaced by another ends between two tenants. After an error it reads the same page of
// tenants again: lowering a bound twice does no harm.
func (t *term) sweep(ctx context.Context, p *schedule.Policies, replaced <-chan struct{}) {
	trouble, under := retry.NewTrouble(t.w.Log, "sweeping bounds"), sweptUnder(p)
	meta, err := query(ctx, t, t.w.Store.Meta)
	for ; err != nil; meta, err = query(ctx, t, t.w.Store.Meta) {
		if retry.Pause(ctx, trouble.After(err)); ctx.Err() != nil {
			return
		}
	}
	trouble.After(nil)
	if meta.Swept == under {
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
	if err := t.w.Store.SetSwept(ctx, under); err != nil {
		t.w.Log.Debug("noting the end of a sweep", "err", err)
	}
}
