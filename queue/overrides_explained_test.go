package queue_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Whoever asks why a job waits is told that an override governs, until when, who has set it and why; and estimates know that it
// ends.
func TestOverridesAreExplained(t *testing.T) {
	t.Parallel()
	for limit, key := range map[string][]string{"queue": nil, "tenant": {"school"}, "user": {"school", "teacher"}, "domain": {"gmail.com"}} {
		t.Run(limit, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, overridden(limit, 10))
				until := override(t, client, queue.Override{
					Limit: limit, Key: key, Rules: []throttle.Rule{throttle.Leak(1, time.Hour)}, For: 10 * time.Minute,
				})
				var got recorder
				runWorker(t, client, &got, queue.WorkerConfig{})
				enqueue(t, client, keyed(jobs("school", "teacher", 40), "domain", "gmail.com")...)
				time.Sleep(time.Minute)
				receipts := enqueue(t, client, keyed(jobs("school", "teacher", 1), "domain", "gmail.com")...)
				want := map[string]time.Duration{"tenant": 4 * time.Second, "user": 4 * time.Second}[limit] // others count no jobs before it
				if last := receipts[0].Start.Sub(until) - want; last < -time.Second || last > time.Second {
					t.Errorf("the last of 40 jobs starts %v after the end, says its receipt; want about %v", last+want, want)
				}
				inspector := newInspector(t, client, "push")
				e, err := inspector.Explain(t.Context(), "school", "teacher")
				if err != nil || e.Binding == nil {
					t.Fatalf("%+v, %v", e, err)
				}
				b := *e.Binding
				if b.Rule != "leak 1/1h" || !b.Until.Equal(until) || !b.When.Equal(until) || b.Author != "ann" || b.Reason != "they are slow" {
					t.Errorf("it waits for %+v", b)
				}
				if !e.Start.Equal(until) {
					t.Errorf("the next job starts %v after the end, says Explain", e.Start.Sub(until))
				}
				if limit == "domain" {
					k, err := inspector.LimitKey(t.Context(), "domain", "gmail.com")
					if err != nil || !k.Next.Equal(until) || len(k.Rules) != 1 || !k.Rules[0].Until.Equal(until) || !k.Until.Equal(until) || k.Author != "ann" || k.Reason != "they are slow" {
						t.Errorf("%+v, %v", k, err)
					}
				}
				time.Sleep(time.Until(until) + time.Second)
				if e, err = inspector.Explain(t.Context(), "school", "teacher"); err != nil || e.Binding == nil || e.Binding.Rule != "leak 10/s" || !e.Binding.Until.IsZero() || e.Binding.Author != "" {
					t.Errorf("after the end: %+v, %v", e.Binding, err)
				}
			})
		})
	}
}

// An override says which of a limit's rules are its own: those of the policies are not.
func TestAnOverrideOfConcurrencyIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, overridden("tenant", 10))
		until := override(t, client, queue.Override{Limit: "tenant", Key: []string{"school"}, Concurrency: queue.Concurrency{Jobs: 3}, For: time.Minute})
		e, err := newInspector(t, client, "push").Explain(t.Context(), "school", "teacher")
		if err != nil || len(e.Rules) != 2 {
			t.Fatalf("%+v, %v", e, err)
		}
		if leak, running := e.Rules[0], e.Rules[1]; !leak.Until.IsZero() || running.Rule != "concurrency 3" || !running.Until.Equal(until) {
			t.Errorf("%+v, %+v", leak, running)
		}
	})
}

// A job that an override lets start too late is not too late if the rules that follow let it start in time: neither at the door
// nor in its lane.
func TestAJobIsNotTooLateByRulesThatWillHaveEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := overridden("tenant", 10)
		p.Policies["standard"] = queue.Policy{Tenant: p.Policies["standard"].Tenant, MaxWait: 5 * time.Minute}
		setPolicies(t, client, p)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		offer := func() {
			for _, r := range enqueue(t, client, jobs("school", "teacher", 5)...) {
				if r.Status != queue.Accepted {
					t.Fatalf("%+v", r)
				}
			}
		}
		offer()
		time.Sleep(150 * time.Millisecond)
		until := override(t, client, queue.Override{Limit: "tenant", Key: []string{"school"}, Rules: []throttle.Rule{throttle.Leak(1, time.Hour)}, For: 2 * time.Minute})
		offer()
		time.Sleep(30 * time.Second)
		offer()
		if got.count() != 2 {
			t.Fatalf("%d started before the override", got.count())
		}
		time.Sleep(time.Until(until) + 3*time.Second)
		if got.count() != 15 {
			t.Errorf("%d of 15 started", got.count())
		}
	})
}
