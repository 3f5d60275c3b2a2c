package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// A job that waits for its slot while Redis's clock is an hour slow does not wait for an hour when that
// clock is right again.
func TestAJobThatWaitsSeesTheClockSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		w, _ := beaten(t, redistest.Mini(t), &l)
		slot := w.Now() + 1000
		claim := envelope.Claim{Stamp: "35d013b37e000", Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Slot: slot, Spent: slot}
		w.Clock.Shift(-time.Hour, -time.Hour) // what is known of Redis's clock is an hour slow
		goes := make(chan time.Time, 1)
		go func() {
			w.awaitSlot(&job{Given: Given{Claim: claim}})
			goes <- time.Now()
		}()
		time.Sleep(50 * time.Millisecond)
		w.Clock.Shift(time.Hour, time.Hour)
		begun := time.Now()
		if waited := (<-goes).Sub(begun); waited > 2*time.Second {
			t.Errorf("the job waited for %v after the clock was right again", waited)
		}
	})
}
