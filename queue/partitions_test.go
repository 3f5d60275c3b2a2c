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
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// tenantJobs returns jobs of so many tenants, in turn.
func tenantJobs(tenants, n int) []queue.Job {
	all := make([]queue.Job, n)
	for k := range all {
		all[k] = queue.Job{Tenant: fmt.Sprint("school-", k%tenants), User: "teacher", Type: "push"}
	}
	return all
}

// All jobs of a divided queue start, at the rate of its tenants and of the queue as a whole, and the inspector adds up what its
// partitions say.
func TestADividedQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newInspector(t, client, "push")
		must(t, i.SetPolicies(t.Context(), queue.Policies{
			Partitions: 4, Queue: []throttle.Rule{throttle.Leak(100, time.Second)},
			Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}}},
		}))
		receipts, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(20, 1000)...)
		must(t, err)
		ids := make(map[string]bool)
		for _, r := range receipts {
			if r.Status != queue.Accepted {
				t.Fatal(r)
			}
			ids[r.ID] = true
		}
		if len(ids) != 1000 {
			t.Errorf("%d IDs of 1000 jobs", len(ids))
		}
		var started starts
		r := &recorder{then: func(_ context.Context, info queue.Info) error {
			started.add("all", info.Started)
			started.add(info.Tenant, info.Started)
			return nil
		}}
		runWorker(t, client, r, queue.WorkerConfig{})
		time.Sleep(5 * time.Second)
		if n := started.of("all"); n < 480 || n > 503 {
			t.Errorf("%d starts in five seconds at 100/s", n)
		}
		time.Sleep(6 * time.Second)
		stats, err := i.Stats(t.Context())
		if err != nil || stats.Done != 1000 || stats.Offered != 1000 || stats.Waiting != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
		started.mu.Lock()
		defer started.mu.Unlock()
		for who, at := range started.by {
			if n := busiest(at, time.Second); n > 13 && who != "all" || n > 103 {
				t.Errorf("%s: %d within a second", who, n)
			}
		}
	})
}

// The number of partitions is fixed by the first who writes.
func TestPartitionsAreFixed(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		i := newInspector(t, client, "push")
		early := newClient(t, client, "push") // knows nothing of partitions
		_, err := early.Enqueue(t.Context())
		must(t, err)
		must(t, i.SetPolicies(t.Context(), queue.Policies{Partitions: 3}))
		must(t, i.SetPolicies(t.Context(), queue.Policies{Queue: []throttle.Rule{throttle.Leak(5, time.Second)}}))
		p, err := newInspector(t, client, "push").Policies(t.Context())
		if err != nil || p.Policies.Partitions != 3 {
			t.Errorf("%+v, %v", p, err)
		}
		if err := i.SetPolicies(t.Context(), queue.Policies{Partitions: 4}); !errors.Is(err, queue.ErrDivided) {
			t.Error(err)
		}
		_, err = early.Enqueue(t.Context(), tenantJobs(30, 30)...)
		must(t, err)
		for k := range 3 {
			if n := client.Exists(t.Context(), fmt.Sprintf("wc:{push/%d}:tenants", k)).Val(); n != 1 {
				t.Errorf("nothing waits in partition %d", k)
			}
		}
		if n := client.Exists(t.Context(), "wc:{push}:tenants").Val(); n != 0 {
			t.Error("jobs wait outside of the partitions")
		}

		_, err = newClient(t, client, "mail").Enqueue(t.Context(), tenantJobs(1, 1)...)
		must(t, err)
		mail := newInspector(t, client, "mail")
		if err := mail.SetPolicies(t.Context(), queue.Policies{Partitions: 3}); !errors.Is(err, queue.ErrDivided) {
			t.Error(err)
		}
		must(t, mail.SetPolicies(t.Context(), queue.Policies{Partitions: 1}))
	})
}

