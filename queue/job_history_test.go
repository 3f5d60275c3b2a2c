package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// The history of a job says when it was offered, what each attempt waited for, and how it ended.
func TestHistoryOfAJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		setPolicies(t, client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{
			"p": {Tenant: []throttle.Rule{throttle.Leak(1, time.Second)}},
		}})
		stop := runWorker(t, client, &recorder{then: func(ctx context.Context, info queue.Info) error {
			time.Sleep(100 * time.Millisecond)
			switch {
			case info.ID == "j3" && info.Attempt == 1:
				return queue.Retry{After: 20 * time.Second, Cause: errors.New("status 503: try later")}
			case info.ID == "dies":
				return fmt.Errorf("no such device: %w", asynq.SkipRetry)
			case info.ID == "runs" && info.Waited > 30*time.Second:
				select {
				case <-ctx.Done():
				case <-time.After(time.Hour):
				}
			case strings.Contains("pauses runs", info.ID) && info.Waited < 30*time.Second:
				return queue.Pause{For: time.Minute, Cause: errors.New("429")}
			}
			return nil
		}}, queue.WorkerConfig{})
		defer stop()
		time.Sleep(time.Second)
		begin := time.Now()
		var offered []queue.Job
		for i := range 5 {
			offered = append(offered, queue.Job{ID: fmt.Sprint("j", i), Tenant: "a", User: "u", Type: "t"})
		}
		offered = append(offered,
			queue.Job{ID: "dies", Tenant: "b", User: "u", Type: "t"},
			queue.Job{ID: "pauses", Tenant: "c", User: "u", Type: "t"},
			queue.Job{ID: "runs", Tenant: "e", User: "u", Type: "t"},
			queue.Job{ID: "later", Tenant: "d", User: "u", Type: "t", NotBefore: begin.Add(time.Minute)})
		enqueue(t, client, offered...)
		time.Sleep(5 * time.Minute)

		near := func(what string, got time.Time, want time.Duration) {
			t.Helper()
			if d := got.Sub(begin) - want; d.Abs() > 300*time.Millisecond {
				t.Errorf("%s after %v, want %v", what, got.Sub(begin), want)
			}
		}
		history := func(id, state string, outcomes ...string) queue.JobHistory {
			t.Helper()
			job, known, err := inspector.ExplainJob(t.Context(), id)
			must(t, err)
			if !known || job.State != state || len(job.History.Attempts) != len(outcomes) {
				t.Fatalf("%s: %v, %q with the history %+v, want %q and %q", id, known, job.State, job.History, state, outcomes)
			}
			near(id+" was offered", job.History.Offered, 0)
			for k, a := range job.History.Attempts {
				if outcomes[k] == "" && a.Outcome == "" && a.Ended.IsZero() {
					continue
				}
				if a.Outcome != outcomes[k] || a.Attempt != k+1 {
					t.Errorf("%s: attempt %d is %+v, want %q", id, k+1, a, outcomes[k])
				}
				waited := a.Waited.Rules + a.Waited.Pauses + a.Waited.Concurrency + a.Waited.Places
				if d := a.Started.Sub(a.Ready) - waited; d.Abs() > 300*time.Millisecond {
					t.Errorf("%s: attempt %d waited for %v, but its parts are %+v", id, k+1, a.Started.Sub(a.Ready), a.Waited)
				}
				if took := a.Ended.Sub(a.Started); took < 99*time.Millisecond || took > 300*time.Millisecond {
					t.Errorf("%s: attempt %d took %v, want 100ms", id, k+1, took)
				}
			}
			return job.History
		}
		for i := range 3 {
			a := history(fmt.Sprint("j", i), "started", "done").Attempts[0]
			near(fmt.Sprint("j", i), a.Started, time.Duration(i)*time.Second)
			if i > 0 && (a.Waited.Rule != "leak 1/s" || a.Waited.Rules < time.Duration(i)*time.Second-300*time.Millisecond) {
				t.Errorf("j%d waited for %+v, want %d s for leak 1/s", i, a.Waited, i)
			}
		}
		retried := history("j3", "started", "failed", "done").Attempts
		near("j3", retried[0].Started, 3*time.Second)
		near("its second attempt was ready", retried[1].Ready, 3100*time.Millisecond+20*time.Second)
		if retried[0].Error != "status 503: try later" || retried[1].Error != "" {
			t.Errorf("the errors of j3's attempts are %q and %q", retried[0].Error, retried[1].Error)
		}
		if w := history("j4", "started", "done").Attempts[0].Waited; w.Rules < 3700*time.Millisecond || w.Rules > 4300*time.Millisecond {
			t.Errorf("j4 waited for %+v, want 4 s for its leak", w)
		}
		if dead := history("dies", "dead", "dead").Attempts[0]; dead.Error != "no such device: skip retry for the task" {
			t.Errorf("the dead job's attempt is %+v", dead)
		}
		if w := history("pauses", "started", "done").Attempts[0].Waited; w.Pauses < 59*time.Second || w.Rule != "paused" {
			t.Errorf("the job that asked for a pause waited for %+v, want a minute for pauses", w)
		}
		near("the second run began", history("runs", "started", "").Attempts[0].Started, 100*time.Millisecond+time.Minute)
		later := history("later", "started", "done")
		near("later was to start", later.Begin, time.Minute)
		near("and was ready", later.Attempts[0].Ready, time.Minute)
	})
}

