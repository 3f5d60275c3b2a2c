package queue_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Values that mean nothing, or would overflow further on, are refused with the field.
func TestBoundsOfAJob(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*queue.Job){
		"max attempts -1; from 1 to 1000000000, or 0 for 26": func(j *queue.Job) { j.MaxAttempts = -1 },
		"max attempts 9223372036854775807":                   func(j *queue.Job) { j.MaxAttempts = math.MaxInt },
		"cost 1000001":                                       func(j *queue.Job) { j.Cost = 1_000_001 },
		"priority 2; Low, Normal or High":                    func(j *queue.Job) { j.Priority = 2 },
		"priority -2":                                        func(j *queue.Job) { j.Priority = -2 },
		"timeout 8785h0m0s; at most 8784h0m0s":               func(j *queue.Job) { j.Timeout = 8785 * time.Hour },
		"payload has 1048577 bytes; at most 1048576":         func(j *queue.Job) { j.Payload = make([]byte, 1<<20+1) },
		"headers have 65537 bytes; at most 65536":            func(j *queue.Job) { j.Headers = map[string]string{"x": strings.Repeat("y", 64<<10)} },
		"not_before is in the year 2201; at most 2200":       func(j *queue.Job) { j.NotBefore = time.Date(2201, 1, 1, 0, 0, 0, 0, time.UTC) },
		"not_before is in the year 36812; at most 2200":      func(j *queue.Job) { j.NotBefore = time.Unix(1<<40, 0).UTC() },
		"deadline is in the year 294247":                     func(j *queue.Job) { j.StartBy = time.UnixMicro(math.MaxInt64) },
		"deadline is in the year 1960":                       func(j *queue.Job) { j.StartBy = time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC) },
		"finish_by is in the year 294247":                    func(j *queue.Job) { j.FinishBy = time.UnixMicro(math.MaxInt64) },
		"finish_by is in the year 1969":                      func(j *queue.Job) { j.FinishBy = time.Unix(-1, 0) },
	}
	for want, spoil := range tests {
		job := named("", "u")
		if err := job.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&job)
		if err := job.Validate(); !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// The largest job that there may be comes out of its lane as it went in, and runs.
func TestTheLargestJob(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		name := strings.Repeat("n", 1024)
		far := time.Date(2200, 12, 31, 0, 0, 0, 0, time.UTC)
		job := queue.Job{
			ID: name, Tenant: name, User: name, Type: name, CollapseKey: name, Payload: bytes.Repeat([]byte("\xff"), 1<<20),
			Headers: map[string]string{"x": strings.Repeat("y", 64<<10-1)}, Cost: 1_000_000, StartBy: far, FinishBy: far,
			Priority: queue.Low, MaxAttempts: 1_000_000_000, Timeout: 8784 * time.Hour,
		}
		if r := enqueue(t, s.client, job, named("", "u"))[0]; r.Status != queue.Accepted {
			t.Fatalf("%+v", r)
		}
		lane, err := inspector.Lane(t.Context(), name, name, 0, 10)
		must(t, err)
		got := lane[0].Job
		if got.ID != name || got.Type != name || !bytes.Equal(got.Payload, job.Payload) || got.Headers["x"] != job.Headers["x"] || got.Cost != job.Cost ||
			!got.StartBy.Equal(far) || !got.FinishBy.Equal(far) || got.Priority != queue.Low || got.MaxAttempts != job.MaxAttempts || got.Timeout != job.Timeout {
			t.Errorf("%s of %d bytes", got.Type[:9], len(got.Payload))
		}
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
		var ran recorder
		runWorker(t, s.client, &ran, queue.WorkerConfig{})
		s.eventually(t, "both have run", func() bool { return stats(t, s.client).Done == 2 })
		if left, err := s.client.Keys(t.Context(), "wc:{push}:body:*").Result(); err != nil || len(left) != 0 {
			t.Errorf("payloads that are left: %q, %v", left, err)
		}
	})
}

// What is kept apart of a job goes with it, whatever becomes of it.
func TestPayloadsAreNotLeftBehind(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		big := func(j *queue.Job) { j.Payload = make([]byte, 5<<10) }
		setPolicies(t, s.client, policies(queue.Policy{Capacity: 3, User: []throttle.Rule{throttle.Window(1, time.Hour)}}))
		receipts := enqueue(t, s.client, named("a", "u", big), named("old", "u", big, news), named("new", "u", big, news), named("a", "u", big),
			named("huge", "u", big, cost(2)), named("late", "u", big, deadline(time.Now().Add(-time.Hour))), named("c", "u", big), named("full", "u", big))
		var got []string
		for _, r := range receipts {
			got = append(got, string(r.Status)+string(r.Reason))
		}
		if want := "accepted accepted replaced duplicate droppedimpossible droppedexpired accepted droppedfull"; strings.Join(got, " ") != want {
			t.Errorf("got %q, want %q", got, want)
		}
		if kept := s.client.Keys(t.Context(), "wc:{push}:body:*").Val(); len(kept) != 3 {
			t.Errorf("%d payloads are kept apart, want 3", len(kept))
		}
		checkState(t, inspector, "old", "dropped")
		n, err := inspector.Purge(t.Context(), "school")
		if left := s.client.Keys(t.Context(), "wc:{push}:body:*").Val(); n != 3 || err != nil || len(left) != 0 {
			t.Errorf("purged %d, %v; left %q", n, err, left)
		}
	})
}

