package queue_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// Whoever listens is told what each attempt has waited for, also of jobs without an ID of their own: rules, pauses,
// concurrency, places; and what it has not waited for, such as its backoff.
func TestTailSaysWhatJobsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, queue.Policies{
			Default: "free", Tenants: map[string]string{"limited": "leak", "single": "one"},
			Policies: map[string]queue.Policy{
				"free": {}, "leak": {Tenant: []throttle.Rule{throttle.Leak(1, 10*time.Second)}}, "one": {TenantConcurrency: queue.Concurrency{Jobs: 1}},
			},
		})
		runWorker(t, client, &recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Tenant != "limited" {
				time.Sleep(20 * time.Second)
			}
			if info.User == "fails" && info.Attempt == 1 {
				return errors.New("no")
			}
			return nil
		}}, queue.WorkerConfig{Concurrency: 5, RetryDelay: after(time.Minute)})
		events := listen(t, newWatcher(t, client, "push").Tail)
		time.Sleep(10 * time.Second) // the worker knows that somebody listens
		must(t, newInspector(t, client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "paused", Until: time.Now().Add(30 * time.Second)}))
		begin := time.Now()
		enqueue(t, client, append(append(append(jobs("limited", "u", 3), jobs("paused", "u", 1)...), jobs("single", "u", 2)...), jobs("single", "fails", 1)...)...)
		time.Sleep(5 * time.Minute)
		enqueue(t, client, jobs("busy", "u", 6)...) // more than places
		time.Sleep(time.Minute)
		claimed := make(map[string][]watch.Event)
		started := make(map[string]time.Time)
		for _, e := range events() {
			switch e.Kind {
			case watch.EventClaimed:
				claimed[e.Tenant+" "+e.User] = append(claimed[e.Tenant+" "+e.User], e)
				if sum := e.Waited.Rules + e.Waited.Pauses + e.Waited.Concurrency + e.Waited.Places; (e.At.Sub(e.Ready) - sum).Abs() > 50*time.Millisecond {
					t.Errorf("it has waited for %v, and said what for of %v: %+v", e.At.Sub(e.Ready), sum, e)
				}
				started[e.ID] = e.At
			case watch.EventStarted:
				if at, known := started[e.ID]; !known || (at.Sub(e.At)).Abs() > 50*time.Millisecond {
					t.Errorf("%+v started, and was claimed for %v", e, at)
				}
			}
		}
		check := func(whose string, n int, waited queue.WaitedFor, offered, ready time.Duration) {
			t.Helper()
			if len(claimed[whose]) < n {
				t.Fatalf("%s: %d claims", whose, len(claimed[whose]))
			}
			e := claimed[whose][n-1]
			off := func(a, b time.Duration) bool { return (a - b).Abs() > 100*time.Millisecond }
			got := e.Waited
			if off(got.Rules, waited.Rules) || off(got.Pauses, waited.Pauses) || off(got.Concurrency, waited.Concurrency) || off(got.Places, waited.Places) || got.Rule != waited.Rule {
				t.Errorf("%s, claim %d: waited for %+v, want %+v", whose, n, got, waited)
			}
			if off(e.Offered.Sub(begin), offered) || off(e.Ready.Sub(begin), ready) {
				t.Errorf("%s, claim %d: offered after %v, ready after %v", whose, n, e.Offered.Sub(begin), e.Ready.Sub(begin))
			}
		}
		check("limited u", 1, queue.WaitedFor{}, 0, 0)
		check("limited u", 3, queue.WaitedFor{Rules: 20 * time.Second, Rule: "leak 1/10s"}, 0, 0)
		check("paused u", 1, queue.WaitedFor{Pauses: 30 * time.Second, Rule: "paused"}, 0, 0)
		if w := claimed["single u"][1].Waited; w.Concurrency < 19*time.Second || w.Rule != "concurrency 1" {
			t.Errorf("behind a concurrency limit: %+v", w)
		}
		again := claimed["single fails"]
		if len(again) != 2 || again[1].Attempt != 2 || again[1].Ready.Sub(again[0].At) < 79*time.Second {
			t.Errorf("after a failed attempt: %+v", again)
		}
		check("busy u", 6, queue.WaitedFor{Places: 20 * time.Second}, 5*time.Minute, 5*time.Minute)
	})
}
