package runner

import (
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// Comparisons bring jobs whose messages are still on their way, as they do under load. The connection on which the worker
// waits for messages is alive, so it goes on waiting on it: each further one would keep a connection from the leader's mail.
func TestComparisonsThatBringJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.join("w")
		var waits, most atomic.Int64
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if cmd.Name() == "blpop" {
				n := waits.Add(1)
				defer waits.Add(-1)
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
			}
			return do()
		})
		time.Sleep(10 * time.Second)
		const jobs = 20
		for i := range jobs {
			env := envelope.Envelope{Stamp: fmt.Sprintf("%013x", time.Now().UnixMicro()), Cost: 1, MaxAttempts: 3, Type: "x"}
			lane := envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: 1}
			now := time.Now().UnixMicro()
			s.server.HSet("wc:{q}:running:w", envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: now, Spent: now}.String(), env.String())
			if err := w.worker.Claims.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(20 * time.Millisecond)
		}
		if s.attempts() != jobs || most.Load() != 1 {
			t.Errorf("%d of %d jobs have started, with up to %d waits for messages at once; want one", s.attempts(), jobs, most.Load())
		}
		s.end()
	})
}

// The connection on which a worker waits for messages has died without a word. A comparison brings the first job that
// comes, and after that the worker waits by another connection.
func TestADeadWaitIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		full := make(chan struct{})
		s.handler = func(worker string, _ Attempt) Outcome {
			if worker == "leader" {
				<-full
			}
			return Outcome{}
		}
		s.joinWith("leader", 1)
		time.Sleep(3 * time.Second)
		s.offer("long", 1)
		time.Sleep(time.Second)
		w := s.join("w")
		time.Sleep(3 * time.Second)
		w.wire.silence()
		silent := time.Now()
		const jobs = 100
		for i := range jobs {
			s.offer(fmt.Sprint("u", i), 1)
			time.Sleep(100 * time.Millisecond)
		}
		close(full)
		s.end()
		if len(s.starts) != jobs+1 {
			t.Errorf("%d of %d jobs have started", len(s.starts), jobs+1)
		}
		for _, a := range s.starts {
			ns, _ := strconv.ParseInt(a.payload[len(a.payload)-18:], 10, 64)
			offered := time.Unix(0, ns)
			if waited := a.at.Sub(offered); waited > 50*time.Millisecond && offered.Sub(silent) > 2*time.Second {
				t.Errorf("a job offered %v after the connections died has waited for %v", offered.Sub(silent), waited)
			}
		}
	})
}
