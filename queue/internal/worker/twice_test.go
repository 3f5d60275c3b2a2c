package worker

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
)

// What Redis holds is compared with what a worker holds while that changes. A claim that was
// there when Redis was asked, and that the worker has let go of since, starts nothing.
func TestALookAtRedisIsOld(t *testing.T) {
	for name, change := range map[string]func(w *Worker, claim envelope.Claim){
		"the job has ended": func(w *Worker, _ envelope.Claim) { w.Claims.send(w.outlive) },
		"it was taken back": func(w *Worker, claim envelope.Claim) { w.Claims.drop(claim) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l log
				w, reply, server := wired(t, &l)
				env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
				claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
				server.HSet("wc:{q}:running:a", claim.String(), env.String())
				w.Accept(Given{Claim: claim, Job: env.String()})
				synctest.Wait() // it has run, and its end is not told yet
				var looked atomic.Bool
				server.intercept(func(cmd redis.Cmder, do func() error) error {
					err := do()
					if cmd.Name() == "hgetall" && looked.CompareAndSwap(false, true) {
						change(w, claim)
					}
					return err
				})
				if err := w.Claims.Reconcile(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				if l.count() != 1 || !looked.Load() {
					t.Errorf("%d starts", l.count())
				}
				time.Sleep(5 * time.Second)
			})
		})
	}
}

// A job that waits for the leader to take it back does not start again from what Redis still
// holds of it.
func TestAReturnedJobWaitsForTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		w, reply, server := wired(t, &l)
		w.cfg.Handle = func(ctx context.Context, a Attempt) Outcome {
			l.handle(ctx, a)
			return Outcome{Pause: &Pause{envelope.UserScope("t", "u"), a.Clock() + 1_000_000}}
		}
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
		server.HSet("wc:{q}:running:a", claim.String(), env.String())
		w.Accept(Given{Claim: claim, Job: env.String()})
		for range 3 {
			time.Sleep(time.Millisecond)
			if err := w.Claims.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if l.count() != 1 || w.Claims.returning() != 1 {
			t.Errorf("%d starts, %d claims returned", l.count(), w.Claims.returning())
		}
		time.Sleep(5 * time.Second)
	})
}

// A claim that a comparison has brought has ended, and Redis has it again: a replica took over that had not heard of the end. The next
// comparison brings it once more, and it runs, or it would be held for ever. Its first message, which comes late, starts nothing.
func TestAClaimThatRedisHasAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l log
		w, reply, server := wired(t, &l)
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
		for n := 1; n <= 3; n++ {
			server.HSet("wc:{q}:running:a", claim.String(), env.String())
			if err := w.Claims.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			w.Claims.send(w.outlive)
			w.Accept(Given{Claim: claim, Job: env.String()})
			synctest.Wait()
			if l.count() != n {
				t.Fatalf("%d starts, want %d", l.count(), n)
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(5 * time.Second)
	})
}
