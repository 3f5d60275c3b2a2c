package runner

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// The connections of a worker die without a word: what it sends vanishes, nobody is told, and
// new connections work. Its lease holds, and nothing that it has ended runs again.
func TestConnectionsThatDieWithoutAWord(t *testing.T) {
	for name, leads := range map[string]bool{"of the leader": true, "of another": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.handler = func(_ string, a Attempt) Outcome {
					time.Sleep(50 * time.Millisecond)
					s.mu.Lock()
					defer s.mu.Unlock()
					s.done[a.Job.Payload]++
					return Outcome{}
				}
				time.Sleep(2 * time.Second)
				flowing := make(chan struct{})
				go func() { s.flow(8 * time.Second); close(flowing) }()
				for range 5 {
					time.Sleep(time.Second)
					for _, w := range s.workers {
						if (w == s.leader()) == leads {
							w.wire.silence()
							break
						}
					}
				}
				<-flowing
				s.drain()
				s.judge()
			})
		})
	}
}

// While no answer comes a question is asked again, and what is left of the others ends with it.
func TestAskUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		answer, err := persist(t.Context(), time.Second, func(ctx context.Context) (int, error) {
			asked++
			if n := asked; n == 3 {
				return n, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		synctest.Wait()
		if answer != 3 || err != nil || asked != 3 {
			t.Errorf("%d, %v after %d questions", answer, err, asked)
		}
	})
}
