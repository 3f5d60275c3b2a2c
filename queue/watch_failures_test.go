package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// waitsFor returns a handler's delay between attempts.
func waitsFor(d time.Duration) func(int, error, *asynq.Task) time.Duration {
	return func(int, error, *asynq.Task) time.Duration { return d }
}

// A job that backs off says with what it failed and when it is tried again; one that is
// scheduled, and one that is done, say nothing.
func TestRetryingJobsSayWhy(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		long := "no: " + strings.Repeat("é", 300) + "\xff"
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.User == "fails" {
				return errors.New(long)
			}
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: waitsFor(time.Hour)})
		enqueue(t, s.client, named("bad", "fails"), named("good", "works"), named("", "later", notBefore(time.Now().Add(time.Minute))))
		i := newWatcher(t, s.client, "push")
		s.eventually(t, "one has failed", func() bool { c := stats(t, s.client); return c.Failed == 1 && c.Done == 1 })
		all, err := i.Retrying(t.Context(), 0, 10)
		must(t, err)
		if len(all) != 1 || all[0].ID != "bad" || all[0].Attempts != 1 || time.Until(all[0].At) < 50*time.Minute {
			t.Fatalf("%+v", all)
		}
		if text := all[0].Error; !strings.HasPrefix(text, "no: éé") || len(text) > 310 || !utf8.ValidString(text) {
			t.Errorf("%d bytes: %q", len(text), text)
		}
		later, err := i.Later(t.Context(), 0, 10)
		must(t, err)
		if len(later) != 2 || later[0].Error != "" {
			t.Errorf("%+v", later)
		}
		none, err := i.Retrying(t.Context(), 1, 10)
		must(t, err)
		if len(none) != 0 {
			t.Errorf("behind the last one: %+v", none)
		}
	})
}

// The error goes with the job into its lane; a job that is revived has none any more.
func TestErrorsGoWithTheJob(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		i := newWatcher(t, s.client, "push")
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.User == "u" {
				must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: "school", User: "u", Until: time.Now().Add(time.Hour)}))
			}
			return fmt.Errorf("attempt %d", info.Attempt)
		}}
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(0)})
		once := named("", "v")
		once.MaxAttempts = 1
		enqueue(t, s.client, named("a", "u"), once)
		var lane []queue.WaitingJob
		s.eventually(t, "it waits in its lane again", func() (ok bool) {
			var err error
			lane, err = i.Lane(t.Context(), "school", "u", 0, 1)
			must(t, err)
			return len(lane) == 1 && lane[0].Attempt == 2
		})
		if lane[0].Error != "attempt 1" {
			t.Errorf("%+v", lane[0])
		}
		s.eventually(t, "the other one is dead", func() bool { return stats(t, s.client).Dead == 1 })
		stop()
		dead, err := i.Dead(t.Context(), "", 1)
		must(t, err)
		if dead[0].Error != "attempt 1" || dead[0].Attempts != 1 || dead[0].Type != "push" {
			t.Errorf("%+v", dead[0])
		}
		_, err = i.Revive(t.Context(), dead[0].Entry)
		must(t, err)
		if lane, err = i.Lane(t.Context(), "school", "v", 0, 1); err != nil || lane[0].Error != "" || lane[0].Attempt != 1 {
			t.Errorf("%+v, %v", lane, err)
		}
	})
}

// The classes of errors, those of dead jobs and of those that are tried again.
func TestFailures(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Type == "dead" {
				return fmt.Errorf("%w: code %s", asynq.SkipRetry, info.ID)
			}
			return errors.New("status 503 from 10.0.0." + info.ID)
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: waitsFor(time.Hour)})
		for n := range 3 {
			dies := named(fmt.Sprint("1", n), "u")
			dies.Type = "dead"
			enqueue(t, s.client, named(fmt.Sprint(n), "u"), dies)
		}
		s.eventually(t, "all have failed", func() bool { return stats(t, s.client).Failed == 6 })
		classes, err := newWatcher(t, s.client, "push").Failures(t.Context(), 100)
		must(t, err)
		if len(classes) != 2 || classes[0].Class != "skip retry for the task: code #" || classes[0].Dead != 3 || classes[0].Retrying != 0 ||
			classes[1].Class != "status 503 from #" || classes[1].Retrying != 3 || classes[0].Last.IsZero() || classes[1].Example == "" {
			t.Errorf("%+v", classes)
		}
	})
}

// A queue is failing while most of its last attempts fail: not after a few, not because of one
// in three, and not any more when it works again, or when it was long ago.
func TestFailing(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		i := newWatcher(t, s.client, "push")
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Type == "fails" {
				return errors.New("out of paper")
			}
			return nil
		}}
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: waitsFor(24 * time.Hour)})
		offered := int64(0)
		attempt := func(kind string, n int, want watch.Condition) watch.Health {
			t.Helper()
			batch := make([]queue.Job, n)
			for k := range batch {
				batch[k] = named("", fmt.Sprint(kind, k))
				batch[k].Type = kind
			}
			enqueue(t, s.client, batch...)
			offered += int64(n)
			s.eventually(t, "all have ended", func() bool { c := stats(t, s.client); return c.Done+c.Failed == offered })
			h, err := i.Health(t.Context())
			must(t, err)
			if h.Condition != want {
				t.Errorf("after %d × %s it is %s (%s), want %s", n, kind, h.Condition, h.Detail, want)
			}
			return h
		}
		attempt("works", 10, watch.Idle)
		attempt("fails", 4, watch.Idle)
		h := attempt("fails", 1, watch.Failing)
		if h.RecentAttempts != 5 || h.RecentFailed != 5 || h.RecentError != "out of paper" || !strings.Contains(h.Detail, "5 of the last 5 attempts have failed, the last one with: out of paper") {
			t.Errorf("%+v", h)
		}
		attempt("works", 5, watch.Idle)
		attempt("fails", 1, watch.Failing)
		attempt("works", 20, watch.Idle)
		if !s.virtual {
			return
		}
		for range 2 { // what was long ago does not hide what is now
			time.Sleep(11 * time.Second)
			attempt("works", 100, watch.Idle)
			attempt("fails", 1, watch.Idle)
		}
		time.Sleep(11 * time.Second)
		attempt("fails", 30, watch.Failing)
		stop()
		time.Sleep(31 * time.Minute)
		h, err := i.Health(t.Context())
		must(t, err)
		if h.Condition != watch.Idle || h.RecentAttempts != 0 || h.RecentError != "" {
			t.Errorf("half an hour later: %+v", h)
		}
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: waitsFor(24 * time.Hour)})
		attempt("fails", 4, watch.Idle) // what was before does not count
		attempt("fails", 1, watch.Failing)
	})
}
