package queue_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Redis's clock steps: back, and what waits does so for as long; forward, and what waits
// comes sooner. Nothing is lost or runs twice, and in the end all is as before.
func TestRedisClockSteps(t *testing.T) {
	t.Parallel()
	for _, step := range []time.Duration{-5 * time.Second, -200 * time.Millisecond, 200 * time.Millisecond, 5 * time.Second} {
		t.Run(step.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				var offset atomic.Int64
				stop := make(chan struct{})
				ticking := make(chan struct{})
				go func() {
					defer close(ticking)
					for tick := time.NewTicker(500 * time.Microsecond); ; {
						select {
						case <-stop:
							return
						case <-tick.C:
							server.SetTime(time.Now().Add(time.Duration(offset.Load())))
						}
					}
				}()
				defer func() { close(stop); <-ticking }()
				client := redistest.MiniClient(t, server)
				setPolicies(t, client, policies(queue.Policy{
					Tenant: []throttle.Rule{throttle.Leak(20, time.Second)}, User: []throttle.Rule{throttle.Spacing(100 * time.Millisecond)},
				}))
				var got recorder
				for range 2 {
					runWorker(t, client, &got, queue.WorkerConfig{})
				}
				time.Sleep(2 * time.Second)
				n := 0
				offer := func(count int) {
					for range count {
						enqueue(t, client, named(fmt.Sprint("job-", n), fmt.Sprint("u", n%4)))
						n++
						time.Sleep(20 * time.Millisecond)
					}
				}
				offer(40)
				offset.Store(int64(step))
				offer(40)
				time.Sleep(8*time.Second + max(0, -step))
				if got.count() != n {
					t.Errorf("%d starts of %d jobs", got.count(), n)
				}
				begin := time.Now()
				enqueue(t, client, named("after", "another"))
				time.Sleep(100 * time.Millisecond)
				if all := got.all(); len(all) != n+1 {
					t.Errorf("a job has not started %v after the step was over", time.Since(begin))
				}
			})
		})
	}
}
