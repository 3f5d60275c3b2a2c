package store

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A breaking lets so many round trips through; those after them fail.
type breaking struct{ left int }

var errBroken = errors.New("the connection is broken")

func (b *breaking) fails() bool { b.left--; return b.left < 0 }

func (b *breaking) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *breaking) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if b.fails() {
			cmd.SetErr(errBroken)
			return errBroken
		}
		return next(ctx, cmd)
	}
}

func (b *breaking) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if b.fails() {
			return errBroken
		}
		return next(ctx, cmds)
	}
}

// Wherever the connection breaks, a cancelled job that others drop is cancelled still, or dropped: its ID expires then,
// and is not among the cancelled any more.
func TestACancelledJobIsDroppedAtOnce(t *testing.T) {
	t.Parallel()
	for trips := range 3 {
		onDesks(t, func(t *testing.T, d *desk) {
			ctx := t.Context()
			d.offer("u", id("a"))
			_, err := d.Cancel(ctx, "a")
			d.must(err)
			hook := &breaking{left: trips}
			d.client.AddHook(hook)
			err = d.Dropped(ctx, []string{"a"}, []string{"body"})
			hook.left = 100
			settings, failed := d.Settings(ctx)
			d.must(failed)
			listed := slices.Contains(settings.Cancelled, "a")
			expires := d.client.PTTL(ctx, "wc:{q}:id:a").Val() > 0
			switch where := d.where("a"); {
			case where == WasCancelled && listed && !expires && err != nil:
			case where == WasDropped && !listed && expires && err == nil:
			default:
				t.Errorf("after %d round trips it is %q, among the cancelled %v, expires %v; %v", trips, where, listed, expires, err)
			}
		})
	}
}
