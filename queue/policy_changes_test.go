package queue_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A loosened rule governs every lane, however many wait.
func TestPoliciesAreLiveInManyLanes(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		const tenants, users = 3, 700 // more lanes than are looked at in one step
		hourly := func(n int) queue.Policies {
			return policies(queue.Policy{User: []throttle.Rule{throttle.Window(n, time.Hour)}})
		}
		setPolicies(t, s.client, hourly(1))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		for tenant := range tenants {
			var all []queue.Job
			for user := range users {
				all = append(all, jobs(fmt.Sprint("school-", tenant), fmt.Sprint(user), 2)...)
			}
			enqueue(t, s.client, all...)
		}
		s.eventually(t, "the first of each has started", func() bool { return got.count() == tenants*users })
		if s.virtual {
			time.Sleep(2 * time.Minute)
		}
		setPolicies(t, s.client, hourly(2))
		s.eventually(t, "the second of each has started", func() bool { return got.count() == 2*tenants*users })
	})
}

// A backlog that is full makes room from the moment in which its policy says so; and what
// it remembers of that does not spoil what comes after.
func TestOverflowIsLive(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		backlog := func(capacity int, dropOldest bool) queue.Policies {
			return policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, time.Hour)}, Capacity: capacity, DropOldest: dropOldest})
		}
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(100 * time.Hour)}))
		setPolicies(t, s.client, backlog(2, false))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		offer := func(id string, want queue.Status) {
			t.Helper()
			if r := enqueue(t, s.client, named(id, id))[0]; r.Status != want {
				t.Errorf("%s is %s as %s, want it %s", id, r.Status, r.Reason, want)
			}
		}
		waits := func(want string) {
			t.Helper()
			s.eventually(t, want+" wait", func() bool {
				var waiting []string
				for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
					if job, known, err := inspector.ExplainJob(t.Context(), id); err == nil && known && job.State == "waiting" {
						waiting = append(waiting, id)
					}
				}
				return strings.Join(waiting, " ") == want
			})
		}
		offer("a", queue.Accepted)
		offer("b", queue.Accepted)
		offer("c", queue.Dropped)
		setPolicies(t, s.client, backlog(2, true))
		offer("c", queue.Accepted)
		waits("b c")
		setPolicies(t, s.client, backlog(2, false))
		offer("d", queue.Dropped)
		setPolicies(t, s.client, backlog(0, true))
		offer("d", queue.Accepted)
		setPolicies(t, s.client, backlog(2, true)) // smaller than what waits
		offer("e", queue.Accepted)
		waits("d e")
		n, err := inspector.Purge(t.Context(), "school")
		must(t, err)
		offer("f", queue.Accepted)
		waits("f")
		if n != 2 {
			t.Errorf("purged %d, want 2", n)
		}
	})
}

// A tenant that drops its oldest again after a time in which it did not refuses nobody for
// jobs that are long gone.
func TestDroppingTheOldestAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		setPolicies(t, client, policies(queue.Policy{Capacity: 10_000, DropOldest: true, Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}}))
		for user := range 1000 {
			enqueue(t, client, jobs("school", fmt.Sprint(user), 1)...)
		}
		setPolicies(t, client, policies(queue.Policy{Capacity: 10_000}))
		time.Sleep(time.Minute)
		slow := []throttle.Rule{throttle.Leak(1, time.Hour)}
		setPolicies(t, client, policies(queue.Policy{Capacity: 5, DropOldest: true, Tenant: slow}))
		for user := range 100 {
			if r := enqueue(t, client, jobs("school", fmt.Sprint(user), 1)...)[0]; r.Status != queue.Accepted {
				t.Fatalf("job %d: %+v", user, r)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if s := stats(t, client); s.Waiting != 5 || got.count() != 1001 {
			t.Errorf("%+v, %d starts", s, got.count())
		}
	})
}

// A lane whose first job gets cheaper, or leaves, is looked at again at once.
func TestACheaperJobStartsAtOnce(t *testing.T) {
	t.Parallel()
	ways := map[string]struct {
		policy queue.Policy
		jobs   []queue.Job // after the one that costs too much
		starts int
	}{
		"collapsed":   {queue.Policy{}, []queue.Job{named("cheap", "u", news)}, 1},
		"made room":   {queue.Policy{Capacity: 1, DropOldest: true}, []queue.Job{named("cheap", "u")}, 1},
		"room of two": {queue.Policy{Capacity: 2, DropOldest: true}, []queue.Job{named("cheap", "u"), named("too", "u")}, 2},
		"expired":     {queue.Policy{MaxWait: 5 * time.Minute}, []queue.Job{named("cheap", "u")}, 1},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := stage{redistest.Mini(t), time.Second, true}
				way.policy.User = []throttle.Rule{throttle.Window(10, time.Hour)}
				setPolicies(t, s.client, policies(way.policy))
				var got recorder
				runWorker(t, s.client, &got, queue.WorkerConfig{})
				for range 3 {
					enqueue(t, s.client, named("", "u"))
					time.Sleep(time.Second)
				}
				enqueue(t, s.client, named("dear", "u", news, cost(8)))
				time.Sleep(time.Second)
				for _, job := range way.jobs {
					enqueue(t, s.client, job)
				}
				begin := time.Now()
				time.Sleep(6 * time.Minute)
				starts := got.all()[3:]
				if len(starts) != way.starts {
					t.Fatalf("%d starts, want %d: 3 of 10 are used", len(starts), way.starts)
				}
				for _, start := range starts {
					if late := start.Started.Sub(begin); late > time.Second {
						t.Errorf("%s started %v later", start.ID, late)
					}
				}
			})
		})
	}
}

