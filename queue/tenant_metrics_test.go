package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// ofTenants returns the values of a metric by tenant, and by event, if it has that label: "school started".
func ofTenants(t *testing.T, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			labels := make(map[string]string)
			for _, label := range m.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if family.GetName() == name {
				all[strings.TrimSpace(labels["tenant"]+" "+labels["event"])] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return all
}

func tenantRegistry(t *testing.T, client redis.UniversalClient, cfg watch.TenantCollectorConfig) *prometheus.Registry {
	t.Helper()
	cfg.Watchers = []*watch.Watcher{newWatcher(t, client, "push")}
	collector, err := watch.NewTenantCollector(cfg)
	must(t, err)
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	return registry
}

// Nobody's metrics have labels for tenants unless they are asked for.
func TestNoMetricsOfTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		registry := tenantRegistry(t, client, watch.TenantCollectorConfig{})
		registry.MustRegister(watch.NewCollector(newWatcher(t, client, "push")))
		runWorker(t, client, &recorder{}, queue.WorkerConfig{Registerer: registry})
		enqueue(t, client, jobs("school", "teacher", 3)...)
		time.Sleep(time.Minute)
		families, err := registry.Gather()
		must(t, err)
		if len(families) < 10 {
			t.Fatalf("%d metrics", len(families))
		}
		for _, family := range families {
			for _, m := range family.GetMetric() {
				for _, label := range m.GetLabel() {
					if label.GetName() == "tenant" {
						t.Errorf("%s has a label for tenant %s", family.GetName(), label.GetValue())
					}
				}
			}
		}
	})
}

// The numbers of a tenant that is asked for are right: what waits, for how long, and what becomes of its jobs. So are those
// of one that waits for a place rather than for its limits.
func TestMetricsOfTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}}))
		registry := tenantRegistry(t, client, watch.TenantCollectorConfig{Tenants: []string{"limited", "starved", "nobody"}})
		enqueue(t, client, queue.Job{Tenant: "limited", User: "ahead", Type: "push", NotBefore: time.Now().Add(40 * time.Minute)})
		time.Sleep(20 * time.Minute)
		handler := recorder{then: func(ctx context.Context, info queue.Info) error {
			if info.Tenant == "other" {
				select {
				case <-ctx.Done():
				case <-time.After(30 * time.Minute):
				}
			}
			return nil
		}}
		runWorker(t, client, &handler, queue.WorkerConfig{Concurrency: 1, Registerer: registry, MetricsTenants: []string{"limited", "nobody"}})
		enqueue(t, client, jobs("limited", "u", 3)...)
		time.Sleep(time.Minute)
		enqueue(t, client, jobs("other", "u", 1)...)
		time.Sleep(time.Minute)
		enqueue(t, client, jobs("starved", "u", 1)...)
		time.Sleep(25 * time.Minute)
		check := func(name string, want map[string]float64) {
			t.Helper()
			got := ofTenants(t, registry, name)
			for tenant, n := range want {
				if d := got[tenant] - n; d < -0.1 || d > 0.1 {
					t.Errorf("%s of %s: %v, want %v", name, tenant, got[tenant], n)
				}
			}
			for tenant := range got {
				if strings.HasPrefix(tenant, "other") {
					t.Errorf("%s has a label for %s", name, tenant)
				}
			}
		}
		check("waterclock_queue_tenant_waiting_jobs", map[string]float64{"limited": 3, "starved": 1, "nobody": 0})
		check("waterclock_queue_tenant_oldest_seconds", map[string]float64{"limited": 27 * 60, "starved": 25 * 60, "nobody": 0})
		check("waterclock_queue_tenant_overdue_seconds", map[string]float64{"limited": 7 * 60, "starved": 25 * 60, "nobody": 0})
		check("waterclock_queue_tenant_jobs_total", map[string]float64{
			"limited offered": 4, "limited started": 1, "limited dropped": 0, "starved offered": 1, "starved started": 0, "nobody offered": 0,
		})
		check("waterclock_tenant_wait_seconds", map[string]float64{"limited": 1, "nobody": 0})
		if len(ofTenants(t, registry, "waterclock_tenant_wait_seconds")) != 2 {
			t.Error("others are in the histogram")
		}
		must(t, newInspector(t, client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		if _, err := newInspector(t, client, "push").Purge(t.Context(), "limited"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		check("waterclock_queue_tenant_waiting_jobs", map[string]float64{"limited": 0})
		check("waterclock_queue_tenant_oldest_seconds", map[string]float64{"limited": 0})
		check("waterclock_queue_tenant_jobs_total", map[string]float64{"limited dropped": 3})
	})
}

