package runner

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// The first reading of a sweep fails. The sweep is made all the same: nothing else finds a lane whose bound was computed
// under other policies.
func TestASweepWhoseFirstReadingFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		var failed atomic.Int64
		var armed atomic.Bool
		leader := s.join("leader")
		time.Sleep(5 * time.Second)
		s.offer("u", 1)
		time.Sleep(time.Second)
		started := s.attempts()
		far := float64(time.Now().Add(time.Hour).UnixMicro())
		env := envelope.Envelope{Stamp: fmt.Sprintf("%013x", time.Now().UnixMicro()), Cost: 1, MaxAttempts: 3, Type: "x"}
		s.server.RPush("wc:{q}:lane:t:away", env.String())
		s.server.ZAdd("wc:{q}:due:t", far, "away")
		leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if armed.Load() && cmd.Name() == "hmget" && strings.Contains(fmt.Sprint(cmd.Args()...), "wc:{q}:meta") && failed.Add(1) == 1 {
				err := &net.OpError{Op: "read", Err: errors.New("connection reset")}
				cmd.SetErr(err)
				return err
			}
			return do()
		})
		armed.Store(true)
		policies := *s.policies
		policies.Version = 2
		s.policies = &policies
		s.client.HSet(t.Context(), "wc:{q}:policies", "version", 2, "source", "x")
		s.client.HSet(t.Context(), "wc:{q}:meta", "policies", 2)
		s.client.HIncrBy(t.Context(), "wc:{q}:meta", "changes", 1)
		time.Sleep(10 * time.Second)
		if failed.Load() == 0 || s.attempts() != started+1 {
			t.Errorf("%d readings, and after ten seconds %d jobs have started; want the one whose bound lay an hour ahead", failed.Load(), s.attempts()-started)
		}
		s.end()
	})
}
