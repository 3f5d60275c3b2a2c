package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func TestPauseErrors(t *testing.T) {
	// Jobs of a:1, a:2 and b:1; the first job of a:1 asks for a pause of ten seconds.
	tests := map[string]struct {
		pause func(time.Time, error) error
		waits []string // whose jobs wait
	}{
		"user":   {queue.PauseUser, []string{"a:1"}},
		"tenant": {queue.PauseTenant, []string{"a:1", "a:2"}},
		"queue":  {queue.PauseQueue, []string{"a:1", "a:2", "b:1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				begin := time.Now()
				until := begin.Add(10 * time.Second)
				asked := false
				got := recorder{then: func(_ context.Context, info queue.Info) error {
					if !asked {
						asked = true
						return fmt.Errorf("sending: %w", test.pause(until, errors.New("429")))
					}
					if info.Attempt != 1 {
						t.Errorf("%s: attempt %d; a pause is no attempt", info.ID, info.Attempt)
					}
					return nil
				}}
				runWorker(t, client, &got, queue.WorkerConfig{})
				enqueue(t, client, jobs("a", "1", 1)...)
				time.Sleep(time.Second)
				enqueue(t, client, append(jobs("a", "2", 1), jobs("b", "1", 1)...)...)
				enqueue(t, client, jobs("a", "1", 1)...)
				time.Sleep(time.Minute)
				early := map[string]bool{}
				for _, s := range got.all()[1:] {
					if s.Started.Before(until) {
						early[s.Tenant+":"+s.User] = true
					} else if s.Started.After(until.Add(time.Millisecond)) {
						t.Errorf("%s started %v after the pause", s.ID, s.Started.Sub(until))
					}
				}
				for _, lane := range []string{"a:1", "a:2", "b:1"} {
					want := !strings.Contains(strings.Join(test.waits, " "), lane)
					if early[lane] != want {
						t.Errorf("%s started during the pause: %v, want %v", lane, early[lane], want)
					}
				}
				checkOutcome(t, client, queue.Counters{Done: 4}, "")
			})
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := queue.NewInspector(client, "push")
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		must(t, inspector.PauseTenant(t.Context(), "school", time.Now().Add(24*time.Hour)))
		enqueue(t, client, jobs("school", "teacher", 1)...)
		enqueue(t, client, jobs("other", "teacher", 1)...)
		time.Sleep(time.Hour)
		if starts := got.all(); len(starts) != 1 || starts[0].Tenant != "other" {
			t.Fatalf("started %+v, want only the other tenant's", starts)
		}
		e, err := inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		if e.Binding == nil || e.Binding.Rule != "paused" || e.Binding.Scope != "tenant" || e.Waiting != 1 {
			t.Errorf("explained as %+v, binding %+v", e, e.Binding)
		}
		must(t, inspector.ResumeTenant(t.Context(), "school"))
		time.Sleep(time.Millisecond)
		if got.count() != 2 {
			t.Error("the job has not started when the pause was lifted")
		}
	})
}

func TestExplain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		setPolicies(t, client, queue.Policies{
			Queue:   []throttle.Rule{throttle.Leak(1000, time.Second)},
			Default: "standard",
			Policies: map[string]queue.Policy{"standard": {
				Tenant: []throttle.Rule{throttle.Leak(100, time.Second)},
				User:   []throttle.Rule{throttle.Window(2, time.Hour), throttle.Spacing(10 * time.Millisecond), throttle.Window(5, 24*time.Hour).OrDrop()},
			}},
		})
		inspector := queue.NewInspector(client, "push")
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		batch := jobs("school", "teacher", 4)
		for i := range batch {
			batch[i].ID = fmt.Sprint("job-", i)
		}
		enqueue(t, client, batch...)
		redistest.Eventually(t, 5*time.Second, "two are done", func() bool { return stats(t, client).Done == 2 })
		e, err := inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		want := got.all()[0].Slot.Add(time.Hour + queue.Grace)
		if e.Binding == nil || e.Binding.Rule != "window 2/1h" || !e.Binding.When.Equal(want) || !e.Start.Equal(want) {
			t.Errorf("binding %+v, start %v; want the window, until %v", e.Binding, e.Start, want)
		}
		if e.Policy != "standard" || e.Waiting != 2 || e.TenantWaiting != 2 || len(e.Rules) != 5 {
			t.Errorf("explained as %+v", e)
		}
		job, known, err := inspector.ExplainJob(t.Context(), "job-3")
		must(t, err)
		if !known || job.State != "waiting" || job.Place != 2 || job.User != "teacher" || job.Binding == nil {
			t.Errorf("job: %+v, %v; want it second in line", job, known)
		}
		if job, _, err = inspector.ExplainJob(t.Context(), "job-0"); err != nil || job.State != "started" {
			t.Errorf("a job that has run: %+v, %v", job, err)
		}
		if _, known, err = inspector.ExplainJob(t.Context(), "nobody"); err != nil || known {
			t.Errorf("an unknown job is known: %v, %v", known, err)
		}
		lane, err := inspector.Lane(t.Context(), "school", "teacher", 0, 10)
		must(t, err)
		if len(lane) != 2 || lane[0].ID != "job-2" || string(lane[1].Payload) != "school teacher 3" || lane[1].Place != 2 {
			t.Errorf("lane %+v", lane)
		}
		if s := stats(t, client); s.Blocked["window 2/1h"] < 50*time.Minute {
			t.Errorf("blocked: %v, want nearly an hour by the window", s.Blocked)
		}
		tenants, err := inspector.Tenants(t.Context(), 0, 10)
		must(t, err)
		if len(tenants) != 1 || tenants[0].Tenant != "school" || tenants[0].Waiting != 2 || tenants[0].Started != 2 {
			t.Errorf("tenants %+v", tenants)
		}
	})
}

