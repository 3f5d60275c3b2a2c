package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// Charts are rings: however long a queue is watched, and by however many, they hold so many
// points and no more.
func TestChartsAreBounded(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		one, other := newWatcher(t, client, "push"), newWatcher(t, client, "push")
		begin := time.Now()
		for time.Since(begin) < 30*time.Minute {
			for _, i := range []*watch.Watcher{one, other} {
				if _, err := i.Record(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(300 * time.Millisecond)
			}
			time.Sleep(400 * time.Millisecond)
		}
		want := map[watch.Chart]int{watch.LastMinutes: 600, watch.LastHours: 180, watch.LastDays: 6}
		for chart, n := range want {
			points, err := one.Chart(t.Context(), chart)
			if err != nil || len(points) < n-1 || len(points) > n+1 {
				t.Errorf("chart %d: %d points, want %d: %v", chart, len(points), n, err)
			}
			for k := 1; k < len(points); k++ {
				if d := points[k].At.Sub(points[k-1].At); d <= 0 || d > 2*chart.Step() {
					t.Fatalf("chart %d: points %d and %d are %v apart", chart, k-1, k, d)
				}
			}
		}
		time.Sleep(8 * 24 * time.Hour)
		for chart := range want {
			if points, err := one.Chart(t.Context(), chart); err != nil || len(points) > 0 {
				t.Errorf("chart %d: %d points after a week without a look, %v", chart, len(points), err)
			}
		}
		if keys := client.Keys(t.Context(), "*").Val(); len(keys) > 0 {
			t.Errorf("%q stay for ever", keys)
		}
	})
}

// Whoever records in a second in which another one has does not look at the queue again.
func TestOneRecordsForAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		enqueue(t, client, jobs("school", "teacher", 3)...)
		first, err := newWatcher(t, client, "push").Record(t.Context())
		if err != nil || first.Health.Waiting != 3 || first.Counters.Offered != 3 || first.Health.Condition != watch.Stalled {
			t.Errorf("%+v, %v", first, err)
		}
		counted := &redistest.Counter{}
		client.AddHook(counted)
		second, err := newWatcher(t, client, "push").Record(t.Context())
		if err != nil || !second.At.Equal(first.At) || second.Health != first.Health || counted.Count() > 2 {
			t.Errorf("%+v, %v, for %d commands", second, err, counted.Count())
		}
	})
}

// A point that nobody can read is not there, and is replaced.
func TestChartWithNonsense(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		ctx := context.Background()
		for _, seconds := range []string{"1", "10", "300", "10:tenants", "300:tenants"} {
			client.HSet(ctx, "wc:{push}:chart:"+seconds, "0", "nonsense", "1", "", "2", "1763600000 {", "3", "1 {}")
		}
		i := newWatcher(t, client, "push")
		if p, err := i.Record(ctx); err != nil || p.Health.Condition != watch.Idle {
			t.Errorf("%+v, %v", p, err)
		}
		for _, chart := range []watch.Chart{watch.LastMinutes, watch.LastHours, watch.LastDays} {
			if points, err := i.Chart(ctx, chart); err != nil || len(points) != 1 {
				t.Errorf("%d points, %v", len(points), err)
			}
		}
	})
}

// A queue whose jobs wait for their limits is looked at with a few commands, however many
// tenants and users wait.
func TestHealthOfAThrottledQueueCostsLittle(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		client := redistest.MiniClient(t, server)
		setPolicies(t, client, policies(leakOf(1)))
		for k := range 900 {
			enqueue(t, client, jobs(fmt.Sprint("tenant-", k%30), fmt.Sprint("user-", k), 2)...)
		}
		runWorker(t, client, &recorder{}, queue.WorkerConfig{})
		time.Sleep(10*time.Second + 500*time.Millisecond)
		counted := &redistest.Counter{}
		watching := redistest.MiniClient(t, server)
		watching.AddHook(counted)
		h, err := newWatcher(t, watching, "push").Health(t.Context())
		if err != nil || h.Condition != watch.Throttled || counted.Count() > 40 {
			t.Errorf("%+v, %v, for %d commands", h, err, counted.Count())
		}
	})
}

// The tenants with most waiting have charts of their own, however many are due before them, and
// keep them while they have; odd names cost the others nothing.
func TestChartsOfTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newWatcher(t, client, "push")
		enqueue(t, client, jobs("flood", "parent", 500)...)
		for k := range 30 {
			enqueue(t, client, jobs(fmt.Sprint("school ", k), "teacher", 1+k)...)
		}
		enqueue(t, client, jobs(strings.Repeat("long", 200), "teacher", 90)...)
		record := func(seconds int) {
			for range seconds {
				if _, err := i.Record(t.Context()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		record(60)
		for k := range 60 { // now they are due before the flood
			client.ZAdd(t.Context(), "wc:{push}:tenants", redis.Z{Score: 1, Member: fmt.Sprint("early", k)})
		}
		enqueue(t, client, jobs("flood", "parent", 100)...)
		record(60)
		charts, err := i.TenantCharts(t.Context(), watch.LastHours)
		if err != nil || len(charts) != 10 {
			t.Fatalf("%d charts, %v", len(charts), err)
		}
		flood := charts["flood"]
		if n := len(flood); n < 11 || n > 13 || flood[0].Waiting != 500 || flood[n-1].Waiting != 600 || flood[n-1].Offered != 600 {
			t.Errorf("%+v", flood)
		}
		if len(charts["school 29"]) != len(flood) || len(charts["school 3"]) > 0 {
			t.Errorf("%d points of a busy tenant, %d of an idle one", len(charts["school 29"]), len(charts["school 3"]))
		}
		if days, err := i.TenantCharts(t.Context(), watch.LastDays); err != nil || len(days["flood"]) != 1 {
			t.Errorf("%+v, %v", days["flood"], err)
		}
		if none, err := i.TenantCharts(t.Context(), watch.LastMinutes); err != nil || len(none) > 0 {
			t.Errorf("%+v, %v", none, err)
		}
	})
}