// However many tenants there are, and whoever is busy when, so many have metrics as were asked for. Those of tenants that
// are busy no longer end, and two of nearly the same size do not take turns.
func TestMetricsOfTheBusiest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}}))
		registry := tenantRegistry(t, client, watch.TenantCollectorConfig{Tenants: []string{"named"}, Busiest: 3})
		now := func() []string {
			t.Helper()
			time.Sleep(10 * time.Second) // a collector repeats what it has read for a while
			var names []string
			for name := range ofTenants(t, registry, "waterclock_queue_tenant_waiting_jobs") {
				names = append(names, name)
			}
			slices.Sort(names)
			return names
		}
		expect := func(when string, want ...string) {
			t.Helper()
			if got := now(); !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		expect("idle", "named")
		for i := range 40 {
			enqueue(t, client, jobs(fmt.Sprintf("t%02d", i), "u", 1+i)...)
		}
		enqueue(t, client, jobs("\xff not UTF-8", "u", 50)...)
		enqueue(t, client, jobs("named", "u", 60)...)
		expect("a flood", "named", "t37", "t38", "t39")
		for range 5 { // t36 is ahead, and behind again
			enqueue(t, client, jobs("t36", "u", 5)...)
			expect("about the same", "named", "t37", "t38", "t39")
			enqueue(t, client, jobs("t37", "u", 5)...)
		}
		enqueue(t, client, jobs("t05", "u", 200)...)
		expect("a greater one", "named", "t05", "t37", "t39")
		for _, tenant := range []string{"t05", "t39"} {
			_, err := newInspector(t, client, "push").Purge(t.Context(), tenant)
			must(t, err)
		}
		expect("after they were purged", "named", "t36", "t37", "t38")
		for i := range 40 {
			_, err := newInspector(t, client, "push").Purge(t.Context(), fmt.Sprintf("t%02d", i))
			must(t, err)
		}
		_, err := newInspector(t, client, "push").Purge(t.Context(), "\xff not UTF-8")
		must(t, err)
		time.Sleep(11 * time.Minute)
		expect("idle again", "named")
	})
}

// A queue that cannot be read has no metrics of tenants, and those of the other queue stay.
func TestMetricsOfTenantsOfABrokenQueue(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.HSet(t.Context(), "wc:{broken}:meta", "schema", "99")
	client.Set(t.Context(), "wc:{broken}:tenants", "no index", 0)
	enqueue(t, client, jobs("school", "teacher", 3)...)
	collector, err := watch.NewTenantCollector(watch.TenantCollectorConfig{
		Watchers: []*watch.Watcher{newWatcher(t, client, "broken"), newWatcher(t, client, "push")}, Busiest: 5,
	})
	must(t, err)
	if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collector)
	if got := ofTenants(t, registry, "waterclock_queue_tenant_waiting_jobs"); len(got) != 1 || got["school"] != 3 {
		t.Errorf("%v", got)
	}
}

func TestTooManyTenantsWithMetrics(t *testing.T) {
	t.Parallel()
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for want, tenants := range map[string][]string{
		"101 tenants; want at most 100": many, `tenant 2 of 2 is empty`: {"a", ""}, `"a" is named twice`: {"a", "b", "a"}, "is not UTF-8": {"\xff"},
	} {
		_, err := watch.NewTenantCollector(watch.TenantCollectorConfig{Tenants: tenants})
		if !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("a collector: %v, want %q", err, want)
		}
		_, err = queue.NewWorker(nil, queue.WorkerConfig{Queues: []string{"push"}, MetricsTenants: tenants})
		if !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("a worker: %v, want %q", err, want)
		}
	}
	for _, busiest := range []int{-1, 101} {
		if _, err := watch.NewTenantCollector(watch.TenantCollectorConfig{Busiest: busiest}); !errors.Is(err, queue.ErrInvalidArgument) {
			t.Errorf("%d of the busiest: %v", busiest, err)
		}
	}
}