// The rules of a divided queue hold on when its policies change, and when jobs come back, which costs nobody a slot of others.
func TestADividedQueueGoesOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		i := newInspector(t, client, "push")
		p := queue.Policies{
			Partitions: 4, Queue: []throttle.Rule{throttle.Leak(50, time.Second), throttle.Window(100, 2*time.Second)},
			Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}}},
		}
		must(t, i.SetPolicies(t.Context(), p))
		var started starts
		r := &recorder{then: func(_ context.Context, info queue.Info) error {
			started.add("all", info.Started)
			if info.Attempt == 1 && info.User == "returns" {
				return queue.RefundUser{Err: queue.Retry{After: 100 * time.Millisecond, Cause: errors.New("again")}}
			}
			return nil
		}}
		runWorker(t, client, r, queue.WorkerConfig{})
		all := tenantJobs(20, 400)
		for k := range all {
			if k%10 == 0 {
				all[k].User = "returns"
			}
		}
		_, err := newClient(t, client, "push").Enqueue(t.Context(), all...)
		must(t, err)
		for range 4 {
			time.Sleep(time.Second)
			p.Policies["p"] = queue.Policy{Tenant: []throttle.Rule{throttle.Leak(p.Policies["p"].Tenant[0].Limit()+1, time.Second)}}
			must(t, i.SetPolicies(t.Context(), p))
		}
		time.Sleep(7 * time.Second)
		stats, err := i.Stats(t.Context())
		if err != nil || stats.Done != 400 || stats.Failed != 40 {
			t.Errorf("%+v, %v", stats, err)
		}
		started.mu.Lock()
		defer started.mu.Unlock()
		if n := busiest(started.by["all"], 2*time.Second); n > 100 {
			t.Errorf("%d starts within two seconds, want at most 100", n)
		}
		must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, For: time.Hour}))
		_, err = newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(20, 20)...)
		must(t, err)
		time.Sleep(5 * time.Second)
		pauses, err := i.Pauses(t.Context())
		stats, failed := i.Stats(t.Context())
		if err != nil || failed != nil || len(pauses) != 1 || stats.Waiting != 20 {
			t.Errorf("%+v, %v; %+v, %v", pauses, err, stats, failed)
		}
	})
}

// What a Redis has forgotten of the policies and of the partitions comes back from where it is known, and jobs go on.
func TestPartitionsThatWereForgotten(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		i, ctx := newInspector(t, client, "push"), t.Context()
		must(t, i.SetPolicies(ctx, queue.Policies{Partitions: 3}))
		first, err := i.Policies(ctx)
		must(t, err)
		must(t, i.SetPolicies(ctx, queue.Policies{Queue: []throttle.Rule{throttle.Leak(1000, time.Second)}}))
		second, err := i.Policies(ctx)
		must(t, err)
		source := client.HGet(ctx, "wc:{push}:policies", "source").Val()
		runWorker(t, client, new(recorder), queue.WorkerConfig{Lease: time.Second})
		done := int64(0)
		works := func() {
			t.Helper()
			_, err := newClient(t, client, "push").Enqueue(ctx, tenantJobs(30, 60)...)
			must(t, err)
			done += 60
			redistest.Eventually(t, 10*time.Second, "all jobs are done", func() bool {
				stats, err := newInspector(t, client, "push").Stats(ctx)
				must(t, err)
				return stats.Done == done
			})
		}
		works()
		for name, forget := range map[string]func(){
			"the number": func() { client.Del(ctx, "wc:{push}:meta") },
			"the whole queue's policies": func() {
				client.Del(ctx, "wc:{push}:meta", "wc:{push}:policies")
			},
			"a partition's policies": func() { client.Del(ctx, "wc:{push/1}:policies") },
			"the newest of a partition": func() {
				client.HSet(ctx, "wc:{push/2}:policies", "version", first.Version, "source", "partitions: 3\n")
				client.HSet(ctx, "wc:{push/2}:meta", "policies", first.Version)
			},
			"the newest of the whole queue": func() {
				client.HSet(ctx, "wc:{push}:policies", "version", first.Version, "source", "partitions: 3\n")
				client.HSet(ctx, "wc:{push}:meta", "policies", first.Version)
			},
		} {
			forget()
			redistest.Eventually(t, 10*time.Second, name+" comes back", func() bool {
				for _, of := range []string{"push", "push/0", "push/1", "push/2"} {
					known := client.HMGet(ctx, "wc:{"+of+"}:policies", "version", "source").Val()
					if known[0] != fmt.Sprint(second.Version) || known[1] != source {
						return false
					}
				}
				return true
			})
			works()
		}
	})
}

