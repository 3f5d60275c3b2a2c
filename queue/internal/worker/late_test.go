package worker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job that has missed its slot is returned, and starts only under the claim that it gets for
// another one, whatever Redis says meanwhile.
func TestALateJobIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var l log
		w, old := missing(t, client, &l)
		reconcile := func() {
			if err := w.Claims.Reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		reconcile() // the leader has not opened the notice yet
		_, notices, err := w.Store.ReadNotices(t.Context(), "0", time.Second)
		if err != nil || len(notices) != 2 { // the first says that the worker has come
			t.Fatalf("notices %v, %v", notices, err)
		}
		q, ok := store.ParseReturn(notices[1].Text)
		if !ok || q.Claim != old || q.Kind != store.ReturnLate || q.Late < 1_000_000 || q.Late > 1_100_000 {
			t.Errorf("returned as %+v", q)
		}
		if late := w.delays.p99(); late < time.Second {
			t.Errorf("the worker's starts count as %v late at most", late)
		}
		job := client.HGet(t.Context(), "wc:{q}:running:a", old.String()).Val()
		client.HDel(t.Context(), "wc:{q}:running:a", old.String())
		slot := w.Now() + 2000
		another := envelope.Claim{Stamp: old.Stamp, Lane: old.Lane, Slot: slot, Spent: slot}
		client.HSet(t.Context(), "wc:{q}:running:a", another.String(), job)
		reconcile()
		w.takeWords([]string{store.MessageJob, another.String(), job})
		reconcile()
		time.Sleep(time.Second)
		if l.count() != 1 {
			t.Errorf("%d starts of one job", l.count())
		}
		if n, _ := w.Claims.waiting(); n != 1 {
			t.Errorf("%d ends of one job are to be told", n)
		}
	})
}

// A job whose claim is taken away before its slot does not start: before the worker has read it, and while it waits.
func TestLostBeforeStart(t *testing.T) {
	for name, wait := range map[string]func(){"not read yet": func() {}, "waiting for its slot": synctest.Wait} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				var l log
				w, reply := beaten(t, client, &l)
				env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
				slot := reply.Now + 3_000_000
				claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: slot, Spent: slot}
				w.Accept(Given{Claim: claim, Job: env.String()})
				wait()
				if err := w.Claims.Reconcile(t.Context()); err != nil { // Redis holds no such claim
					t.Fatal(err)
				}
				time.Sleep(5 * time.Second)
				if l.count() != 0 || w.Claims.count() != 0 {
					t.Errorf("%d starts, %d claims held", l.count(), w.Claims.count())
				}
			})
		})
	}
}

// A handler whose claim is another worker's by now is told by its context, with the reason, and its end is told to nobody.
func TestLostWhileRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, reply := beaten(t, redistest.Mini(t), new(log))
		var cause error
		w.cfg.Handle = func(ctx context.Context, _ Attempt) Outcome {
			select {
			case <-ctx.Done():
				cause = context.Cause(ctx)
			case <-time.After(time.Minute):
			}
			return Outcome{}
		}
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
		w.Accept(Given{Claim: claim, Job: env.String()})
		synctest.Wait()                                         // it runs
		if err := w.Claims.Reconcile(t.Context()); err != nil { // Redis holds no such claim
			t.Fatal(err)
		}
		w.running.Wait()
		if n, _ := w.Claims.waiting(); !errors.Is(cause, errLeaseLost) || n != 0 || w.Claims.count() != 0 {
			t.Errorf("cancelled by %v; %d ends to be told, %d claims held", cause, n, w.Claims.count())
		}
	})
}
