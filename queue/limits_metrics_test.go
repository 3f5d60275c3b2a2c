package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// What a limit by name counts, how many lanes wait for it, and how many of its keys are paused, without a label for keys.
func TestMetricsOfLimits(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newWatcher(t, client, "push")
		setPolicies(t, client, shownLimits())
		registry := prometheus.NewRegistry()
		registry.MustRegister(watch.NewCollector(inspector))
		stop := runWorker(t, client, new(recorder), queue.WorkerConfig{Registerer: registry})
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "down.example", For: 30 * time.Minute}))
		must(t, inspector.Override(t.Context(), queue.Override{Limit: "domain", Key: []string{"slow.example"}, Capacity: 9, For: 30 * time.Minute}))
		for i := range 7 {
			enqueue(t, client, keyed(jobs("a", fmt.Sprint("u", i), 1), "domain", "small.example")...)
		}
		enqueue(t, client, keyed(jobs("b", "v", 2), "domain", "down.example")...)
		enqueue(t, client, keyed(jobs("b", "v", 5), "domain", "x.free")...)
		expect := func(after time.Duration, starts, all, lanes, paused float64) {
			t.Helper()
			time.Sleep(after)
			for metric, want := range map[string]map[string]float64{
				"waterclock_limit_starts_total":          {"all": all, "domain": starts},
				"waterclock_limit_waiting_lanes":         {"all": 0, "domain": lanes},
				"waterclock_queue_limit_paused_keys":     {"all": 0, "calls": 0, "domain": paused},
				"waterclock_queue_limit_overridden_keys": {"all": 0, "calls": 0, "domain": paused}, // for as long as the pause
			} {
				for limit, got := range ofLimits(t, registry, metric) {
					if got != want[limit] {
						t.Errorf("after %v %s of %s is %v, want %v", after, metric, limit, got, want[limit])
					}
					delete(want, limit)
				}
				for limit, n := range want {
					if n > 0 {
						t.Errorf("after %v there is no %s of %s", after, metric, limit)
					}
				}
			}
		}
		expect(10*time.Second, 4, 9, 4, 1)  // three lanes of small.example, one of down.example
		expect(40*time.Minute, 6, 11, 3, 0) // down.example has gone on
		expect(2*time.Hour, 9, 14, 0, 0)    // and all have started
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "all", For: time.Hour}))
		time.Sleep(10 * time.Second)
		stop()
		if left := ofLimits(t, registry, "waterclock_limit_waiting_lanes"); len(left) > 0 {
			t.Errorf("at a worker that leads no more lanes wait: %v", left)
		}
	})
}

// ofLimits returns a metric by the names of limits. It fails if it has another label than these and the queue.
func ofLimits(t *testing.T, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	all := make(map[string]float64)
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			labels := m.GetLabel()
			if len(labels) != 2 || labels[0].GetName() != "limit" || labels[1].GetValue() != "push" {
				t.Fatalf("%s has the labels %v", name, labels)
			}
			all[labels[0].GetValue()] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return all
}