// A dropped job's history says when, and why.
func TestHistoryOfADroppedJob(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		inspector := newInspector(t, client, "push")
		setPolicies(t, client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{
			"p": {User: []throttle.Rule{throttle.Window(1, time.Hour).OrDrop()}},
		}})
		stop := runWorker(t, client, new(recorder), queue.WorkerConfig{})
		defer stop()
		begin := time.Now()
		enqueue(t, client, queue.Job{ID: "first", Tenant: "a", User: "u", Type: "t"}, queue.Job{ID: "second", Tenant: "a", User: "u", Type: "t"})
		time.Sleep(time.Minute)
		job, _, err := inspector.ExplainJob(t.Context(), "second")
		must(t, err)
		h := job.History
		if job.State != "dropped" || h.Reason != queue.ReasonRule || h.Rule != "window 1/1h" || h.Dropped.Sub(begin).Abs() > 2*time.Second {
			t.Errorf("%q with the history %+v, want dropped by window 1/1h at once", job.State, h)
		}
	})
}

// The history of a task to which asynq has given an ID is known as long as that: for ten minutes.
func TestHistoryOfATask(t *testing.T) {
	t.Parallel()
	client := redistest.Start(t).Client(t)
	stop := runWorker(t, client, new(recorder), queue.WorkerConfig{Inbox: true})
	producer := asynq.NewClientFromRedisClient(client)
	info, err := producer.EnqueueContext(t.Context(), asynq.NewTaskWithHeaders("t", nil, queue.Headers("a", "u")), asynq.Queue("push"))
	must(t, err)
	redistest.Eventually(t, 10*time.Second, "it is done", func() bool { return stats(t, client).Done == 1 })
	stop()
	key := "wc:{push}:past:" + info.ID
	if left := client.TTL(t.Context(), key).Val(); left <= 0 || left > 10*time.Minute {
		t.Errorf("the history is known for another %v, want as long as the ID: 10m at most", left)
	}
	job, known, err := newInspector(t, client, "push").ExplainJob(t.Context(), info.ID)
	if err != nil || !known || len(job.History.Attempts) != 1 || job.History.Attempts[0].Outcome != "done" {
		t.Errorf("%v, %v, %+v", known, err, job.History)
	}
}