// One partition that cannot be used leaves the jobs of the others alone: they are offered once.
func TestOnePartitionAmongGood(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: 4}))
		must(t, client.Set(t.Context(), "wc:{push/2}:notices", "x", 0).Err())
		must(t, client.Del(t.Context(), "wc:{push/2}:meta").Err())
		must(t, client.Set(t.Context(), "wc:{push/2}:meta", "x", 0).Err())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := newClient(t, client, "push").Enqueue(ctx, tenantJobs(40, 400)...)
		if !errors.Is(err, queue.ErrBrokenKey) || !strings.Contains(err.Error(), "wc:{push/2}:meta") {
			t.Error(err)
		}
		waiting := 0
		for k := range 40 {
			tenant, err := newInspector(t, client, "push").Tenant(t.Context(), fmt.Sprint("school-", k))
			if err != nil {
				continue // of the partition
			}
			if tenant.Waiting != 0 && tenant.Waiting != 10 {
				t.Errorf("%+v; want 10, or 0", tenant)
			}
			waiting += int(tenant.Waiting)
		}
		if waiting < 200 || waiting > 390 {
			t.Errorf("%d of 400 jobs wait in three of four partitions", waiting)
		}
	})
}

// A job may be subject to as many limits by name in a divided queue as in any other: the rules of the queue are no such limit to people.
func TestManyLimitsOfADividedQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := queue.Policies{Partitions: 2, Queue: []throttle.Rule{throttle.Leak(10, time.Second)}, Limits: make(map[string]queue.Limit)}
		for k := range 8 {
			p.Limits[fmt.Sprint("limit-", k)] = queue.Limit{Key: []string{"tenant"}, Rules: []throttle.Rule{throttle.Window(5, time.Second)}}
		}
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), p))
		receipts, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(3, 3)...)
		if err != nil || receipts[2].Status != queue.Accepted {
			t.Fatal(receipts, err)
		}
		r := new(recorder)
		runWorker(t, client, r, queue.WorkerConfig{})
		time.Sleep(2 * time.Second)
		if r.count() != 3 {
			t.Errorf("%d starts, want 3", r.count())
		}
	})
}

// Two divided queues with the same rules do not spend them together.
func TestTwoDividedQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client, r := redistest.Mini(t), new(recorder)
		for _, name := range []string{"push", "mail"} {
			must(t, newInspector(t, client, name).SetPolicies(t.Context(), queue.Policies{Partitions: 2, Queue: []throttle.Rule{throttle.Leak(10, time.Second)}}))
			_, err := newClient(t, client, name).Enqueue(t.Context(), tenantJobs(10, 100)...)
			must(t, err)
		}
		runWorker(t, client, r, queue.WorkerConfig{Queues: []string{"push", "mail"}})
		time.Sleep(3 * time.Second)
		started := make(map[string]int)
		for _, start := range r.all() {
			started[start.Queue]++
		}
		if started["push"] < 28 || started["mail"] < 28 {
			t.Errorf("%v in three seconds, want 30 of each", started)
		}
	})
}

// Nobody offers to a partition that does not have the policies yet: the rules of its tenants would be none.
func TestAPartitionWithoutPolicies(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		i, p := newInspector(t, client, "push"), queue.Policies{Partitions: 2}
		must(t, i.SetPolicies(t.Context(), p))
		client.Del(t.Context(), "wc:{push/0}:policies", "wc:{push/0}:meta", "wc:{push/1}:policies", "wc:{push/1}:meta")
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if receipts, err := newClient(t, client, "push").Enqueue(ctx, tenantJobs(4, 4)...); err == nil || !strings.Contains(err.Error(), "does not have the policies yet") {
			t.Error(receipts, err)
		}
		if stats, err := i.Stats(t.Context()); err != nil || stats.Offered != 0 {
			t.Errorf("%+v, %v", stats, err)
		}
		must(t, i.SetPolicies(t.Context(), p)) // puts them where they are missing
		_, err := newClient(t, client, "push").Enqueue(t.Context(), tenantJobs(4, 4)...)
		must(t, err)
	})
}

// before is a hook that does something before the first script that has so many keys.
type before struct {
	keys int
	do   func()
}

func (b *before) DialHook(next redis.DialHook) redis.DialHook { return next }

func (b *before) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (b *before) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if do := b.do; do != nil && strings.HasPrefix(cmd.Name(), "eval") && fmt.Sprint(cmd.Args()[2]) == fmt.Sprint(b.keys) {
			b.do = nil
			do()
		}
		return next(ctx, cmd)
	}
}

