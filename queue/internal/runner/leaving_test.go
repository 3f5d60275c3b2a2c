package runner

import (
	"context"
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
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A deputy is told that it is one though the commit that was to tell it came to nothing: a
// worker whose jobs it took back was there again. When the leader dies it leads at once.
func TestADeputyIsToldAfterAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.lease = 15 * time.Second
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		leader := s.join("leader")
		var commits, told atomic.Int32
		leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if !takesBack(cmd, "frozen") {
				return do()
			}
			if commits.Add(1) == 1 {
				defer time.Sleep(100 * time.Millisecond)
				defer s.join("other")
				return do()
			}
			if strings.Contains(fmt.Sprintf("%s", cmd.Args()), store.MessageDeputy) {
				told.Add(1)
			}
			s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(time.Minute).UnixMicro()), "frozen")
			return do()
		})
		time.Sleep(5 * time.Second)
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		for user := range reapBatch + 1 {
			lane := envelope.Lane{Tenant: "t", User: fmt.Sprint(user), Priority: 1}
			s.server.HSet("wc:{q}:running:frozen", envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: 1, Spent: 1}.String(), env.String())
		}
		s.server.HSet("wc:{q}:worker:frozen", "doubt", "5000000") // too much to be a deputy
		s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(-time.Second).UnixMicro()), "frozen")
		time.Sleep(5 * time.Second)
		if told.Load() != 1 || s.leader() != leader {
			t.Fatalf("%d commits that came to nothing were to tell a deputy, want 1; another one leads: %v", told.Load(), s.leader() != leader)
		}
		before := s.attempts()
		leader.wire.cut(true)
		s.offer("u", 1)
		time.Sleep(time.Second)
		if n := s.attempts() - before; n != 1 {
			t.Errorf("%d jobs have started a second after the leader died, want 1", n)
		}
		s.end()
	})
}

// beats reports whether a command is a worker's beat.
func beats(cmd redis.Cmder) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && len(args) > 7 && fmt.Sprint(args[2]) == "5" && strings.Contains(fmt.Sprint(args[5]), ":worker:")
}

// A worker that has left is not there again since a beat of it was still on its way: it would
// be a deputy, or the next leader.
func TestAWorkerLeavesWhileItBeats(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.join("leader")
		time.Sleep(time.Second)
		leaving, underWay := s.join("leaving"), make(chan struct{}, 100)
		leaving.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if beats(cmd) {
				underWay <- struct{}{}
				time.Sleep(50 * time.Millisecond)
			}
			return do()
		})
		for range 5 {
			<-underWay
		}
		leaving.stop()
		if there := s.client.ZRange(t.Context(), "wc:{q}:workers", 0, -1).Val(); len(there) != 1 {
			t.Errorf("%v are in the fleet", there)
		}
		s.end()
	})
}

// A worker stops though Redis is away: it waits for its handlers as long as it should, and then
// for Redis as long as that makes sense.
func TestAWorkerStopsWithoutRedis(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2} { // a leader alone, and beside another worker
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			s.handler = func(string, Attempt) Outcome { return Outcome{} }
			s.hire(workers)
			time.Sleep(2 * time.Second)
			for i := range 100 { // which start one after the other
				s.offer(fmt.Sprint("u", i), 1)
			}
			time.Sleep(505 * time.Millisecond)
			for _, w := range s.workers {
				w.wire.cut(true)
			}
			begin, stopped := time.Now(), make(chan string, workers)
			for _, w := range s.workers {
				go func() { w.stop(); stopped <- w.worker.Name }()
			}
			time.Sleep(30 * time.Second)
			if n := len(stopped); n != workers {
				t.Errorf("%d of %d workers have stopped after %v", n, workers, time.Since(begin))
			}
			for _, w := range s.workers {
				w.wire.cut(false)
			}
			for range workers {
				<-stopped
			}
			s.end()
		})
	}
}

// A worker that dies before its first beat has arrived leaves no job behind that nobody knows
// of.
func TestAWorkerDiesBeforeItsFirstBeat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(worker string, _ Attempt) Outcome {
			if worker == "first" {
				time.Sleep(20 * time.Second)
			}
			return Outcome{}
		}
		s.offer("u", 1)
		first := s.join("first")
		first.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if beats(cmd) {
				time.Sleep(time.Second)
			}
			return do()
		})
		time.Sleep(500 * time.Millisecond)
		first.wire.cut(true)
		before := s.attempts()
		s.join("second")
		time.Sleep(s.lease + time.Second)
		if n := s.attempts(); n != before+1 {
			t.Errorf("%d attempts, %d of them of the worker that died", n, before)
		}
		time.Sleep(20 * time.Second)
		s.end()
	})
}

// A commit that arrives when its leader has left gives nobody anything.
func TestACommitComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		first := s.join("first")
		time.Sleep(2 * time.Second)
		reset := &net.OpError{Op: "read", Err: errors.New("timeout")}
		first.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			args := cmd.Args()
			if !strings.HasPrefix(cmd.Name(), "eval") || !strings.Contains(fmt.Sprint(args...), ":running:first") || beats(cmd) {
				return do()
			}
			if n := args[2].(int); !strings.HasSuffix(fmt.Sprint(args[3+n]), ":first") {
				return do()
			}
			time.AfterFunc(4*time.Second, func() { s.client.Do(context.Background(), args...) })
			time.Sleep(2 * time.Second)
			cmd.SetErr(reset)
			return reset
		})
		s.offer("u", 1)
		time.Sleep(time.Second)
		first.stop()
		time.Sleep(5 * time.Second)
		s.join("second")
		time.Sleep(s.lease + time.Second)
		if n := s.attempts(); n != 1 {
			t.Errorf("%d attempts of one job", n)
		}
		s.end()
	})
}
