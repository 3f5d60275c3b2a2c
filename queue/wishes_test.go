package queue_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// The answers of docs/jobs.md to what people ask for, in virtual time: which job starts when.
func TestWhatPeopleAskFor(t *testing.T) {
	t.Parallel()
	type start struct {
		payload string
		after   time.Duration
	}
	hour := func(n int) time.Duration { return time.Duration(n) * 5 * time.Minute } // of this test: idle time takes time, too
	for name, c := range sample.Cases(t, map[string]struct {
		policy  queue.Policy
		act     func(t *testing.T, offer func(id, payload string, with ...func(*queue.Job)), i *queue.Inspector)
		answers func(attempt int, payload string) error
		want    []start
	}{
		"look again in an hour": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), _ *queue.Inspector) {
				offer("a", "x", func(j *queue.Job) { j.MaxAttempts = 1 })
			},
			answers: func(n int, _ string) error {
				if n < 3 {
					return queue.Retry{After: hour(1), Uncounted: true, Cause: errors.New("not there yet")}
				}
				return nil
			},
			want: []start{{"x", 0}, {"x", hour(1)}, {"x", hour(2)}},
		},
		"change a job that waits": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), i *queue.Inspector) {
				must(t, i.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, For: hour(1)}))
				key := func(j *queue.Job) { j.CollapseKey = "price" }
				offer("", "old", key)
				offer("", "other")
				offer("", "new", key)
			},
			want: []start{{"new", hour(1)}, {"other", hour(1)}},
		},
		"start a scheduled job now": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), i *queue.Inspector) {
				offer("a", "later", func(j *queue.Job) { j.NotBefore = time.Now().Add(hour(3)) })
				time.Sleep(hour(1))
				if found, err := i.Cancel(t.Context(), "a"); err != nil || !found {
					t.Error(found, err)
				}
				offer("a now", "now")
			},
			want: []start{{"now", hour(1)}},
		},
		"a pause without an end": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), i *queue.Inspector) {
				scope := queue.Pause{Scope: queue.ScopeTenant, Tenant: "a", For: 100 * 365 * 24 * time.Hour}
				must(t, i.Pause(t.Context(), scope))
				offer("", "x")
				time.Sleep(hour(1))
				must(t, i.Resume(t.Context(), scope))
			},
			want: []start{{"x", hour(1)}},
		},
		"one in an hour, by its ID": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), _ *queue.Inspector) {
				for _, payload := range []string{"first", "second", "third"} {
					offer("report-2026-11-25T08", payload)
					time.Sleep(time.Minute)
				}
			},
			want: []start{{"first", 0}},
		},
		"the newest in an hour": {
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), _ *queue.Inspector) {
				end := time.Now().Add(hour(1))
				for _, payload := range []string{"first", "second", "third"} {
					offer("", payload, func(j *queue.Job) { j.CollapseKey, j.NotBefore = "digest", end })
					time.Sleep(time.Minute)
				}
			},
			want: []start{{"third", hour(1)}},
		},
		"one at a time is overtaken while it backs off": {
			policy: queue.Policy{UserConcurrency: queue.Concurrency{Jobs: 1}},
			act: func(t *testing.T, offer func(string, string, ...func(*queue.Job)), _ *queue.Inspector) {
				offer("", "fails")
				offer("", "next")
			},
			answers: func(n int, payload string) error {
				if payload == "fails" && n == 1 {
					return queue.Retry{After: hour(1), Cause: errors.New("no")}
				}
				return nil
			},
			want: []start{{"fails", 0}, {"next", 0}, {"fails", hour(1)}},
		},
	}, 3, 100) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": c.policy}})
				var got []start
				begin, calls := time.Now(), make(map[string]int)
				stop := runWorker(t, client, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
					payload := string(task.Payload())
					calls[payload]++
					got = append(got, start{payload, time.Since(begin).Round(10 * time.Second)})
					if c.answers == nil {
						return nil
					}
					return c.answers(calls[payload], payload)
				}), queue.WorkerConfig{Concurrency: 1})
				defer stop()
				c.act(t, func(id, payload string, with ...func(*queue.Job)) {
					j := queue.Job{ID: id, Tenant: "a", User: "u", Type: "t", Payload: []byte(payload)}
					for _, w := range with {
						w(&j)
					}
					enqueue(t, client, j)
				}, newInspector(t, client, "push"))
				time.Sleep(hour(3))
				synctest.Wait()
				if !slices.Equal(got, c.want) {
					t.Errorf("starts: %v, want %v", got, c.want)
				}
			})
		})
	}
}