// A job that comes while somebody divides the queue is not left outside of the partitions: the queue is not divided then.
func TestAJobComesWhileTheQueueIsDivided(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		other := redis.NewClient(client.Options())
		defer other.Close()
		// The change that puts policies in force is the one with four keys: meta, notices, policies and history.
		client.AddHook(&before{4, func() {
			_, err := newClient(t, other, "push").Enqueue(t.Context(), tenantJobs(1, 1)...)
			must(t, err)
		}})
		if err := newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: 2}); !errors.Is(err, queue.ErrDivided) {
			t.Error(err)
		}
		stats, err := newInspector(t, client, "push").Stats(t.Context())
		if err != nil || stats.Waiting != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
	})
}

// Tenants get what their weights say of the rules of a divided queue, in whichever partitions they are: one partition has many of them, and
// another one few. One that has little to do does not wait for those that have much.
func TestWeightsAcrossPartitions(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		const rate, span = 400, 5 * time.Second
		p := queue.Policies{
			Partitions: 4, Queue: []throttle.Rule{throttle.Leak(rate, time.Second)},
			Default: "one", Policies: map[string]queue.Policy{"one": {}, "four": {Weight: 4}}, Tenants: map[string]string{},
		}
		for k := range 20 {
			if k%2 == 1 {
				p.Tenants[fmt.Sprint("school-", k)] = "four"
			}
		}
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), p))
		producer := newClient(t, client, "push")
		for range 4 {
			_, err := producer.Enqueue(t.Context(), tenantJobs(20, 2000)...)
			must(t, err)
		}
		var started starts
		r := &recorder{then: func(_ context.Context, info queue.Info) error {
			started.add(info.Tenant, info.Started)
			started.add("all", info.Started)
			return nil
		}}
		runWorker(t, client, r, queue.WorkerConfig{})
		time.Sleep(span)
		started.mu.Lock()
		defer started.mu.Unlock()
		if n, want := len(started.by["all"]), int(rate*span.Seconds()); n < want*99/100 || n > want*101/100 {
			t.Errorf("%d starts, want %d", n, want)
		}
		unit := rate * span.Seconds() / (10*1 + 10*4)
		for k := range 20 {
			want := unit
			if k%2 == 1 {
				want *= 4
			}
			if n := float64(len(started.by[fmt.Sprint("school-", k)])); n < want*0.95-2 || n > want*1.05+2 {
				t.Errorf("tenant %d has %v starts, want %v", k, n, want)
			}
		}
	})
}

// Each worker leads its part of the partitions, whoever has come first, and they stay where they are. What a worker has led that is gone
// the others lead, each its part.
func TestLeadersAreSpread(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: 12}))
		leading := func(m *prometheus.Registry) (n int) {
			families, err := m.Gather()
			must(t, err)
			for _, family := range families {
				if family.GetName() == "waterclock_leading" {
					n += int(family.GetMetric()[0].GetGauge().GetValue())
				}
			}
			return n
		}
		var all []*prometheus.Registry
		var stops []func()
		for range 3 {
			m := prometheus.NewRegistry()
			all = append(all, m)
			stops = append(stops, runWorker(t, client, new(recorder), queue.WorkerConfig{Registerer: m}))
			time.Sleep(2 * time.Second)
		}
		time.Sleep(30 * time.Second)
		leaders := func() (all string) {
			for k := range 12 {
				all += client.HGet(t.Context(), fmt.Sprintf("wc:{push/%d}:meta", k), "epoch").Val() + " "
			}
			return all
		}
		before := leaders()
		for k, m := range all {
			if n := leading(m); n != 4 {
				t.Errorf("worker %d leads %d partitions, want 4", k, n)
			}
		}
		time.Sleep(30 * time.Second)
		if after := leaders(); after != before || before == strings.Repeat(" ", 12) {
			t.Errorf("others lead after half a minute: %s, before: %s", after, before)
		}
		stops[0]()
		time.Sleep(30 * time.Second)
		for k, m := range all[1:] {
			if n := leading(m); n != 6 {
				t.Errorf("worker %d leads %d partitions, want 6", k+1, n)
			}
		}
	})
}

