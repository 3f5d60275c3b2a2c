package runner

import (
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// takenOver returns after what time another worker leads when the leader is cut off, a minute after the message that made
// the worker a deputy was lost.
func takenOver(t *testing.T, lose bool) (took time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.lease = 15 * time.Second
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		leader := s.join("leader")
		time.Sleep(5 * time.Second)
		w := s.join("w")
		var lost atomic.Int64
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if lose && cmd.Name() == "blpop" && strings.Contains(fmt.Sprint(cmd.(*redis.StringSliceCmd).Val()), "!deputy") && lost.Add(1) == 1 {
				err = io.ErrUnexpectedEOF
				cmd.SetErr(err)
			}
			return err
		})
		time.Sleep(61 * time.Second)
		cut := time.Now()
		leader.wire.cut(true)
		for s.leader() != w && time.Since(cut) < time.Minute {
			time.Sleep(10 * time.Millisecond)
		}
		took = time.Since(cut)
		if lose != (lost.Load() > 0) {
			t.Errorf("%d messages were lost", lost.Load())
		}
		leader.wire.cut(false)
		time.Sleep(time.Minute)
		s.end()
	})
	return took
}

// The message that makes a worker a deputy is lost with its connection. It looks after the leader all the same.
func TestALostAppointment(t *testing.T) {
	usual, after := takenOver(t, false), takenOver(t, true)
	if after > 2*usual {
		t.Errorf("another leads after %v, usually after %v", after, usual)
	}
}
