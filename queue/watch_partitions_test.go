package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// divided is how many partitions the queues of these tests have.
const divided = 4

// divide gives the queue its partitions, and one policy for everybody.
func divide(t *testing.T, client redis.UniversalClient, p queue.Policy) {
	t.Helper()
	all := policies(p)
	all.Partitions = divided
	setPolicies(t, client, all)
}

// tenantIn returns the name of a tenant whose jobs are in a partition: the first one, the second one and so on.
func tenantIn(partition, n int) string {
	for k := 0; ; k++ {
		name := fmt.Sprint("school-", k)
		if store.PartitionOf(name, divided) == partition {
			if n--; n < 0 {
				return name
			}
		}
	}
}

// inEachPartition returns n jobs of one tenant in each partition.
func inEachPartition(user string, n int) (all []queue.Job) {
	for k := range divided {
		all = append(all, jobs(tenantIn(k, 0), user, n)...)
	}
	return all
}

// What waits and runs in all partitions is seen, each worker once, and nothing is left out or counted twice.
func TestWatchingPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		divide(t, client, queue.Policy{User: []throttle.Rule{throttle.Window(3, time.Hour)}})
		w := newWatcher(t, client, "push")
		enqueue(t, client, inEachPartition("teacher", 5)...)
		time.Sleep(time.Second)
		h, err := w.Health(t.Context())
		if err != nil || h.Condition != watch.Stalled || h.Detail != "20 jobs wait, and no worker lives" || h.Waiting != 20 || h.Overdue != divided {
			t.Errorf("without a worker: %+v, %v", h, err)
		}
		release := make(chan struct{})
		got := &recorder{then: func(context.Context, queue.Info) error { <-release; return nil }}
		runWorker(t, client, got, queue.WorkerConfig{Concurrency: 14})
		time.Sleep(10 * time.Second)
		workers, err := w.Workers(t.Context())
		if err != nil || len(workers) != 1 {
			t.Fatalf("%+v, %v", workers, err)
		}
		if one := workers[0]; one.Places != 14 || one.Running != 12 || !one.Alive || !one.Leads || one.Led != divided || one.Host == "" || time.Since(one.Since) > 11*time.Second {
			t.Errorf("%+v", one)
		}
		h, err = w.Health(t.Context())
		if err != nil || h.Condition != watch.Throttled || h.Waiting != 8 || h.Running != 12 || h.Places != 14 || h.Workers != 1 || h.Overdue != 0 {
			t.Errorf("what waits, waits for its limits: %+v, %v", h, err)
		}
		running, err := w.Running(t.Context())
		if err != nil || len(running) != 12 || !slices.IsSortedFunc(running, func(a, b watch.RunningJob) int { return a.Since.Compare(b.Since) }) {
			t.Errorf("%+v, %v", running, err)
		}
		for k := range divided {
			recent, err := w.Recent(t.Context(), tenantIn(k, 0), "teacher")
			if err != nil || len(recent) == 0 {
				t.Errorf("partition %d: starts at %v, %v", k, recent, err)
			}
			b, err := w.Backlog(t.Context(), tenantIn(k, 0))
			if err != nil || b.Waiting != 2 || len(b.Users) != 1 || b.Drains != 40*time.Minute || b.Oldest.IsZero() || time.Since(b.Now).Abs() > time.Second {
				t.Errorf("partition %d: %+v, %v", k, b, err)
			}
		}
		enqueue(t, client, inEachPartition("parent", 1)...) // for two places
		time.Sleep(5 * time.Second)
		h, err = w.Health(t.Context())
		if err != nil || h.Condition != watch.Starved || h.Running != 14 || h.Places != 14 || h.Overdue != 2 || h.Oldest.Round(time.Second) != 5*time.Second {
			t.Errorf("all places are taken: %+v, %v", h, err)
		}

		other := redistest.Mini(t) // a queue that was not divided says nothing of partitions
		_, err = newClient(t, other, "push").Enqueue(t.Context(), jobs("school", "teacher", 1)...)
		must(t, err)
		runWorker(t, other, got, queue.WorkerConfig{Concurrency: 5})
		time.Sleep(10 * time.Second)
		workers, err = newWatcher(t, other, "push").Workers(t.Context())
		if err != nil || len(workers) != 1 || workers[0].Places != 5 || workers[0].Running != 1 || !workers[0].Leads || workers[0].Led != 0 {
			t.Errorf("%+v, %v", workers, err)
		}
		close(release)
		time.Sleep(10 * time.Second)
	})
}

