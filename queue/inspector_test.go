package queue_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func TestStats(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "school", User: "waits", Until: time.Now().Add(time.Hour)}))
		release := make(chan struct{})
		got := recorder{then: func(ctx context.Context, info queue.Info) error {
			<-release
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		enqueue(t, s.client, named("", "runs"), named("", "waits"), named("", "later", notBefore(time.Now().Add(time.Hour))), named("", "waits"))
		s.eventually(t, "one runs", func() bool { return got.count() == 1 })
		all := stats(t, s.client)
		if all.Running != 1 || all.Waiting != 2 || all.Later != 1 || all.Counters != (queue.Counters{Offered: 4, Started: 1}) {
			t.Errorf("queue: %+v", all)
		}
		tenant, err := inspector.Tenant(t.Context(), "school")
		if err != nil || tenant.Waiting != 2 || tenant.Counters != (queue.Counters{Offered: 4, Started: 1}) || tenant.Next.IsZero() {
			t.Errorf("tenant: %+v, %v", tenant, err)
		}
		if nobody, err := inspector.Tenant(t.Context(), "nobody"); err != nil || nobody != (queue.TenantStats{Tenant: "nobody"}) {
			t.Errorf("a tenant that was never heard of: %+v, %v", nobody, err)
		}
		close(release)
		s.eventually(t, "it is done", func() bool { return stats(t, s.client).Done == 1 })
	})
}

// Tenants come in the order in which they are due, a page at a time.
func TestTenantsByThePage(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		for _, tenant := range []string{"e", "d: {}", "c", "b", "a"} {
			if status := straight(t, s, queue.Job{Tenant: tenant, User: "u", Type: "push"}); status != queue.Accepted {
				t.Fatal(status)
			}
		}
		inspector := newInspector(t, s.client, "push")
		for from, want := range map[int]string{0: "e, d: {}", 2: "c, b", 4: "a", 6: ""} {
			page, _, err := inspector.Tenants(t.Context(), from, 2)
			must(t, err)
			var names []string
			for _, tenant := range page {
				names = append(names, tenant.Tenant)
				if tenant.Waiting != 1 || tenant.Offered != 1 || tenant.Next.IsZero() {
					t.Errorf("%+v", tenant)
				}
			}
			if got := strings.Join(names, ", "); got != want {
				t.Errorf("from %d: %s, want %s", from, got, want)
			}
		}
	})
}

// A lane comes in its order, a page of each priority at a time, folded jobs unfolded.
func TestLaneByThePage(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		enqueue(t, s.client, named("n1", "u"), named("n2", "u", news), named("n3", "u"), named("l1", "u", low), named("h1", "u", high), named("h2", "u", high))
		inspector := newInspector(t, s.client, "push")
		for from, want := range map[int]string{0: "h1.1 h2.2 n1.1 n2.2 l1.1", 2: "n3.3", 3: ""} {
			lane, err := inspector.Lane(t.Context(), "school", "u", from, 2)
			must(t, err)
			var jobs []string
			for _, job := range lane {
				jobs = append(jobs, fmt.Sprint(job.ID, ".", job.Place))
				if job.Attempt != 1 || time.Since(job.Offered).Abs() > time.Minute {
					t.Errorf("%+v", job)
				}
			}
			if got := strings.Join(jobs, " "); got != want {
				t.Errorf("from %d: %s, want %s", from, got, want)
			}
		}
	})
}

