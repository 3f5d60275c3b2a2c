package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// TestANearWorkerLeads lets a worker lead that is far from Redis, until one comes that is
// near: then jobs do not wait for the round trips of the other one.
func TestANearWorkerLeads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		near := redistest.MiniClient(t, server)
		far := &road{there: 30 * time.Millisecond, back: 30 * time.Millisecond}
		var mu sync.Mutex
		var waits []time.Duration
		handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			offered, err := time.Parse(time.RFC3339Nano, string(task.Payload()))
			mu.Lock()
			defer mu.Unlock()
			waits = append(waits, time.Since(offered))
			return err
		})
		for _, client := range []*redis.Client{far.client(t, server), near} {
			runWorker(t, client, handler, queue.WorkerConfig{})
			time.Sleep(3 * time.Second)
		}
		time.Sleep(5 * time.Second)
		for range 50 {
			enqueue(t, near, queue.Job{
				Tenant: "school", User: "teacher", Type: "push", Payload: []byte(time.Now().Format(time.RFC3339Nano)),
			})
			time.Sleep(200 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(waits)
		if len(waits) != 50 || waits[40] > 10*time.Millisecond {
			t.Errorf("%d jobs waited %v", len(waits), waits)
		}
	})
}

// A fleet that is far from Redis as a whole carries jobs all the same: whoever leads has read
// what it needs before its lease ends, and nobody asks again and again for another slot.
func TestAFleetFarAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const ms = time.Millisecond
	for name, fleet := range map[string]struct {
		ways  []time.Duration // each in either direction
		least int             // of 450 jobs in 20 s, 36 a second at most
	}{
		"30 ms":            {[]time.Duration{15 * ms, 15 * ms, 15 * ms}, 400},
		"30, 30 and 60 ms": {[]time.Duration{15 * ms, 15 * ms, 30 * ms}, 400},
		"100 ms":           {[]time.Duration{50 * ms, 50 * ms, 50 * ms}, 150},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				near := redistest.MiniClient(t, server)
				setPolicies(t, near, policies(queue.Policy{
					Tenant: []throttle.Rule{throttle.Leak(12, time.Second)},
					User:   []throttle.Rule{throttle.Window(5, time.Second), throttle.Spacing(30 * ms)},
				}))
				var watch stopwatch
				for i, way := range fleet.ways {
					away := &road{there: way, back: way}
					runWorker(t, away.client(t, server), slow(watch.by(fmt.Sprint(i)), 75*ms), queue.WorkerConfig{Concurrency: 10})
				}
				time.Sleep(10 * time.Second)
				for i := range 45 {
					enqueue(t, near, jobs(fmt.Sprint(i/15), fmt.Sprint(i%15), 10)...)
				}
				time.Sleep(20 * time.Second)
				watch.mu.Lock()
				defer watch.mu.Unlock()
				if n := len(watch.truth); n < fleet.least || n > 450 {
					t.Errorf("%d starts of 450 jobs in 20 s, want %d: %v", n, fleet.least, watch.from)
				}
			})
		})
	}
}

// Workers that are far from Redis keep the rate of a leak, and of a bucket: their doubt about Redis's clock makes starts uneven, and not
// fewer.
func TestFarWorkersKeepTheRate(t *testing.T) {
	t.Parallel()
	const perSecond, lasts = 100, 10
	for name, rule := range map[string]throttle.Rule{
		"leak": throttle.Leak(perSecond, time.Second), "bucket": throttle.TokenBucket(perSecond, time.Second, 1),
	} {
		for _, way := range []time.Duration{3 * time.Millisecond, 10 * time.Millisecond} {
			t.Run(fmt.Sprint(name, " ", way), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server := newMini(t)
					near := redistest.MiniClient(t, server)
					setPolicies(t, near, policies(queue.Policy{Tenant: []throttle.Rule{rule}}))
					var watch stopwatch
					for i := range 2 {
						away := &road{there: way, back: way}
						runWorker(t, away.client(t, server), watch.by(fmt.Sprint(i)), queue.WorkerConfig{Concurrency: 20})
					}
					time.Sleep(10 * time.Second)
					for user := range 20 {
						enqueue(t, near, jobs("school", fmt.Sprint(user), 2*perSecond*lasts/20)...)
					}
					started := func() int {
						watch.mu.Lock()
						defer watch.mu.Unlock()
						return len(watch.truth)
					}
					time.Sleep(time.Second)
					before := started()
					time.Sleep(lasts * time.Second)
					if n := started() - before; n < perSecond*lasts*97/100 || n > perSecond*lasts*101/100 {
						t.Errorf("%d starts in %d s at %d/s", n, lasts, perSecond)
					} else {
						t.Logf("%d starts", n)
					}
				})
			})
		}
	}
}