// What is noted expires, and a worker can do without.
func TestHistoryExpires(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		history time.Duration
		want    time.Duration
	}{"by default": {0, 24 * time.Hour}, "an hour": {time.Hour, time.Hour}, "none": {-1, 0}} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).Client(t)
			stop := runWorker(t, client, new(recorder), queue.WorkerConfig{History: c.history})
			enqueue(t, client, queue.Job{ID: "a b", Tenant: "a", User: "u", Type: "t"}, queue.Job{Tenant: "a", User: "u", Type: "t"})
			redistest.Eventually(t, 10*time.Second, "both jobs are done", func() bool { return stats(t, client).Done == 2 })
			stop() // which writes what is noted
			keys, err := client.Keys(t.Context(), "wc:{push}:past:*").Result()
			must(t, err)
			if c.want == 0 {
				if len(keys) > 0 {
					t.Errorf("a worker that is to note nothing has written %q", keys)
				}
				return
			}
			if len(keys) != 1 || keys[0] != "wc:{push}:past:a%20b" {
				t.Fatalf("the keys are %q, want that of the job with an ID", keys)
			}
			if left := client.TTL(t.Context(), keys[0]).Val(); left <= 0 || left > c.want || left < c.want-time.Minute {
				t.Errorf("the history is known for another %v, want %v", left, c.want)
			}
		})
	}
}

// The history of a job that somebody cancelled or purged says who did it, when and why. Jobs beside it know nothing of that.
func TestHistorySaysWhoEndedAJob(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, s.units(10))}}))
		ann := newInspector(t, s.client, "push").As(queue.Note{Author: "ann", Reason: strings.Repeat("they left: ", 100)})
		must(t, ann.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, For: time.Hour}))
		var all []queue.Job
		for i := range 450 { // several steps
			all = append(all, queue.Job{ID: fmt.Sprint("p", i), Tenant: "purged", User: fmt.Sprint("u", i%7), Type: "t"})
		}
		all = append(all, queue.Job{Tenant: "purged", User: "no ID", Type: "t"}, queue.Job{ID: "cancelled", Tenant: "c", User: "u", Type: "t"},
			queue.Job{ID: "other", Tenant: "c", User: "u", Type: "t"})
		enqueue(t, s.client, all...)
		if n, err := ann.Purge(t.Context(), "purged"); n != 451 || err != nil {
			t.Fatalf("%d purged, %v", n, err)
		}
		if ok, err := ann.Cancel(t.Context(), "cancelled"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		look := func(id, state string, reason queue.Reason, asked bool) {
			t.Helper()
			job, known, err := newInspector(t, s.client, "push").ExplainJob(t.Context(), id)
			must(t, err)
			h := job.History
			if !known || job.State != state || h.Reason != reason || h.Dropped.IsZero() != (reason == "") {
				t.Errorf("%s: %q, %+v", id, job.State, h)
			}
			if !asked && h.Asked.IsZero() && h.By == (queue.Note{}) {
				return
			}
			if !asked || h.By.Author != "ann" || len(h.By.Reason) != 300 || !strings.HasPrefix(h.By.Reason, "they left: ") || time.Since(h.Asked).Abs() > time.Minute {
				t.Errorf("%s: asked at %v by %+v", id, h.Asked, h.By)
			}
		}
		for i := range 450 {
			look(fmt.Sprint("p", i), "dropped", queue.ReasonPurged, true)
		}
		look("cancelled", "cancelled", "", true)
		look("other", "waiting", "", false)
		must(t, ann.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "both are looked at", func() bool { n := stats(t, s.client); return n.Done == 1 && n.Waiting == 0 })
		s.eventually(t, "it is noted", func() bool {
			job, _, err := ann.ExplainJob(t.Context(), "cancelled")
			must(t, err)
			return job.History.Reason == queue.ReasonCancelled
		})
		look("cancelled", "dropped", queue.ReasonCancelled, true)
		look("other", "started", "", false)
	})
}
