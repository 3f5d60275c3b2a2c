package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job that asks for a pause at the leader's own place starts at another worker next.
func TestAPausedJobGoesElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(worker string, a Attempt) Outcome {
			if worker == "w" {
				return Outcome{Pause: &Pause{Scope: envelope.UserScope("t", "a"), Until: a.Clock() + time.Second.Microseconds()}}
			}
			return Outcome{}
		}
		w := s.joinWith("w", 50)
		time.Sleep(3 * time.Second)
		s.joinWith("other", 50)
		time.Sleep(3 * time.Second)
		if s.leader() != w {
			t.Fatal("another leads")
		}
		for range 3 { // one by one
			before := s.attempts()
			s.offer("a", 1)
			time.Sleep(10 * time.Second)
			if starts := s.attempts() - before; starts != 2 {
				t.Errorf("%d starts, want one at each worker", starts)
			}
		}
		s.end()
	})
}
