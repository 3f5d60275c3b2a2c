package queue_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// The numbers of a queue are right, well named, and read from Redis once in a while only.
func TestCollector(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}}))
	enqueue(t, client, jobs("school", "teacher", 3)...)
	var got recorder
	runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 7})
	redistest.Eventually(t, 10*time.Second, "one has run", func() bool { return stats(t, client).Done == 1 })
	var counted redistest.Counter
	client.AddHook(&counted)
	collector := watch.NewCollector(newWatcher(t, client, "push"))
	if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	const want = `
# HELP waterclock_queue_condition 1 for the condition that the queue is in: idle, throttled, flowing, failing, starved, paused, stalled.
# TYPE waterclock_queue_condition gauge
waterclock_queue_condition{condition="failing",queue="push"} 0
waterclock_queue_condition{condition="flowing",queue="push"} 0
waterclock_queue_condition{condition="idle",queue="push"} 0
waterclock_queue_condition{condition="paused",queue="push"} 0
waterclock_queue_condition{condition="stalled",queue="push"} 0
waterclock_queue_condition{condition="starved",queue="push"} 0
waterclock_queue_condition{condition="throttled",queue="push"} 1
# HELP waterclock_queue_jobs Jobs that wait in lanes, wait for their time (later), run, or are dead.
# TYPE waterclock_queue_jobs gauge
waterclock_queue_jobs{queue="push",state="dead"} 0
waterclock_queue_jobs{queue="push",state="later"} 0
waterclock_queue_jobs{queue="push",state="running"} 0
waterclock_queue_jobs{queue="push",state="waiting"} 2
# HELP waterclock_queue_places Places of those workers.
# TYPE waterclock_queue_places gauge
waterclock_queue_places{queue="push"} 7
# HELP waterclock_queue_up 1 if the queue could be read.
# TYPE waterclock_queue_up gauge
waterclock_queue_up{queue="push"} 1
`
	names := []string{"waterclock_queue_condition", "waterclock_queue_jobs", "waterclock_queue_places", "waterclock_queue_up"}
	before := counted.Count()
	for range 20 {
		if err := testutil.CollectAndCompare(collector, strings.NewReader(want), names...); err != nil {
			t.Fatal(err)
		}
	}
	if read := counted.Count() - before; read > 10 { // a beat of the worker, perhaps
		t.Errorf("20 scrapes cost %d commands", read)
	}
}

// A queue that cannot be read is one number, and does not fail the others'.
func TestCollectorOfABrokenQueue(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	client.HSet(t.Context(), "wc:{broken}:meta", "schema", "99")
	registry := prometheus.NewRegistry()
	registry.MustRegister(watch.NewCollector(newWatcher(t, client, "broken"), newWatcher(t, client, "push")))
	const want = `
# HELP waterclock_queue_up 1 if the queue could be read.
# TYPE waterclock_queue_up gauge
waterclock_queue_up{queue="broken"} 0
waterclock_queue_up{queue="push"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "waterclock_queue_up"); err != nil {
		t.Error(err)
	}
}

// Each drop is counted under its reason, whoever has decided it.
func TestDropsAreCountedByReason(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{
			Capacity: 3, User: []throttle.Rule{throttle.Window(1, time.Hour).OrDrop(), throttle.TokenBucket(5, time.Hour, 5)},
		}))
		inspector := newWatcher(t, s.client, "push")
		collapsing := func(j *queue.Job) { j.CollapseKey = "news" }
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		enqueue(t, s.client, named("", "a", cost(6)))                                // impossible
		enqueue(t, s.client, named("", "b", collapsing), named("", "b", collapsing)) // collapsed
		enqueue(t, s.client, named("off", "c"), named("", "d"), named("", "e"))      // full
		enqueue(t, s.client, named("", "f", func(j *queue.Job) { j.Tenant = "gone" }))
		_, err := inspector.Cancel(t.Context(), "off")
		must(t, err)
		_, err = inspector.Purge(t.Context(), "gone")
		must(t, err)
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
		s.eventually(t, "b's job is done", drained(t, s.client))
		enqueue(t, s.client, named("", "b"), named("", "b")) // rule
		s.eventually(t, "the others are dropped", drained(t, s.client))

		drops, err := inspector.Drops(t.Context(), 100)
		must(t, err)
		want := make(map[string]float64)
		for _, d := range drops {
			want[string(d.Reason)]++
		}
		registry := prometheus.NewRegistry()
		registry.MustRegister(watch.NewCollector(inspector))
		families, err := registry.Gather()
		must(t, err)
		counted := make(map[string]float64)
		for _, family := range families {
			for _, m := range family.GetMetric() {
				if family.GetName() == "waterclock_queue_dropped_total" {
					counted[m.GetLabel()[1].GetValue()] = m.GetCounter().GetValue()
				}
			}
		}
		if !maps.Equal(counted, want) || len(want) != 6 || want["rule"] != 2 {
			t.Errorf("counted %v, and the drops are %v", counted, want)
		}
	})
}
