package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Rules that drop are exact over partitions: as many jobs start as they admit, all others are dropped, and those that they are not about
// notice nothing. A shadow rule counts what it would have kept.
func TestADividedQueueDrops(t *testing.T) {
	t.Parallel()
	const most, offered = 30, 400
	window := throttle.Window(most, time.Minute).OrDrop()
	for name, policies := range map[string]queue.Policies{
		"the queue": {Queue: []throttle.Rule{window, throttle.Leak(1, time.Second).AsShadow()}},
		"a limit":   {Limits: map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{window, throttle.Leak(1, time.Second).AsShadow()}}}},
		"two limits": {Limits: map[string]queue.Limit{
			"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{window, throttle.Leak(1, time.Second).AsShadow()}},
			"all":    {Rules: []throttle.Rule{throttle.Leak(1000, time.Second)}},
		}},
		"beside one that defers": {Queue: []throttle.Rule{window, throttle.Leak(300, time.Second), throttle.Leak(1, time.Second).AsShadow()}},
	} {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				inspector := newInspector(t, s.client, "push")
				policies := policies
				policies.Partitions = 4
				must(t, inspector.SetPolicies(t.Context(), policies))
				client := newClient(t, s.client, "push")
				offer := func(n int) {
					all := tenantJobs(20, n)
					for k := range all {
						all[k].User, all[k].Keys = fmt.Sprint("teacher-", k), map[string]string{"domain": "gmail.com"}
					}
					_, err := client.Enqueue(t.Context(), all...)
					must(t, err)
				}
				offer(offered)
				runWorker(t, s.client, &recorder{}, queue.WorkerConfig{})
				settled := func(done, dropped int64) {
					t.Helper()
					var stats queue.Stats
					redistest.Eventually(t, 10*time.Second, "all jobs have started or were dropped", func() bool {
						var err error
						stats, err = inspector.Stats(t.Context())
						return err == nil && stats.Waiting+stats.Running == 0
					})
					lost := done - stats.Done // instants that a busy machine has not used
					if lost < 0 || lost > 2 || lost > 0 && s.virtual || stats.Reasons[queue.ReasonRule] != dropped+lost {
						t.Errorf("%d jobs have started and %v were dropped; want %d and %d refused", stats.Done, stats.Reasons, done, dropped)
					}
					if n := stats.Shadowed["leak 1/s"] + stats.Shadowed["domain: leak 1/s"]; n < done-5 || n > done && s.virtual { // of a job that was too late for its worker, and came back, it counts twice
						t.Errorf("%v would have been kept, of %d", stats.Shadowed, done)
					}
				}
				settled(most, offered-most)
				must(t, inspector.Pause(t.Context(), queue.Pause{For: time.Hour, Scope: queue.ScopeTenant, Tenant: "school-0"}))
				offer(1)
				e, err := inspector.Explain(t.Context(), "school-0", "teacher-0")
				must(t, err)
				known := false
				for _, r := range e.Rules {
					known = known || r.Drops
					if r.Drops && (r.Rule != "window 30/1m" || r.Remaining != 0 || !r.When.After(e.Now)) {
						t.Errorf("%+v; want a window that is used up", r)
					}
				}
				if !known {
					t.Errorf("%+v; want one that drops", e.Rules)
				}
				_, err = inspector.Purge(t.Context(), "school-0")
				must(t, err)
				must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school-0"}))
				if !s.virtual {
					return
				}
				time.Sleep(time.Minute)
				offer(10)
				settled(most+10, offered-most)
			})
		})
	}
}

// With count_dropped a flood that goes on stays out, whoever has refused its jobs, and once it is over jobs start again: with partitions as
// without.
func TestADividedQueueCountsWhatItDrops(t *testing.T) {
	t.Parallel()
	for _, partitions := range []int{1, 4} {
		t.Run(fmt.Sprint(partitions, " partitions"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				inspector := newInspector(t, client, "push")
				must(t, inspector.SetPolicies(t.Context(), queue.Policies{
					Partitions: partitions, Queue: []throttle.Rule{throttle.Window(30, 10*time.Second).OrDrop().CountingDropped()},
					Default: "p", Policies: map[string]queue.Policy{"p": {}, "none": {Tenant: []throttle.Rule{throttle.Window(1, 24*time.Hour).OrDrop()}}},
					Tenants: map[string]string{"spent": "none"},
				}))
				runWorker(t, client, &recorder{}, queue.WorkerConfig{})
				offer := func(all ...queue.Job) {
					t.Helper()
					_, err := newClient(t, client, "push").Enqueue(t.Context(), all...)
					must(t, err)
				}
				done := func(phase string, want int64) {
					t.Helper()
					time.Sleep(2 * time.Second)
					stats, err := inspector.Stats(t.Context())
					must(t, err)
					if stats.Done != want || stats.Waiting+stats.Running > 0 {
						t.Errorf("%s: %d have started, and %d wait; want %d", phase, stats.Done, stats.Waiting+stats.Running, want)
					}
				}
				offer(tenantJobs(20, 30)...)
				done("as many as may start", 30)
				for range 20 { // longer than the window
					offer(tenantJobs(20, 40)...)
					time.Sleep(time.Second)
				}
				done("a flood", 30)
				time.Sleep(10 * time.Second)
				offer(tenantJobs(20, 10)...)
				done("behind it", 40)
				time.Sleep(10 * time.Second)
				refused := make([]queue.Job, 31)
				for k := range refused {
					refused[k] = queue.Job{Tenant: "spent", User: fmt.Sprint(k), Type: "push"}
				}
				offer(refused...)
				done("refused by the rule of a tenant, but for one", 41)
				offer(tenantJobs(20, 10)...)
				done("behind those", 41)
			})
		})
	}
}
