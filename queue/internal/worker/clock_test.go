package worker

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
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

// A worker that knows Redis's clock badly, since one reply took long, asks again before it returns a job as late: the job starts.
func TestAJobOfAWorkerInDoubtStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		w, reply := beaten(t, redistest.Mini(t), &l)
		w.Clock = clock.New(nil)
		w.Clock.Observe(store.Reading{Now: reply.Now, Asked: reply.Answered.Add(-700 * time.Millisecond), Answered: reply.Answered})
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		slot := w.Now() + 1000
		w.Accept(Given{Claim: envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Slot: slot, Spent: slot}, Job: env.String()})
		time.Sleep(time.Second)
		if l.count() != 1 {
			_, notices, err := w.Store.ReadNotices(t.Context(), "0", time.Second)
			t.Errorf("%d starts of a job that came in time; told: %v, %v", l.count(), notices, err)
		}
	})
}