// A limit is blamed for the time in which it held its queue, tenant or user back, once, however many
// jobs wait, and however long the next one has waited for something else.
func TestHeldBackOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	crowd := func(tenants, users, each int) (all []queue.Job) {
		for n := range each {
			for tenant := range tenants {
				for user := range users {
					job := named("", fmt.Sprint("user", user))
					job.Tenant, job.ID = fmt.Sprint("tenant", tenant), fmt.Sprint(tenant, user, n)
					all = append(all, job)
				}
			}
		}
		return all
	}
	const s = time.Second
	tests := map[string]struct {
		policies queue.Policies
		offered  []queue.Job
		takes    time.Duration
		want     map[string]time.Duration
	}{
		"a tenant's leak under the queue's": {
			queue.Policies{Queue: []throttle.Rule{throttle.Leak(5000, s)}, Default: "standard", Policies: map[string]queue.Policy{"standard": {Tenant: []throttle.Rule{throttle.Leak(10, s)}}}},
			crowd(2, 10, 10), 0, map[string]time.Duration{"leak 10/s": 2 * 9900 * time.Millisecond},
		},
		"the queue's leak over the tenants'": {
			queue.Policies{Queue: []throttle.Rule{throttle.Leak(10, s)}, Default: "standard", Policies: map[string]queue.Policy{"standard": {Tenant: []throttle.Rule{throttle.Leak(1000, s)}}}},
			crowd(2, 10, 10), 0, map[string]time.Duration{"leak 10/s": 19900 * time.Millisecond},
		},
		"windows of users": {
			policies(queue.Policy{User: []throttle.Rule{throttle.Window(5, time.Minute)}}), crowd(1, 3, 10), 0, map[string]time.Duration{"window 5/1m": 3 * time.Minute},
		},
		"a concurrency limit": {
			policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 1}}), crowd(1, 5, 1), 10 * s, map[string]time.Duration{"concurrency 1": 40 * s},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, test.policies)
				got := recorder{then: func(context.Context, queue.Info) error { time.Sleep(test.takes); return nil }}
				runWorker(t, client, &got, queue.WorkerConfig{})
				time.Sleep(s)
				enqueue(t, client, test.offered...)
				time.Sleep(3 * time.Minute)
				blocked := stats(t, client).Blocked
				for rule, d := range blocked {
					if off := (d - test.want[rule]).Abs(); off > test.want[rule]/100+20*time.Millisecond {
						t.Errorf("%s: %v, want %v", rule, d, test.want[rule])
					}
				}
				if n := got.count(); n != len(test.offered) || len(blocked) == 0 {
					t.Errorf("%d of %d have started; blocked %v", n, len(test.offered), blocked)
				}
			})
		})
	}
}

// What a job has waited for is put down to the rule, or the pause, that bound it.
func TestWaitsAreAttributed(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	tests := map[string]struct {
		policy func(s stage) queue.Policy
		users  []string
		pause  int // units, negative to begin before the offer
		rule   func(s stage) string
		waited int // units, at least
	}{
		"leak": {func(s stage) queue.Policy { return queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, s.units(5))}} }, []string{"a", "b", "c"}, 0,
			func(s stage) string { return throttle.Leak(1, s.units(5)).String() }, 9},
		"window, beside a leak": {func(s stage) queue.Policy {
			return queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1000, time.Second)}, User: []throttle.Rule{throttle.Window(1, s.units(5))}}
		}, []string{"a", "a", "a"}, 0, func(s stage) string { return throttle.Window(1, s.units(5)).String() }, 9},
		"spacing, beside a window": {func(s stage) queue.Policy {
			return queue.Policy{User: []throttle.Rule{throttle.Window(2, s.unit), throttle.Spacing(s.units(5))}}
		}, []string{"a", "a", "a"}, 0, func(s stage) string { return throttle.Spacing(s.units(5)).String() }, 9},
		"pause": {func(stage) queue.Policy { return queue.Policy{} }, []string{"a"}, 10, func(stage) string { return "paused" }, 9},
		"pause before the offer, beside a leak": {func(s stage) queue.Policy {
			return queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, s.unit)}}
		}, []string{"a"}, -10, func(stage) string { return "paused" }, 9},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				var batch []queue.Job
				for _, user := range test.users {
					batch = append(batch, named("", user))
				}
				var until time.Time
				pause := func() {
					until = time.Now().Add(s.units(max(test.pause, -test.pause)))
					must(t, newInspector(t, s.client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: until}))
				}
				want := s.units(test.waited)
				var blocked map[string]time.Duration
				var sum, waited time.Duration
				// What holds a job that was late is not counted again.
				s.onTime(t, func(metrics prometheus.Registerer) []string {
					sum, waited = 0, 0
					setPolicies(t, s.client, policies(test.policy(s)))
					if test.pause < 0 {
						pause()
					}
					enqueue(t, s.client, batch...)
					if test.pause > 0 {
						pause()
					} else if test.pause < 0 { // a busy machine takes its time to offer
						want = min(s.units(test.waited), time.Until(until))
					}
					var got recorder
					stop := runWorker(t, s.client, &got, queue.WorkerConfig{Registerer: metrics})
					s.eventually(t, "all has ended", ended(t, s.client, int64(len(batch))))
					blocked = stats(t, s.client).Blocked
					stop()
					for _, d := range blocked {
						sum += d
					}
					for _, started := range got.all() {
						waited += started.Waited
					}
					return nil
				})
				if sum > waited {
					t.Errorf("blocked for %v, and all waited for %v", sum, waited)
				}
				if own := blocked[test.rule(s)]; own < want || sum-own > own/10 {
					t.Errorf("blocked: %v; want at least %v by %s, and hardly any other", blocked, want, test.rule(s))
				}
			})
		})
	}
}