func TestCancel(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		setPolicies(t, client, policies(leakOf(100)))
		inspector := queue.NewInspector(client, "push")
		batch := jobs("school", "teacher", 3)
		batch[1].ID = "second"
		enqueue(t, client, batch...)
		for range 2 { // again is as good as once
			if ok, err := inspector.Cancel(t.Context(), "second"); err != nil || !ok {
				t.Errorf("cancel: %v, %v", ok, err)
			}
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		redistest.Eventually(t, 5*time.Second, "drained", drained(t, client))
		drops, err := inspector.Drops(t.Context(), 10)
		if err != nil || len(drops) != 1 || drops[0].ID != "second" || drops[0].Reason != queue.ReasonCancelled {
			t.Errorf("drops %+v, %v", drops, err)
		}
		if got.count() != 2 {
			t.Errorf("%d starts, want 2", got.count())
		}
		for _, id := range []string{"second", "never"} {
			if ok, err := inspector.Cancel(t.Context(), id); err != nil || ok {
				t.Errorf("cancel %s: %v, %v, want it refused", id, ok, err)
			}
		}
	})
}

func TestPurge(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		inspector := queue.NewInspector(client, "push")
		for user := range 5 {
			enqueue(t, client, jobs("school", fmt.Sprint(user), 100)...)
		}
		enqueue(t, client, jobs("other", "one", 1)...)
		n, err := inspector.Purge(t.Context(), "school")
		if err != nil || n != 500 {
			t.Errorf("purged %d, %v; want 500", n, err)
		}
		if s := stats(t, client); s.Waiting != 1 || s.Dropped != 500 {
			t.Errorf("%+v", s)
		}
		if left, err := client.Keys(t.Context(), "wc:{push}:lane*school*").Result(); err != nil || len(left) != 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	})
}

func TestRevive(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		inspector := queue.NewInspector(client, "push")
		broken := true
		got := recorder{then: func(context.Context, queue.Info) error {
			if broken {
				return errors.New("no")
			}
			return nil
		}}
		stop := runWorker(t, client, &got, queue.WorkerConfig{})
		job := jobs("school", "teacher", 1)[0]
		job.MaxRetry = -1
		receipt := enqueue(t, client, job)[0]
		redistest.Eventually(t, 5*time.Second, "it is dead", func() bool { return stats(t, client).Dead == 1 })
		stop()
		dead, err := inspector.Dead(t.Context(), 10)
		must(t, err)
		n, err := inspector.Revive(t.Context(), dead[0].Entry, "1-1")
		if err != nil || n != 1 {
			t.Errorf("revived %d, %v; want 1", n, err)
		}
		broken = false
		runWorker(t, client, &got, queue.WorkerConfig{})
		redistest.Eventually(t, 5*time.Second, "it is done", func() bool { return stats(t, client).Done == 1 })
		if s := got.all()[1]; s.ID != receipt.ID || s.Attempt != 1 {
			t.Errorf("started %+v", s)
		}
		if dead, err = inspector.Dead(t.Context(), 10); err != nil || len(dead) != 0 {
			t.Errorf("dead %+v, %v", dead, err)
		}
	})
}

func TestPoliciesRoundTrip(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		want := queue.Policies{
			Queue:   []throttle.Rule{throttle.Leak(5000, time.Second)},
			Default: "standard",
			Policies: map[string]queue.Policy{
				"standard": {
					Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}, Capacity: 1000, Overflow: queue.DropOldest,
					User: []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second), throttle.Window(50, 24*time.Hour).OrDrop()},
				},
				"free": {MaxWait: 15 * time.Minute},
			},
			Tenants: map[string]string{"school 7: {x}": "free"},
		}
		inspector := queue.NewInspector(client, "push")
		if none, err := inspector.Policies(t.Context()); err != nil || none.Policies != nil {
			t.Errorf("before any were set: %+v, %v", none, err)
		}
		must(t, inspector.SetPolicies(t.Context(), want))
		got, err := inspector.Policies(t.Context())
		must(t, err)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b throttle.Rule) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
		bad := queue.Policies{Default: "nobody"}
		if err := inspector.SetPolicies(t.Context(), bad); !errors.Is(err, queue.ErrInvalidPolicies) {
			t.Errorf("got %v, want it refused", err)
		}
		if again, err := inspector.Policies(t.Context()); err != nil || again.Default != "standard" {
			t.Errorf("after a refusal: %+v, %v", again, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
