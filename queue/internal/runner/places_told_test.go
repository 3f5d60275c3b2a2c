package runner

import (
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A place becomes free at another worker after the leader has looked, and before it asks to be told:
// the job that waits gets it at once.
func TestAPlaceThatBecomesFreeUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		release := make(chan struct{})
		var ended time.Time
		s.handler = func(worker string, a Attempt) Outcome {
			if worker == "other" && s.attempts() <= 2 {
				select {
				case <-release:
				case <-time.After(5 * time.Second):
				}
				ended = time.Now()
			} else if s.attempts() <= 2 {
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
		var once atomic.Bool
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && slices.ContainsFunc(cmd.Args(), func(a any) bool { text, _ := a.(string); return text == "hungry" }) && once.CompareAndSwap(false, true) {
				close(release)
				time.Sleep(10 * time.Millisecond) // the other's end reaches Redis before this commit
			}
			return do()
		})
		s.offer("a", 1)
		s.offer("b", 1)
		time.Sleep(20 * time.Millisecond)
		s.offer("c", 1)
		time.Sleep(30 * time.Second)
		s.mu.Lock()
		starts, last := len(s.starts), s.starts[len(s.starts)-1].at
		s.mu.Unlock()
		if starts != 3 {
			t.Fatalf("%d starts; asked %v", starts, once.Load())
		}
		if wait := last.Sub(ended); wait > 50*time.Millisecond {
			t.Errorf("a place was free for %v while a job waited for one", wait)
		}
		s.end()
	})
}
