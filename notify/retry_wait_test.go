package notify

import (
	"errors"
	"testing"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// A message waits for as long as its provider asks, and longer after each attempt: a provider that
// asks for a second each time does not use up all attempts within a minute. Where the provider
// asks for nothing, the worker's RetryDelay decides.
func TestWaitsGrowWithTheAttempts(t *testing.T) {
	busy := errors.New("503")
	for attempt, least := range map[int]time.Duration{1: time.Second, 2: time.Second, 5: 8 * time.Second, 8: 64 * time.Second, 26: 5 * time.Minute, 1000: 5 * time.Minute} {
		for range 20 {
			err := verdict{ending: retry, wait: time.Second, least: patience(attempt), err: busy}.again()
			var again queue.Retry
			if !errors.As(err, &again) || again.After < least || again.After > max(4*time.Second, 3*least) || !errors.Is(err, busy) {
				t.Errorf("attempt %d: again after %v, want at least %v", attempt, again.After, least)
			}
		}
	}
	long := verdict{ending: retry, wait: time.Hour, least: patience(3), err: busy}.again()
	var again queue.Retry
	if !errors.As(long, &again) || again.After != time.Hour {
		t.Errorf("the provider asks for an hour; again after %v", again.After)
	}
	if silent := (verdict{ending: retry, least: patience(3), err: busy}).again(); errors.As(silent, &again) {
		t.Errorf("the provider asks for nothing; again after %v", again.After)
	}
}
