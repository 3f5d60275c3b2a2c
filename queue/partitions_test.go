package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
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