// A queue that is not divided is looked at as before, once it is known that it never will be.
func TestWatchingOnePartitionCostsNoMore(t *testing.T) {
	t.Parallel()
	client := redistest.Mini(t)
	enqueue(t, client, jobs("school", "teacher", 1)...)
	w := newWatcher(t, client, "push")
	looks := map[string]func() error{
		"workers": func() error { _, err := w.Workers(t.Context()); return err },
		"recent":  func() error { _, err := w.Recent(t.Context(), "school", "teacher"); return err },
		"running": func() error { _, err := w.Running(t.Context()); return err },
		"waiting": func() error { _, err := w.Retrying(t.Context(), 0, 1); return err },
	}
	must(t, looks["workers"]()) // it looks for the partitions, and loads a script
	counted := &redistest.Counter{}
	client.AddHook(counted)
	for look, want := range map[string]int{"workers": 3, "recent": 1, "running": 1, "waiting": 1} {
		counted.Take()
		must(t, looks[look]())
		if n := counted.Take(); n != want {
			t.Errorf("%s: %d commands, want %d", look, n, want)
		}
	}
}

// forged is a worker as Redis knows it. The first letter of its name says which it is in the whole queue.
type forged struct {
	name, host             string
	since, places, running int
	dead, leads            bool
}

// forge puts workers into a partition.
func forge(t *testing.T, client redis.UniversalClient, partition int, workers ...forged) {
	t.Helper()
	prefix, now := fmt.Sprintf("wc:{push/%d}:", partition), time.Now()
	for _, w := range workers {
		lease := now.Add(time.Minute)
		if w.dead {
			lease = now.Add(-time.Second)
		}
		must(t, client.ZAdd(t.Context(), prefix+"workers", redis.Z{Score: float64(lease.UnixMicro()), Member: w.name}).Err())
		must(t, client.HSet(t.Context(), prefix+"worker:"+w.name, "host", w.host, "of", w.name[:1], "places", w.places, "since", now.Add(-time.Duration(w.since)*time.Second).UnixMicro(), "version", "2").Err())
		for k := range w.running {
			must(t, client.HSet(t.Context(), prefix+"running:"+w.name, fmt.Sprint("claim ", k), "job").Err())
		}
		if w.leads {
			must(t, client.HSet(t.Context(), prefix+"meta", "leader", "1:"+w.name, "till", now.Add(time.Minute).UnixMicro()).Err())
		}
	}
}

// A worker that takes part in several partitions is one, also beside another of its process and one that the same process was before.
// What one partition lacks is said with its number.
func TestWorkersOfPartitions(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		divide(t, client, queue.Policy{})
		enqueue(t, client, inEachPartition("teacher", 1)...)
		w := newWatcher(t, client, "push")
		// x and y are workers of one process with ten places each, of which x has 2 and 3 taken; s stops; z was killed.
		forge(t, client, 0, forged{"x0", "pod/1", 30, 7, 2, false, true}, forged{"y0", "pod/1", 20, 10, 0, false, false}, forged{"s0", "stops/1", 9, 0, 2, false, false})
		forge(t, client, 1, forged{"x1", "pod/1", 31, 8, 3, false, true}, forged{"y1", "pod/1", 21, 10, 0, false, false}, forged{"z1", "pod/1", 50, 10, 1, true, false})
		forge(t, client, 2, forged{"y2", "pod/1", 19, 10, 0, false, true}, forged{"x2", "pod/1", 29, 5, 0, false, false}, forged{"s2", "stops/1", 8, 0, 1, false, false})
		workers, err := w.Workers(t.Context())
		must(t, err)
		var all []string
		for _, one := range workers {
			all = append(all, fmt.Sprint(one.Worker, " ", one.Places, " ", one.Running, " ", one.Alive, " ", one.Led, " ", time.Since(one.Since).Round(time.Second)))
		}
		want := []string{"s0 0 3 true 0 9s", "x0 10 5 true 2 31s", "y0 10 0 true 1 21s", "z1 10 1 false 0 50s"}
		if fmt.Sprint(all) != fmt.Sprint(want) {
			t.Errorf("got  %q\nwant %q", all, want)
		}
		h, err := w.Health(t.Context())
		if err != nil || h.Condition != watch.Stalled || h.Detail != "4 jobs wait, and partition 3 has no leader" || h.Workers != 3 || h.Places != 20 {
			t.Errorf("%+v, %v", h, err)
		}
		must(t, client.HDel(t.Context(), "wc:{push/1}:meta", "leader").Err())
		if h, err = w.Health(t.Context()); err != nil || h.Condition != watch.Stalled || h.Detail != "4 jobs wait, and partitions 1, 3 have no leader" {
			t.Errorf("%+v, %v", h, err)
		}
		must(t, client.HDel(t.Context(), "wc:{push/0}:meta", "leader").Err())
		must(t, client.HDel(t.Context(), "wc:{push/2}:meta", "leader").Err())
		if h, err = w.Health(t.Context()); err != nil || h.Detail != "4 jobs wait, and none of 3 workers leads" {
			t.Errorf("%+v, %v", h, err)
		}
		must(t, client.Set(t.Context(), "wc:{push/2}:workers", "no set", 0).Err())
		if _, err = w.Workers(t.Context()); err == nil || !strings.Contains(err.Error(), `inspecting queue "push/2": `) || strings.Contains(err.Error(), "push/1") {
			t.Error(err)
		}
	})
}