// One worker far from Redis among near ones costs nobody a slot: it gets what they have no
// places for.
func TestOneFarWorker(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, far := range []time.Duration{3 * time.Millisecond, 30 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(fmt.Sprint(2*far, " round trip"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				near := redistest.MiniClient(t, server)
				setPolicies(t, near, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}}))
				var watch stopwatch
				away := &road{there: far, back: far}
				for i, client := range []*redis.Client{near, near, away.client(t, server)} {
					runWorker(t, client, watch.by(fmt.Sprint(i)), queue.WorkerConfig{Concurrency: 10})
					time.Sleep(time.Second)
				}
				time.Sleep(5 * time.Second)
				for user := range 20 {
					enqueue(t, near, jobs("school", fmt.Sprint(user), 50)...)
				}
				time.Sleep(10 * time.Second)
				watch.mu.Lock()
				defer watch.mu.Unlock()
				if n := len(watch.truth); n < 998 {
					t.Errorf("%d starts in 10 s at 100/s: %v", n, watch.from)
				}
			})
		})
	}
}

// A near worker that is frozen leads nobody: those far away carry the jobs, and do not hand
// the queue to it again and again as long as its lease lasts.
func TestTheNearestWorkerIsFrozen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		client := redistest.MiniClient(t, server)
		near := &road{}
		far := func() *redis.Client {
			return (&road{there: 10 * time.Millisecond, back: 10 * time.Millisecond}).client(t, server)
		}
		var watch stopwatch
		for i, c := range []*redis.Client{far(), far(), near.client(t, server)} {
			runWorker(t, c, watch.by(fmt.Sprint(i)), queue.WorkerConfig{})
			time.Sleep(2 * time.Second)
		}
		time.Sleep(5 * time.Second)
		open := near.close()
		defer open()
		longest, last := time.Duration(0), time.Now()
		for i := range 60 {
			enqueue(t, client, jobs("school", fmt.Sprint(i), 1)...)
			for range 20 {
				time.Sleep(10 * time.Millisecond)
				watch.mu.Lock()
				if n := len(watch.truth); n > 0 && watch.truth[n-1].At.After(last) {
					longest, last = max(longest, watch.truth[n-1].At.Sub(last)), watch.truth[n-1].At
				}
				watch.mu.Unlock()
			}
		}
		if longest = max(longest, time.Since(last)); longest > 3*time.Second {
			t.Errorf("nothing started for %v: %v", longest, watch.from)
		}
	})
}

// A worker far away that is given one job after the other takes them as they come, and not
// one in a round trip.
func TestAFarWorkerKeepsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		near := redistest.MiniClient(t, server)
		var mu sync.Mutex
		var latest time.Duration
		started := 0
		busy := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error { <-ctx.Done(); return nil })
		quick := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
			offered, err := time.Parse(time.RFC3339Nano, string(task.Payload()))
			mu.Lock()
			defer mu.Unlock()
			started++
			latest = max(latest, time.Since(offered))
			return err
		})
		runWorker(t, near, busy, queue.WorkerConfig{Concurrency: 1, ShutdownTimeout: time.Second})
		time.Sleep(2 * time.Second)
		enqueue(t, near, named("busy", "nobody"))
		time.Sleep(time.Second)
		far := &road{there: 50 * time.Millisecond, back: 50 * time.Millisecond}
		runWorker(t, far.client(t, server), quick, queue.WorkerConfig{Concurrency: 200})
		time.Sleep(5 * time.Second)
		for i := range 400 {
			enqueue(t, near, queue.Job{
				Tenant: "school", User: fmt.Sprint(i), Type: "push", Payload: []byte(time.Now().Format(time.RFC3339Nano)),
			})
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if started != 400 || latest > time.Second {
			t.Errorf("%d of 400 jobs started, the latest after %v", started, latest)
		}
	})
}

// Leases as short as they may be, and beats that come late: what a dead worker had comes
// back all the same, and nobody who lives loses anything.
func TestShortLeasesFarAway(t *testing.T) {
	t.Parallel()
	for _, far := range []time.Duration{0, 30 * time.Millisecond, 100 * time.Millisecond} {
		t.Run(fmt.Sprint(2*far, " round trip"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newMini(t)
				client := redistest.MiniClient(t, server)
				var mu sync.Mutex
				runs := make(map[string]int)
				handler := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
					info, _ := queue.FromContext(ctx)
					mu.Lock()
					runs[info.ID]++
					mu.Unlock()
					time.Sleep(7 * time.Second)
					return nil
				})
				lost := make(chan struct{})
				cfg := queue.WorkerConfig{Lease: time.Second, Concurrency: 10}
				runWorker(t, clientUntil(t, server, lost), handler, cfg)
				time.Sleep(time.Second)
				for i := range 5 {
					enqueue(t, client, named(fmt.Sprint("dies-", i), fmt.Sprint(i)))
				}
				time.Sleep(time.Second)
				for range 2 {
					away := &road{there: far, back: far}
					runWorker(t, away.client(t, server), handler, cfg)
				}
				time.Sleep(2 * time.Second)
				for i := range 5 {
					enqueue(t, client, named(fmt.Sprint("lives-", i), fmt.Sprint(i)))
				}
				time.Sleep(time.Second)
				close(lost)
				time.Sleep(8 * time.Second)
				mu.Lock()
				defer mu.Unlock()
				again := 0
				for _, n := range runs {
					if n > 2 {
						t.Errorf("runs: %v", runs)
					}
					again += n - 1
				}
				if len(runs) != 10 || again < 5 || again > 10 {
					t.Errorf("%d jobs ran, %d again: %v", len(runs), again, runs)
				}
			})
		})
	}
}