// Rules that count by periods since the epoch are exact over the partitions, too: by when handlers begin, up to 20 ms after a slot. Nearly all
// that they let start does.
func TestPeriodsOfADividedQueue(t *testing.T) {
	t.Parallel()
	const most, period = 60, time.Second
	for _, rule := range []throttle.Rule{throttle.FixedWindow(most, period), throttle.SlidingCounter(most, period, 4)} {
		t.Run(string(rule.Kind()), func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				must(t, newInspector(t, s.client, "push").SetPolicies(t.Context(), queue.Policies{Partitions: 4, Queue: []throttle.Rule{rule}}))
				_, err := newClient(t, s.client, "push").Enqueue(t.Context(), tenantJobs(20, 600)...)
				must(t, err)
				var started starts
				r := &recorder{then: func(context.Context, queue.Info) error {
					started.add("all", time.Now())
					return nil
				}}
				runWorker(t, s.client, r, queue.WorkerConfig{})
				redistest.Eventually(t, 30*time.Second, "five periods are used", func() bool { return started.of("all") >= 5*most })
				all := started.all()
				slices.SortFunc(all, time.Time.Compare)
				if rule.Kind() == throttle.KindFixedWindow {
					in := make(map[int64]int)
					for _, at := range all {
						in[at.UnixMicro()/period.Microseconds()]++
					}
					for number, n := range in {
						if n > most {
							t.Errorf("%d starts in period %d, want %d at most", n, number, most)
						}
					}
				} else if n := busiest(all, period*3/4); n > most { // a bucket leaves the sum at once
					t.Errorf("%d starts within %v, want %d at most", n, period*3/4, most)
				}
				if took := all[5*most-1].Sub(all[0]); took > 5*period && s.virtual || took > 10*period { // a busy machine loses instants
					t.Errorf("%d jobs took %v, want five periods", 5*most, took)
				}
			})
		})
	}
}

// A window by the calendar counts the jobs of all partitions, from midnight to midnight, and a warm-up lets as many of them start on each day as the
// window of that day says. The reason why jobs wait is the window of the day.
func TestDaysOfADividedQueue(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rule    throttle.Rule
		first   int // how many start on the first day, and on both
		both    int
		binding string
		next    time.Duration // when more start, behind the midnight between them; 0 if that is not exact
	}{
		{throttle.CalendarWindow(60, "day", "UTC"), 60, 120, "window 60/day UTC", 24 * time.Hour},
		{throttle.Warmup("2000-01-01", "1:60/24h,2:150/24h,3:200/24h", "UTC"), 60, 150, "window 150/24h (warm-up, day 2 of 3)", 0},
		{throttle.Warmup("2000-01-01", "1:60/day,2:90/day,3:200/day", "UTC"), 60, 150, "window 90/day UTC (warm-up, day 2 of 3)", 24 * time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			inspector := newInspector(t, client, "push")
			must(t, inspector.SetPolicies(t.Context(), queue.Policies{Partitions: 4, Queue: []throttle.Rule{c.rule}}))
			time.Sleep(24*time.Hour - 5*time.Second) // the bubble's clock begins at midnight
			enqueue(t, client, tenantJobs(20, 200)...)
			var started starts
			r := &recorder{then: func(context.Context, queue.Info) error {
				started.add("all", time.Now())
				return nil
			}}
			runWorker(t, client, r, queue.WorkerConfig{})
			for day, want := range []int{c.first, c.both} {
				time.Sleep(4 * time.Second)
				if n := started.of("all"); n != want {
					t.Errorf("%v: day %d: %d jobs have started, want %d", c.rule, day, n, want)
				}
			}
			waiting := int64(0)
			for k := range 20 {
				e, err := inspector.Explain(t.Context(), fmt.Sprint("school-", k), "teacher")
				must(t, err)
				if waiting += e.Waiting; e.Waiting == 0 {
					continue
				}
				next := e.Now.Truncate(24 * time.Hour).Add(c.next)
				if e.Binding == nil || e.Binding.Rule != c.binding || c.next > 0 && !e.Binding.When.Equal(next) {
					t.Errorf("%v: %+v; want the next ones at %v by %s", c.rule, e.Binding, next, c.binding)
				}
			}
			if want := int64(200 - c.both); waiting != want {
				t.Errorf("%v: %d jobs wait, want %d", c.rule, waiting, want)
			}
		})
	}
}
