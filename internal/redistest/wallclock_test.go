package redistest_test

import (
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// A server's wall clock can be set, forward and back, while it runs.
func TestWallClock(t *testing.T) {
	server, wall := redistest.StartWithClock(t)
	client := server.Client(t)
	for _, step := range []time.Duration{0, time.Hour, -time.Second, -time.Hour} {
		wall.Step(step)
		now, err := client.Time(t.Context()).Result()
		if off := now.Sub(time.Now().Add(wall.Ahead())); err != nil || off.Abs() > 500*time.Millisecond {
			t.Errorf("off by %v after a step of %v, %v", off, step, err)
		}
	}
}
