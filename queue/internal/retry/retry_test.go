package retry

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// While no answer comes a question is asked again, and what is left of the others ends with it.
func TestAskUntilAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		answer, err := Persist(t.Context(), time.Second, func(ctx context.Context) (int64, error) {
			if n := asked.Add(1); n == 3 {
				return n, nil
			}
			<-ctx.Done()
			return 0, ctx.Err()
		})
		synctest.Wait()
		if answer != 3 || err != nil || asked.Load() != 3 {
			t.Errorf("%d, %v after %d questions", answer, err, asked.Load())
		}
	})
}