// Two workers of one process that take part in different partitions are two, and so is one that takes part in none.
func TestWorkersOfOneProcess(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		divide(t, client, queue.Policy{})
		forge(t, client, 0, forged{"x0", "pod/1", 30, 8, 2, false, true})
		forge(t, client, 1, forged{"y1", "pod/1", 30, 7, 1, false, true})
		must(t, client.ZAdd(t.Context(), "wc:{push}:workers", redis.Z{Score: float64(time.Now().Add(time.Minute).UnixMicro()), Member: "z"}).Err())
		must(t, client.HSet(t.Context(), "wc:{push}:worker:z", "host", "pod/1", "of", "z", "places", 5).Err())
		workers, err := newWatcher(t, client, "push").Workers(t.Context())
		must(t, err)
		var all []string
		for _, one := range workers {
			all = append(all, fmt.Sprint(one.Worker, " ", one.Places, " ", one.Running, " ", one.Led))
		}
		if want := []string{"x0 8 2 1", "y1 7 1 1", "z 5 0 0"}; !slices.Equal(all, want) {
			t.Errorf("got  %q\nwant %q", all, want)
		}
	})
}

// The job that has been overdue for longest counts, whatever its partition, and each tenant's is known.
func TestLatenessInPartitions(t *testing.T) {
	t.Parallel()
	for slow := range divided {
		t.Run(fmt.Sprint(slow), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				divide(t, client, queue.Policy{})
				enqueue(t, client, jobs(tenantIn(slow, 1), "teacher", 1)...)
				time.Sleep(time.Minute)
				enqueue(t, client, inEachPartition("teacher", 1)...)
				time.Sleep(10 * time.Second)
				w := newWatcher(t, client, "push")
				h, err := w.Health(t.Context())
				if err != nil || h.Overdue != divided+1 || h.Oldest.Round(time.Second) != 70*time.Second {
					t.Errorf("%+v, %v", h, err)
				}
				collector, err := watch.NewTenantCollector(watch.TenantCollectorConfig{Watchers: []*watch.Watcher{w}, Tenants: []string{tenantIn(0, 2), tenantIn(slow, 1)}, Busiest: 10})
				must(t, err)
				registry := prometheus.NewRegistry()
				registry.MustRegister(collector)
				late, old := ofTenants(t, registry, "waterclock_queue_tenant_overdue_seconds"), ofTenants(t, registry, "waterclock_queue_tenant_oldest_seconds")
				want := map[string]float64{tenantIn(0, 2): 0, tenantIn(slow, 1): 70}
				for k := range divided {
					want[tenantIn(k, 0)] = 10
				}
				for tenant, seconds := range want {
					if off := func(s float64) bool { return math.Round(s) != seconds }; off(late[tenant]) || off(old[tenant]) {
						t.Errorf("%s: overdue for %v s, the oldest is %v s old, want %v s", tenant, late[tenant], old[tenant], seconds)
					}
				}
				if len(late) != len(want) {
					t.Errorf("%v, want %v", late, want)
				}
			})
		})
	}
}

// Points are of the whole queue, and lie where it keeps what its partitions have in common.
func TestChartsOfPartitions(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		divide(t, client, queue.Policy{})
		for k := range divided {
			enqueue(t, client, jobs(tenantIn(k, 0), "teacher", 2+k)...)
		}
		w := newWatcher(t, client, "push")
		p, err := w.Record(t.Context())
		if err != nil || p.Counters.Offered != 14 || p.Health.Waiting != 14 || p.Health.Condition != watch.Stalled {
			t.Errorf("%+v, %v", p, err)
		}
		points, err := newWatcher(t, client, "push").Chart(t.Context(), watch.LastMinutes)
		if err != nil || len(points) != 1 || points[0].Counters.Offered != 14 {
			t.Errorf("%+v, %v", points, err)
		}
		charts, err := w.TenantCharts(t.Context(), watch.LastHours)
		if err != nil || len(charts) != divided {
			t.Errorf("%+v, %v", charts, err)
		}
		for k := range divided {
			if of := charts[tenantIn(k, 0)]; len(of) != 1 || of[0].Waiting != int64(2+k) || of[0].Offered != int64(2+k) {
				t.Errorf("partition %d: %+v", k, of)
			}
		}
		if keys := client.Keys(t.Context(), "wc:{push/*}:chart*").Val(); len(keys) > 0 {
			t.Errorf("charts of partitions: %q", keys)
		}
	})
}

