package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// byKeys are limits by name of which one has metrics with its keys.
func byKeys(detailed bool) queue.Policies {
	rules := []throttle.Rule{throttle.Window(4, time.Hour)}
	return limitsOnly(map[string]queue.Limit{
		"domain": {Key: []string{"keys.domain"}, Rules: rules, Each: map[string]queue.Limit{"z,z.example": {Rules: rules}}, Detailed: detailed},
		"pair":   {Key: []string{"tenant", "keys.domain"}, Rules: rules},
	})
}

// keysOf returns the keys that a metric has labels for, with its values.
func keysOf(t *testing.T, from prometheus.Gatherer, name string) map[string]float64 {
	t.Helper()
	families, err := from.Gather()
	must(t, err)
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			for _, label := range m.GetLabel() {
				if label.GetName() == "key" && family.GetName() == name {
					all[label.GetValue()] = m.GetGauge().GetValue()
				}
			}
		}
	}
	return all
}

// A limit whose policies ask for it has metrics of the keys that they name, and of a bounded number of others, which stay the
// same ones.
func TestMetricsOfKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, byKeys(true))
		collector := watch.NewCollector(newWatcher(t, client, "push"))
		if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
			t.Errorf("%v, %v", problems, err)
		}
		offer := func(prefix string) {
			for i := range 150 {
				enqueue(t, client, keyed(jobs(fmt.Sprint("t", i%10), fmt.Sprint(prefix, i), 2), "domain", fmt.Sprint(prefix, i))...)
			}
		}
		offer("a")
		registry := prometheus.NewRegistry()
		registry.MustRegister(watch.NewCollector(newWatcher(t, client, "push")))
		first := keysOf(t, registry, "waterclock_queue_limit_key_waiting_jobs")
		if n, named := first["z%2Cz.example"]; len(first) != 101 || !named || n != 0 {
			t.Errorf("%d keys, that of the policies: %v", len(first), named)
		}
		for key, n := range first {
			if strings.HasPrefix(key, "a") && n != 2 {
				t.Errorf("%v jobs wait for %s", n, key)
			}
		}
		offer("b")
		time.Sleep(10 * time.Second) // a collector repeats what it has read for a while
		if now := keysOf(t, registry, "waterclock_queue_limit_key_used_ratio"); len(now) != 101 || now["z%2Cz.example"] != 0 {
			t.Errorf("%d keys later", len(now))
		} else {
			for key := range now {
				if _, was := first[key]; !was {
					t.Errorf("%s has a label now", key)
				}
			}
		}
	})
}

// Where no policies ask for keys, nothing is read for them, and no metric has them.
func TestNoMetricsOfKeys(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	setPolicies(t, client, byKeys(false))
	enqueue(t, client, keyed(jobs("t", "u", 2), "domain", "a.example")...)
	commands := make(map[bool]int)
	for _, detailed := range []bool{false, true} {
		setPolicies(t, client, byKeys(detailed))
		counted := &redistest.Counter{}
		watcher := newWatcher(t, client, "push")
		client.AddHook(counted)
		registry := prometheus.NewRegistry()
		registry.MustRegister(watch.NewCollector(watcher))
		counted.Take()
		if all := keysOf(t, registry, "waterclock_queue_limit_key_waiting_jobs"); len(all) > 0 != detailed {
			t.Errorf("detailed %v: %v", detailed, all)
		}
		commands[detailed] = counted.Take()
	}
	if commands[false] >= commands[true] {
		t.Errorf("%v commands", commands)
	}
}