// A client obeys new policies with its next offer, and never offers under others.
func TestClientsLearnOfNewPolicies(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := newClient(t, s.client, "push")
		for i, capacity := range []int{0, 1, 0, 1} {
			setPolicies(t, s.client, policies(queue.Policy{Capacity: capacity}))
			receipts, err := client.Enqueue(t.Context(), named("", "u"), named("", "u"))
			must(t, err)
			want := map[int]queue.Status{0: queue.Accepted, 1: queue.Dropped}[capacity]
			if receipts[1].Status != want {
				t.Errorf("offer %d: %+v, want it %s", i+1, receipts[1], want)
			}
		}
		// Policies that are lost are no reason to do without.
		before := stats(t, s.client)
		must(t, s.client.Del(t.Context(), "wc:{push}:policies").Err())
		for _, c := range []*queue.Client{client, newClient(t, s.client, "push")} {
			_, err := c.Enqueue(t.Context(), named("", "u"))
			if c != client && (err == nil || !strings.Contains(err.Error(), "policies")) {
				t.Errorf("offered without policies: %v", err)
			}
		}
		if after := stats(t, s.client); after.Offered > before.Offered+1 {
			t.Errorf("%d jobs offered without policies", after.Offered-before.Offered)
		}
	})
}

// max_wait counts from when a job may start: one for tomorrow has not waited yet.
func TestMaxWaitCountsFromNotBefore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{MaxWait: 15 * time.Minute}))
		tomorrow := time.Now().Add(24 * time.Hour)
		receipts := enqueue(t, client, named("ok", "u", notBefore(tomorrow)), named("own", "u", notBefore(tomorrow), deadline(tomorrow.Add(-time.Second))))
		if receipts[0].Status != queue.Accepted || !receipts[0].Start.Equal(tomorrow) || receipts[1].Reason != queue.ReasonExpired {
			t.Errorf("%+v", receipts)
		}
		if s := stats(t, client); s.Later != 1 || s.Waiting != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The start that is told of a job in line is its own, and not that of its user's next.
func TestExplainJobEstimatesItsOwnStart(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{User: []throttle.Rule{throttle.Leak(1, time.Minute)}}))
		inspector := newInspector(t, s.client, "push")
		for i := range 6 {
			enqueue(t, s.client, named(fmt.Sprint("job-", i), "u"))
		}
		enqueue(t, s.client, named("high", "u", high))
		for id, want := range map[string]int{"high": 0, "job-0": 1, "job-5": 6} {
			job, known, err := inspector.ExplainJob(t.Context(), id)
			must(t, err)
			if got := job.Start.Sub(job.Now); !known || got != time.Duration(want)*time.Minute {
				t.Errorf("%s starts in %v, want %d minutes: %+v", id, got, want, job)
			}
		}
		enqueue(t, s.client, named("later", "u", notBefore(time.Now().Add(time.Hour))))
		if job, _, err := inspector.ExplainJob(t.Context(), "later"); err != nil || job.State != "waiting" || job.Place != 0 || !job.Start.IsZero() {
			t.Errorf("%+v, %v", job, err)
		}
	})
}

// A name that is no entry of a dead job is refused before anything happens.
func TestReviveRefusesWhatIsNoEntry(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		got := recorder{then: func(context.Context, queue.Info) error { return asynq.SkipRetry }}
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{})
		enqueue(t, s.client, named("a", "u"))
		s.eventually(t, "it is dead", func() bool { return stats(t, s.client).Dead == 1 })
		stop()
		dead, err := inspector.Dead(t.Context(), "", 1)
		must(t, err)
		if dead[0].Type != "push" || dead[0].Attempts != 1 {
			t.Errorf("%+v", dead[0])
		}
		for _, bad := range []string{"oops", dead[0].ID, "", "-", "1-", dead[0].Entry + " "} {
			if n, err := inspector.Revive(t.Context(), dead[0].Entry, bad); n != 0 || !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), "number 2 of 2") {
				t.Errorf("%q: %d, %v", bad, n, err)
			}
		}
		if s := stats(t, s.client); s.Waiting != 0 || s.Dead != 1 {
			t.Errorf("%+v", s)
		}
		if n, err := inspector.Revive(t.Context(), dead[0].Entry); n != 1 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if tenants, _, err := inspector.Tenants(t.Context(), 0, 10); err != nil || len(tenants) != 1 || tenants[0].Waiting != 1 {
			t.Errorf("%+v, %v", tenants, err)
		}
	})
}

// Jobs of different queues, and of one queue at different times, are different tasks of
// the fleet, even under one ID.
func TestForwardedJobsNeverMeet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		fleet := asynq.NewClientFromRedisClient(client)
		runWorker(t, client, queue.Forward(fleet, "fleet"), queue.WorkerConfig{Queues: []string{"push", "mail"}})
		for range 2 {
			for _, name := range []string{"push", "mail"} {
				for _, id := range []string{"", "order-17", "\xff"} {
					job := named(id, "u")
					job.Tenant = "\xfe"
					_, err := newClient(t, client, name).Enqueue(t.Context(), job)
					must(t, err)
				}
			}
			time.Sleep(5 * time.Second)
			for _, key := range client.Keys(t.Context(), "wc:*:id:*").Val() { // a day later
				must(t, client.Del(t.Context(), key).Err())
			}
		}
		tasks, err := asynq.NewInspectorFromRedisClient(client).ListPendingTasks("fleet", asynq.PageSize(100))
		must(t, err)
		if len(tasks) != 12 {
			t.Errorf("%d tasks have reached the fleet, want 12", len(tasks))
		}
	})
}
