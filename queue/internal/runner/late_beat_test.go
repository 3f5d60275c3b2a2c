package runner

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A beat is on its way while its worker stops and leaves, and arrives after that. It does not bring the worker back: jobs
// that were given to it would wait for the end of its lease.
func TestABeatAfterItsWorkerHasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.lease = 15 * time.Second
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.joinWith("leader", 2)
		time.Sleep(5 * time.Second)
		w := s.join("w")
		time.Sleep(10 * time.Second)
		var slow atomic.Int64
		var late atomic.Bool
		sent := make(chan struct{})
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			text := fmt.Sprint(cmd.Args()...)
			if strings.HasPrefix(cmd.Name(), "eval") && strings.Contains(text, "places") && strings.Contains(text, "doubt") && slow.Add(1) == 1 {
				close(sent)
				time.Sleep(300 * time.Millisecond)
				late.Store(true)
				return s.client.Do(context.Background(), cmd.Args()...).Err() // the worker's own client is closed by now
			}
			return do()
		})
		<-sent
		w.stop()
		if late.Load() {
			t.Fatal("the beat has arrived before its worker left")
		}
		time.Sleep(400 * time.Millisecond)
		if leases, _ := s.server.ZMembers("wc:{q}:workers"); !late.Load() || slices.Contains(leases, "w") {
			t.Errorf("workers %v", leases)
		}
		time.Sleep(2 * time.Second)
		const jobs = 40
		offered := time.Now()
		for i := range jobs {
			s.offer(fmt.Sprint("v", i), 1)
		}
		time.Sleep(40 * time.Second)
		var worst time.Duration
		n := 0
		for _, a := range s.starts {
			if a.user[0] == 'v' {
				n++
				worst = max(worst, a.at.Sub(offered))
			}
		}
		if worst > 3*time.Second || n != jobs {
			t.Errorf("%d of %d jobs have started, the last after %v", n, jobs, worst)
		}
		s.end()
	})
}