// A flood of refused jobs leaves the records of others' dropped ones alone.
func TestRefusalsHideNoDrops(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		setPolicies(t, client, policies(queue.Policy{Capacity: 1}))
		quiet := named("mine", "u")
		quiet.Tenant = "quiet"
		enqueue(t, client, quiet)
		n, err := newInspector(t, client, "push").Purge(t.Context(), "quiet")
		must(t, err)
		enqueue(t, client, jobs("noisy", "u", 12_000)...)
		if drops, refused := client.XLen(t.Context(), "wc:{push}:drops").Val(), client.XLen(t.Context(), "wc:{push}:refused").Val(); n != 1 || drops != 1 || refused > 11_000 {
			t.Errorf("%d purged; %d drops and %d refusals are kept", n, drops, refused)
		}
		drops, err := newInspector(t, client, "push").Drops(t.Context(), 20_000)
		must(t, err)
		if last := drops[len(drops)-1]; last.ID != "mine" || last.Reason != queue.ReasonPurged {
			t.Errorf("the oldest of %d drops is %+v", len(drops), last)
		}
	})
}

// What tenants leave behind that have nothing to do expires; pauses too.
func TestIdleTenantsAreForgotten(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}, User: []throttle.Rule{throttle.Window(5, time.Minute)}}))
		var got recorder
		stop := runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Second)
		const tenants = 300
		for i := range tenants {
			enqueue(t, client, jobs(fmt.Sprint("tenant-", i), "u", 2)...)
		}
		must(t, newInspector(t, client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "tenant-1", Until: time.Now().Add(time.Minute)}))
		time.Sleep(2 * time.Minute)
		stop()
		time.Sleep(25 * time.Hour)
		if got.count() != 2*tenants {
			t.Fatalf("%d starts", got.count())
		}
		left := client.Keys(t.Context(), "*tenant-*").Val()
		if members := client.ZCard(t.Context(), "wc:{push}:tenants").Val(); len(left) > 0 || members > 0 {
			t.Errorf("%d keys are left, and %d tenants in the index: %q", len(left), members, left[:min(3, len(left))])
		}
	})
}

// A pause that has ended is forgotten, and with it what offers do for the sake of pauses.
func TestEndedPausesAreForgotten(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector, now := newInspector(t, s.client, "push"), time.Now()
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: now.Add(s.units(5))}))
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: now.Add(s.units(10))}))
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "school", User: "teacher", Until: now.Add(s.units(15))}))
		enqueue(t, s.client, jobs("school", "teacher", 1)...)
		if s.virtual {
			s.eventually(t, "the first is forgotten", func() bool { return s.client.ZCard(t.Context(), "wc:{push}:paused").Val() == 2 })
			if got.count() > 0 {
				t.Error("a paused job has started")
			}
		}
		s.eventually(t, "all are forgotten", func() bool { return s.client.Exists(t.Context(), "wc:{push}:paused").Val() == 0 })
		if flag := s.client.HGet(t.Context(), "wc:{push}:meta", "paused").Val(); flag != "0" {
			t.Errorf("offers still look for pauses: %q", flag)
		}
		s.eventually(t, "the job has started", func() bool { return got.count() == 1 })
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(s.units(3))}))
		paused := time.Now()
		enqueue(t, s.client, jobs("school", "teacher", 1)...)
		s.eventually(t, "the next has started", func() bool { return got.count() == 2 })
		if after := time.Since(paused); after < s.units(2) {
			t.Errorf("it started after %v, in a pause", after)
		}
	})
}

// Numbers beyond all bounds make nobody look without end.
func TestAbsurdRulesCostNothing(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	client := redistest.Start(t).Client(t)
	setPolicies(t, client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, 366*24*time.Hour)}}))
	enqueue(t, client, named("", "u", cost(1_000_000)), named("", "u", cost(1_000_000)), named("", "u"), named("", "v"))
	var count redistest.Counter
	mine := redis.NewClient(client.Options())
	defer mine.Close()
	mine.AddHook(&count)
	var got recorder
	stop := runWorker(t, hooked{mine}, &got, queue.WorkerConfig{})
	redistest.Eventually(t, 5*time.Second, "one has started", func() bool { return got.count() == 1 })
	before := count.Count()
	begin := time.Now()
	redistest.Eventually(t, 5*time.Second, "a second has passed", func() bool { return time.Since(begin) > time.Second })
	if n := count.Count() - before; n > 40 || got.count() != 1 {
		t.Errorf("%d commands in a second, %d starts", n, got.count())
	}
	stop()
}

// Clients and inspectors are cheap: docs show them made for one call.
func TestClientsAreCheap(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	allocations := testing.AllocsPerRun(100, func() {
		if _, err := queue.NewClient(rdb, "push"); err != nil {
			t.Error(err)
		}
		if _, err := queue.NewInspector(rdb, "push"); err != nil {
			t.Error(err)
		}
	})
	if allocations > 60 {
		t.Errorf("%v allocations", allocations)
	}
}

// A worker's queues are checked before anything runs.
func TestQueuesOfAWorker(t *testing.T) {
	t.Parallel()
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	for want, queues := range map[string][]string{
		"Queues is empty": nil, `names "a" twice`: {"a", "b", "a"}, `"a}b"`: {"a}b"}, `""`: {""}, `"a b"`: {"ok", "a b"},
	} {
		if _, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: queues}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", queues, err)
		}
	}
}
