package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// The jobs of a worker that has died start again when its lease ends, whenever between two looks at the fleet that is.
func TestJobsOfADeadWorkerStartWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	for i := range 10 {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			dead := make(chan struct{})
			s.handler = func(worker string, _ Attempt) Outcome {
				if worker == "dying" {
					<-dead
				}
				return Outcome{}
			}
			leader := s.join("leader")
			time.Sleep(2 * time.Second)
			dying := s.join("dying")
			time.Sleep(time.Second + time.Duration(i)*100*time.Millisecond)
			for i := range 20 {
				s.offer(fmt.Sprint("u", i), 1)
			}
			time.Sleep(300 * time.Millisecond)
			before, held := s.attempts(), s.client.HLen(t.Context(), "wc:{q}:running:dying").Val()
			if s.leader() != leader || before != 20 || held == 0 {
				t.Errorf("%d of 20 jobs have started, %d are with the worker that is to die", before, held)
			}
			dying.wire.cut(true)
			ends := int64(s.client.ZScore(t.Context(), "wc:{q}:workers", "dying").Val())
			time.Sleep(time.Until(time.UnixMicro(ends)))
			if n := s.attempts() - before; n != 0 {
				t.Errorf("%d jobs have started again before the lease ended", n)
			}
			time.Sleep(50*time.Millisecond + time.Duration(held)*10*time.Millisecond) // their tenant leaks 100/s
			if n := s.attempts() - before; n != int(held) {
				t.Errorf("%d of %d jobs have started again soon after the lease has ended, dead %v after a look", n, held, time.Duration(i)*100*time.Millisecond)
			}
			close(dead)
			s.end()
		})
	}
}
