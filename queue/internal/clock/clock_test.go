package clock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// A worker says that Redis's clock was set back, and nothing where it was set forward.
func TestRedissClockSetBackIsSaid(t *testing.T) {
	for step, want := range map[time.Duration]time.Duration{-time.Hour: time.Hour, -500 * time.Millisecond: 0, time.Hour: 0} {
		synctest.Test(t, func(t *testing.T) {
			said := time.Duration(0)
			c := New(func(by time.Duration) { said += by })
			reply := func(offset time.Duration) {
				now := time.Now()
				c.Observe(store.Reading{Now: now.Add(offset).UnixMicro(), Asked: now, Answered: now})
				time.Sleep(time.Second)
			}
			reply(0)
			reply(0)
			reply(step)
			reply(step)
			if diff := (said - want).Abs(); diff > time.Millisecond {
				t.Errorf("after a step of %v it was said that the clock was set back by %v, want %v", step, said, want)
			}
		})
	}
}
