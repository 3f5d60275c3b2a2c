package runner

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A worker that returns a job unstarted gets no more jobs until its record was read again: here
// it stops, and the beat that says so is on its way for long.
func TestAWorkerThatReturnsJobs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome {
			time.Sleep(3 * time.Second)
			return Outcome{}
		}
		leader := s.join("leader")
		time.Sleep(2 * time.Second)
		other := s.join("other")
		time.Sleep(2 * time.Second)
		for taken := leader.worker.Places.Places.Share(); taken.Take(); { // by another queue of the leader
		}
		s.offer("u", 1)
		time.Sleep(100 * time.Millisecond)
		if s.leader() != leader || s.attempts() != 1 {
			t.Fatalf("%d attempts, or the other one leads", s.attempts())
		}
		var returns atomic.Int64
		other.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if notice(cmd) == store.NoticeReturn {
				returns.Add(1)
			}
			if beats(cmd) {
				time.Sleep(2 * time.Second)
			}
			return do()
		})
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			other.stop()
		}()
		const jobs = 10
		for i := range jobs {
			s.offer(fmt.Sprint("u", i), 1)
		}
		time.Sleep(900 * time.Millisecond)
		if n := returns.Load(); n == 0 || n > 2*jobs { // at most once more, after a muster
			t.Errorf("%d jobs were returned, of %d", n, jobs)
		}
		<-stopped
		time.Sleep(3 * time.Second)
		s.end()
	})
}
