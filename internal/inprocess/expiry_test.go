package inprocess_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/waterclock/waterclock/internal/inprocess"
)

// Keys expire by the clock of the bubble: exactly, or up to 10 ms early.
func TestKeysExpire(t *testing.T) {
	for name, c := range map[string]struct {
		start func() *miniredis.Miniredis
		early time.Duration
	}{"up to 10 ms early": {inprocess.New, 10 * time.Millisecond}, "exactly": {inprocess.NewExact, 0}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := c.start()
				defer server.Close()
				client := inprocess.NewClient(server)
				defer client.Close()
				left := func() int64 { return client.Exists(t.Context(), "a", "b").Val() }
				const life = 50 * time.Millisecond
				for range 20 {
					time.Sleep(7 * time.Millisecond)
					client.Set(t.Context(), "a", "", life)
					client.Eval(t.Context(), "return redis.call('SET', 'b', '', 'PX', 50)", nil)
					time.Sleep(life - c.early - 1)
					if left() != 2 {
						t.Errorf("%d of 2 keys left before their expiry", left())
					}
					time.Sleep(c.early + 1)
					time.Sleep(c.early)
					if left() != 0 {
						t.Errorf("%d keys left after their expiry", left())
					}
				}
			})
		})
	}
}
