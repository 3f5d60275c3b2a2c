package runner

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// notice returns the subject of the notice that a command writes; "" for other commands.
func notice(cmd redis.Cmder) string {
	if cmd.Name() != "xadd" {
		return ""
	}
	subject, _, _ := strings.Cut(fmt.Sprint(cmd.Args()[3]), " ")
	return subject
}

// A job that a worker has returned comes back though Redis has forgotten the notice that says
// so, as it does when a replica takes over.
func TestAReturnIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		var returned, forgotten atomic.Int64
		s.handler = func(worker string, a Attempt) Outcome {
			if s.leader().worker.Name == worker || returned.Add(1) > 3 {
				time.Sleep(time.Second)
				return Outcome{}
			}
			return Outcome{Pause: &Pause{Scope: envelope.UserScope("t", a.Lane.User), Until: a.Clock() + 100_000}}
		}
		s.hire(2)
		for _, w := range s.workers {
			w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
				if notice(cmd) == store.NoticeReturn && forgotten.Add(1) <= 3 {
					return nil
				}
				return do()
			})
		}
		time.Sleep(2 * time.Second)
		for i := range 20 {
			s.offer(fmt.Sprint("u", i), 1)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(s.lease)
		if n := s.attempts(); n != 23 || forgotten.Load() < 3 {
			t.Errorf("%d attempts of 20 jobs, %d of them again", n, forgotten.Load())
		}
		s.end()
	})
}

// A refund is given once though the reply to what tells of it is lost, and it is told again.
func TestARefundIsToldTwice(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
			rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Hour, Burst: 2})}
		var of sync.Map
		s.handler = func(worker string, a Attempt) Outcome {
			if a.Lane.User != "u" { // so that the leader has no place
				time.Sleep(23 * time.Second)
				return Outcome{}
			}
			_, again := of.LoadOrStore("refunded", true)
			if !again {
				s.workers[1].wire.lose(1)
			}
			return Outcome{Refund: !again}
		}
		leader := s.join("leader")
		time.Sleep(2 * time.Second)
		for i := range 50 {
			s.offer(fmt.Sprint("b", i), 1)
		}
		time.Sleep(time.Second)
		other := s.join("other")
		var lost atomic.Bool
		reset := &net.OpError{Op: "read", Err: errors.New("connection reset")}
		other.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if notice(cmd) == store.NoticeRefund && lost.CompareAndSwap(false, true) {
				cmd.SetErr(reset)
				return reset
			}
			return err
		})
		time.Sleep(2 * time.Second)
		if s.leader() != leader {
			t.Fatal("the other one leads")
		}
		s.offer("u", 5)
		time.Sleep(15 * time.Second)
		if n := s.attempts() - 50; n != 3 {
			t.Errorf("%d attempts, want 3", n)
		}
		time.Sleep(10 * time.Second)
		s.end()
	})
}
