package queue_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// What jobs have waited for is told apart, and adds up to their waits. The jobs of a case wait for one thing alone, for as long as
// its comment says.
func TestWaitsByCause(t *testing.T) {
	t.Parallel()
	tenantRules := func(p queue.Policy) queue.Policies {
		return queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": p}}
	}
	hold := func(d time.Duration) func(context.Context, queue.Info) error {
		return func(context.Context, queue.Info) error { time.Sleep(d); return nil }
	}
	for _, c := range []struct {
		name     string
		policies queue.Policies
		places   int
		jobs     []queue.Job
		later    time.Duration // before which they are not to start
		before   func(t *testing.T, i *queue.Inspector)
		then     func(ctx context.Context, info queue.Info) error
		want     map[string]float64 // seconds
		first    float64            // seconds that the first attempts have waited
	}{
		{name: "a leak", policies: tenantRules(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, time.Second)}}),
			jobs: jobs("a", "u", 5), want: map[string]float64{"rules": 0 + 1 + 2 + 3 + 4}, first: 10},
		{name: "a pause", before: func(t *testing.T, i *queue.Inspector) {
			must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "a", For: 30 * time.Second}))
		}, jobs: jobs("a", "u", 2), want: map[string]float64{"pauses": 30 + 30}, first: 60},
		{name: "a concurrency limit", policies: tenantRules(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 1}}),
			jobs: jobs("a", "u", 3), then: hold(10 * time.Second), want: map[string]float64{"concurrency": 0 + 10 + 20}, first: 30},
		{name: "places", places: 1, jobs: jobs("a", "u", 3), then: hold(5 * time.Second), want: map[string]float64{"places": 0 + 5 + 10}, first: 15},
		{name: "a backoff", jobs: jobs("a", "u", 2), then: func(_ context.Context, info queue.Info) error {
			if info.Attempt == 1 {
				return queue.Retry{After: 20 * time.Second, Cause: errors.New("not yet")}
			}
			return nil
		}, want: map[string]float64{"backoff": 20 + 20}},
		{name: "their time", jobs: jobs("a", "u", 2), later: time.Minute},
		{name: "rules, and then a pause", policies: tenantRules(queue.Policy{User: []throttle.Rule{throttle.Spacing(20 * time.Second)}}),
			before: func(t *testing.T, i *queue.Inspector) {
				go func() {
					time.Sleep(10 * time.Second)
					must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "a", User: "u", For: 25 * time.Second}))
				}()
			}, jobs: jobs("a", "u", 2), want: map[string]float64{"rules": 20, "pauses": 15}, first: 35},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				if c.policies.Policies != nil {
					setPolicies(t, client, c.policies)
				}
				registry := prometheus.NewRegistry()
				stop := runWorker(t, client, &recorder{then: c.then}, queue.WorkerConfig{Registerer: registry, Concurrency: c.places})
				defer stop()
				time.Sleep(time.Second)
				if c.before != nil {
					c.before(t, newInspector(t, client, "push"))
				}
				for i := range c.jobs {
					if c.later > 0 {
						c.jobs[i].NotBefore = time.Now().Add(c.later)
					}
				}
				enqueue(t, client, c.jobs...)
				time.Sleep(5 * time.Minute)
				synctest.Wait()
				const nearly = 0.5 // a worker's round trips, and the grace of a spacing
				got := waited(t, registry)
				for _, cause := range []string{"rules", "pauses", "concurrency", "places", "backoff"} {
					if math.Abs(got[cause]-c.want[cause]) > nearly {
						t.Errorf("waited for %s: %.3f s, want %v", cause, got[cause], c.want[cause])
					}
				}
				if math.Abs(got["first"]-c.first) > nearly || int(got["n"]) != len(c.jobs) {
					t.Errorf("%v first attempts have waited for %.3f s, want %d, %v s", got["n"], got["first"], len(c.jobs), c.first)
				}
			})
		})
	}
}

// waited returns the seconds of waterclock_waited_seconds_total by cause, and the sum ("first") and the number ("n") of
// waterclock_wait_seconds.
func waited(t *testing.T, from prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "waterclock_waited_seconds_total":
				all[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
			case "waterclock_wait_seconds":
				all["first"], all["n"] = m.GetHistogram().GetSampleSum(), float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}
