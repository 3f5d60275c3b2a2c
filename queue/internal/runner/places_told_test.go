package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A place becomes free at another worker while a job waits for one: it gets it at once.
func TestAPlaceThatBecomesFreeElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		var ended time.Time
		s.handler = func(worker string, a Attempt) Outcome {
			switch {
			case s.attempts() > 2:
			case worker == "other":
				time.Sleep(time.Second)
				ended = time.Now()
			default:
				time.Sleep(20 * time.Second)
			}
			return Outcome{}
		}
		w := s.joinWith("w", 1)
		time.Sleep(3 * time.Second)
		s.joinWith("other", 1)
		time.Sleep(3 * time.Second)
		if s.leader() != w {
			t.Fatal("another leads")
		}
		s.offer("a", 1)
		s.offer("b", 1)
		time.Sleep(20 * time.Millisecond)
		s.offer("c", 1)
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		starts, last := len(s.starts), s.starts[len(s.starts)-1].at
		s.mu.Unlock()
		if starts != 3 {
			t.Fatalf("%d starts", starts)
		}
		if wait := last.Sub(ended); wait > 10*time.Millisecond {
			t.Errorf("a place was free for %v while a job waited for one", wait)
		}
		s.end()
	})
}

// A new leader knows whose the jobs are that run, and gives no worker more than it has places for.
func TestANewLeaderKnowsWhoHasWhat(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome {
			time.Sleep(20 * time.Second)
			return Outcome{}
		}
		s.joinWith("a", 1)
		time.Sleep(3 * time.Second)
		s.joinWith("b", 1)
		time.Sleep(3 * time.Second)
		s.offer("u", 2)
		time.Sleep(time.Second)
		if n := s.attempts(); n != 2 {
			t.Fatalf("%d starts", n)
		}
		s.depose()
		s.offer("u", 1)
		time.Sleep(time.Second)
		for _, worker := range []string{"a", "b"} {
			if claims, err := s.server.HKeys("wc:{q}:running:" + worker); err != nil || len(claims) != 1 {
				t.Errorf("%s, which has one place, has %q, %v", worker, claims, err)
			}
		}
		time.Sleep(time.Minute)
		if n := s.attempts(); n != 3 {
			t.Errorf("%d starts, want 3", n)
		}
		s.end()
	})
}