// The metrics of a divided queue are sums, and none is there twice.
func TestCollectorOfPartitions(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	all := policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}})
	all.Partitions = divided
	all.Limits = map[string]queue.Limit{"kind": {Key: []string{"type"}, Rules: []throttle.Rule{throttle.Leak(1000, time.Second)}, Detailed: true}}
	setPolicies(t, client, all)
	enqueue(t, client, inEachPartition("teacher", 3)...)
	w := newWatcher(t, client, "push")
	must(t, w.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "kind", Key: "mail", For: time.Hour}))
	var got recorder
	runWorker(t, client, &got, queue.WorkerConfig{Concurrency: 7})
	redistest.Eventually(t, 10*time.Second, "one of each tenant has run", func() bool { return stats(t, client).Done == divided })
	redistest.Eventually(t, 10*time.Second, "each partition is told how many places the others leave to it", func() bool {
		workers, err := newWatcher(t, client, "push").Workers(t.Context())
		return err == nil && len(workers) == 1 && workers[0].Places == 7 && workers[0].Led == divided
	})
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
waterclock_queue_jobs{queue="push",state="waiting"} 8
# HELP waterclock_queue_limit_key_waiting_jobs Jobs that wait and that a limit by name counts for a value of its key, of the lanes that are due first; for limits with detailed: true.
# TYPE waterclock_queue_limit_key_waiting_jobs gauge
waterclock_queue_limit_key_waiting_jobs{key="mail",limit="kind",queue="push"} 0
waterclock_queue_limit_key_waiting_jobs{key="push",limit="kind",queue="push"} 8
# HELP waterclock_queue_limit_paused_keys Values of the key of a limit by name that are paused.
# TYPE waterclock_queue_limit_paused_keys gauge
waterclock_queue_limit_paused_keys{limit="kind",queue="push"} 1
# HELP waterclock_queue_places Places of those workers.
# TYPE waterclock_queue_places gauge
waterclock_queue_places{queue="push"} 7
# HELP waterclock_queue_up 1 if the queue could be read.
# TYPE waterclock_queue_up gauge
waterclock_queue_up{queue="push"} 1
# HELP waterclock_queue_workers Workers whose leases hold.
# TYPE waterclock_queue_workers gauge
waterclock_queue_workers{queue="push"} 1
`
	collector := watch.NewCollector(w)
	err := testutil.CollectAndCompare(collector, strings.NewReader(want), "waterclock_queue_condition", "waterclock_queue_jobs", "waterclock_queue_limit_key_waiting_jobs",
		"waterclock_queue_limit_paused_keys", "waterclock_queue_places", "waterclock_queue_up", "waterclock_queue_workers")
	if err != nil {
		t.Error(err)
	}
	if problems, err := testutil.CollectAndLint(collector); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

// Whoever listens is told of all partitions, by one call at a time, also if the queue is divided only then.
func TestTailOfPartitions(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		w := newWatcher(t, s.client, "push")
		var calls sync.Mutex
		listening := func(ctx context.Context, each func(watch.Event) error) error {
			return w.Tail(ctx, func(e watch.Event) error {
				if !calls.TryLock() {
					t.Error("two calls at once")
				}
				defer calls.Unlock()
				return each(e)
			})
		}
		events := listen(t, listening)
		offers := listen(t, func(ctx context.Context, each func(simulate.Offer) error) error {
			return w.Offers(ctx, func(offered []simulate.Offer, missed int) error {
				if missed > 0 {
					return fmt.Errorf("%d are missing", missed)
				}
				for _, o := range offered {
					if err := each(o); err != nil {
						return err
					}
				}
				return nil
			})
		})
		s.eventually(t, "it listens to a queue that nobody has used", func() bool { return s.client.HExists(t.Context(), "wc:{push}:meta", "recorded").Val() })
		divide(t, s.client, queue.Policy{})
		listens := func() bool {
			for k := range divided {
				if s.client.HLen(t.Context(), fmt.Sprintf("wc:{push/%d}:meta", k)).Val() == 0 || s.client.HMGet(t.Context(), fmt.Sprintf("wc:{push/%d}:meta", k), "listened", "recorded").Val()[1] == nil {
					return false
				}
			}
			return true
		}
		s.eventually(t, "it listens to each partition", listens)
		runWorker(t, s.client, &recorder{}, queue.WorkerConfig{Lease: time.Second})
		s.eventually(t, "the worker knows in each partition that somebody listens", func() bool {
			enqueue(t, s.client, inEachPartition("probe", 1)...)
			heard := make(map[string]bool)
			for _, e := range events() {
				heard[e.Tenant] = true
			}
			return len(heard) == divided
		})
		before := len(offers())
		enqueue(t, s.client, inEachPartition("teacher", 2)...)
		s.eventually(t, "all is told", func() bool {
			kinds := make(map[string]int)
			for _, e := range events() {
				if e.User == "teacher" {
					kinds[e.Tenant+" "+string(e.Kind)]++
				}
			}
			offered := make(map[string]int)
			for _, o := range offers() {
				if o.Job.User == "teacher" {
					offered[o.Job.Tenant]++
				}
			}
			for k := range divided {
				tenant := tenantIn(k, 0)
				if kinds[tenant+" claimed"] < 2 || kinds[tenant+" started"] != 2 || kinds[tenant+" done"] != 2 || offered[tenant] != 2 {
					return false
				}
			}
			return len(offers()) >= before+2*divided
		})
	})
}

// An error of whoever listens ends a Tail in all partitions, and is returned.
func TestTailOfPartitionsEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		divide(t, client, queue.Policy{})
		enough := errors.New("enough")
		calls := 0
		ended := make(chan error, 1)
		go func() {
			ended <- newWatcher(t, client, "push").Tail(t.Context(), func(watch.Event) error { calls++; return enough })
		}()
		time.Sleep(time.Second)
		late := inEachPartition("teacher", 3)
		for k := range late {
			late[k].StartBy = time.Now().Add(-time.Minute)
		}
		enqueue(t, client, late...)
		runWorker(t, client, &recorder{}, queue.WorkerConfig{})
		if err := <-ended; !errors.Is(err, enough) || calls != 1 {
			t.Errorf("%v, after %d calls", err, calls)
		}
	})
}

// Jobs that failed are those of all partitions, in the order of their next attempts. Failures of long ago in a partition in which
// nothing runs any more do not make others of now look worse.
func TestFailuresInPartitions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		divide(t, client, queue.Policy{})
		w := newWatcher(t, client, "push")
		got := &recorder{then: func(_ context.Context, info queue.Info) error {
			if info.User == "fails" {
				return fmt.Errorf("status 503 from %s", info.Tenant)
			}
			return nil
		}}
		stop := runWorker(t, client, got, queue.WorkerConfig{RetryDelay: waitsFor(24 * time.Hour)})
		for k := range divided {
			enqueue(t, client, jobs(tenantIn(divided-1-k, 0), "fails", 3)...)
			time.Sleep(time.Second)
		}
		all, err := w.Retrying(t.Context(), 1, 100)
		if err != nil || len(all) != 3*divided-1 || !slices.IsSortedFunc(all, func(a, b queue.LaterJob) int { return a.At.Compare(b.At) }) {
			t.Errorf("%+v, %v", all, err)
		} else if all[0].Tenant != tenantIn(divided-1, 0) || all[0].Attempts != 1 || all[0].Type != "push" || all[0].User != "fails" || all[0].Error != "status 503 from "+all[0].Tenant {
			t.Errorf("%+v", all[0])
		}
		classes, err := w.Failures(t.Context(), 100)
		if err != nil || len(classes) != 1 || classes[0].Retrying != 3*divided {
			t.Errorf("%+v, %v", classes, err)
		}
		h, err := w.Health(t.Context())
		if err != nil || h.Condition != watch.Failing || h.RecentAttempts != 3*divided || h.RecentFailed != 3*divided || h.RecentError != "status 503 from "+tenantIn(0, 0) {
			t.Errorf("%+v, %v", h, err)
		}
		stop()
		time.Sleep(time.Hour)
		runWorker(t, client, got, queue.WorkerConfig{RetryDelay: waitsFor(24 * time.Hour)})
		enqueue(t, client, append(jobs(tenantIn(1, 0), "works", 6), jobs(tenantIn(1, 0), "fails", 1)...)...)
		time.Sleep(time.Second)
		enqueue(t, client, jobs(tenantIn(1, 0), "works", 6)...)
		time.Sleep(time.Second)
		h, err = w.Health(t.Context())
		if err != nil || h.Condition != watch.Idle || h.RecentFailed != 1 {
			t.Errorf("an hour later: %+v, %v", h, err)
		}
	})
}
