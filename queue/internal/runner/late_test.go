package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
)

// A worker to which all jobs come late starts them nevertheless: each one that comes back gets a
// slot that lies further ahead.
func TestAWorkerThatIsAlwaysLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		leader := s.join("a")
		time.Sleep(3 * time.Second)
		w := s.join("b")
		time.Sleep(3 * time.Second)
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if cmd.Name() == "blpop" {
				time.Sleep(40 * time.Millisecond)
			}
			return err
		})
		for leader.worker.Places.Take() { // all its places are taken
		}
		s.offer("u", 20)
		time.Sleep(10 * time.Second)
		if n := s.attempts(); n != 20 {
			t.Errorf("%d of 20 jobs have started", n)
		}
		for range leader.worker.Places.All() {
			leader.worker.Places.Give()
		}
		s.end()
	})
}
