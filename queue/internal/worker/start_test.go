package worker

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// TestAStartWaitsForNoOtherGoroutine holds the lock of the worker's claims while a job's slot comes: a goroutine that
// gets no CPU while it has the lock does the same. The handler begins, and does not wait for it.
func TestAStartWaitsForNoOtherGoroutine(t *testing.T) {
	var mu *sync.Mutex
	waits := false
	// Whoever waits for a lock does so in real time, and the bubble's clock stands still meanwhile.
	late := time.AfterFunc(5*time.Second, func() {
		waits = true
		mu.Unlock()
	})
	synctest.Test(t, func(t *testing.T) {
		w, reply := beaten(t, redistest.Mini(t), new(log))
		began := make(chan bool)
		w.cfg.Handle = func(context.Context, Attempt) Outcome {
			began <- true
			return Outcome{}
		}
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		slot := reply.Now + 1_000_000
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: slot, Spent: slot}
		w.Accept(Given{Claim: claim, Job: env.String()})
		synctest.Wait() // the job waits for its slot
		mu = &w.Claims.mu
		mu.Lock()
		<-began
		if late.Stop() {
			mu.Unlock()
		}
		w.running.Wait()
	})
	if waits {
		t.Error("the handler began when the lock was given back, and not at its slot")
	}
}
