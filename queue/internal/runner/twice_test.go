package runner

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// What Redis holds is compared with what a worker holds while that changes. A claim that was
// there when Redis was asked, and that the worker has let go of since, starts nothing.
func TestALookAtRedisIsOld(t *testing.T) {
	for name, change := range map[string]func(r *Runner, claim envelope.Claim){
		"the job has ended": func(r *Runner, _ envelope.Claim) { r.claims.send(r.outlive) },
		"it was taken back": func(r *Runner, claim envelope.Claim) { r.claims.drop(claim) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l log
				r, reply, w := wired(t, &l)
				env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
				claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
				w.server.HSet("wc:{q}:running:a", claim.String(), "."+env.String())
				r.accept(given{claim: claim, job: env.String()})
				synctest.Wait() // it has run, and its end is not told yet
				var looked atomic.Bool
				w.intercept(func(cmd redis.Cmder, do func() error) error {
					err := do()
					if cmd.Name() == "hgetall" && looked.CompareAndSwap(false, true) {
						change(r, claim)
					}
					return err
				})
				if err := r.claims.reconcile(t.Context()); err != nil {
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
		r, reply, w := wired(t, &l)
		r.cfg.Handle = func(ctx context.Context, a Attempt) Outcome {
			l.handle(ctx, a)
			return Outcome{Pause: &Pause{envelope.UserScope("t", "u"), a.Clock() + 1_000_000}}
		}
		env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
		claim := envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: reply.Now, Spent: reply.Now}
		w.server.HSet("wc:{q}:running:a", claim.String(), "."+env.String())
		r.accept(given{claim: claim, job: env.String()})
		for range 3 {
			time.Sleep(time.Millisecond)
			if err := r.claims.reconcile(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Second)
		if l.count() != 1 || r.claims.returning() != 1 {
			t.Errorf("%d starts, %d claims returned", l.count(), r.claims.returning())
		}
		time.Sleep(5 * time.Second)
	})
}

// A job that a leader has lost, and whose handler ends nevertheless, keeps its payload: it waits
// to run again.
func TestALostJobKeepsItsPayload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		var runs []string
		taken := ""
		s.handler = func(_ string, a Attempt) Outcome {
			s.mu.Lock()
			runs = append(runs, a.Job.Payload)
			first := len(runs) == 1
			s.mu.Unlock()
			if first { // another worker reaps its claim
				for _, job := range s.client.HGetAll(t.Context(), "wc:{q}:running:w").Val() {
					taken = job[1:]
				}
				s.client.Del(t.Context(), "wc:{q}:running:w")
			}
			return Outcome{}
		}
		w := s.join("w")
		time.Sleep(2 * time.Second)
		st, _ := store.New(s.client, "q")
		e := envelope.Envelope{Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x", Spilled: "name"}
		o := store.Offer{Batch: "b", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}, Jobs: []store.OfferJob{
			{Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Body: e.Body(), Spilled: "name", Payload: []byte("large")},
		}}
		if _, err := st.Offer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		goOn := w.wire.hold()
		s.offer("u", 1) // the leader is told of a job behind the lost one
		s.client.LPush(t.Context(), "wc:{q}:lane:t:u", taken)
		goOn()
		time.Sleep(time.Minute)
		s.end()
		large := 0
		for _, payload := range runs {
			if payload == "large" {
				large++
			}
		}
		if large != 2 {
			t.Errorf("ran as %q", runs)
		}
	})
}
