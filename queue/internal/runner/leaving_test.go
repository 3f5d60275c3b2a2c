package runner

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A deputy is told that it is one though the commit that was to tell it came to nothing: a
// worker whose jobs it took back was there again. When the leader dies it leads at once.
func TestADeputyIsToldAfterAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.lease = 15 * time.Second
		leader := s.join("leader")
		woken := false
		leader.wire.around = func(cmd redis.Cmder, do func() error) error {
			err := do()
			if cmd.Name() == "hgetall" && strings.HasSuffix(cmd.Args()[1].(string), ":running:frozen") {
				woken = true
				s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(time.Second).UnixMicro()), "frozen")
			}
			return err
		}
		time.Sleep(5 * time.Second)
		s.server.HSet("wc:{q}:worker:frozen", "doubt", "5000000") // too much to be a deputy
		s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(-time.Second).UnixMicro()), "frozen")
		s.join("other")
		time.Sleep(5 * time.Second)
		if !woken || s.leader() != leader {
			t.Fatal("nothing was taken back, or another one leads")
		}
		leader.wire.cut(true)
		s.offer("u", 1)
		time.Sleep(time.Second)
		if n := s.attempts(); n != 1 {
			t.Errorf("%d jobs have started a second after the leader died, want 1", n)
		}
		s.end()
	})
}
