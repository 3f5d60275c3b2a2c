package queue_test

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// A job is the same in its lane whichever way it came: straight, as a task made by
// NewTask, or as one with the headers that docs/jobs.md lists, made by hand.
func TestAJobIsTheSameThroughEitherDoor(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		due := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Microsecond)
		job := func(user, id string) queue.Job {
			return queue.Job{
				ID: id, Tenant: "school", User: user, Type: "push", Payload: []byte("hello"), Headers: map[string]string{"trace": "7"},
				Cost: 3, StartBy: due, Priority: queue.High, CollapseKey: "k:1", MaxAttempts: 1, Timeout: 90 * time.Second,
				Keys: map[string]string{"domain": "gmail.com"}, Costs: map[string]int{"tokens": 812},
			}
		}
		straight(t, s, job("one", "1"))
		throughInbox(t, s, job("two", "2"))
		headers := queue.Headers("school", "three")
		maps.Copy(headers, map[string]string{
			"trace": "7", "waterclock-cost": "3", "waterclock-deadline": due.Format(time.RFC3339Nano), "waterclock-priority": "high",
			"waterclock-collapse-key": "k:1", "waterclock-timeout": "1m30s", "waterclock-key-domain": "gmail.com", "waterclock-cost-tokens": "812",
		})
		task := asynq.NewTaskWithHeaders("push", []byte("hello"), headers)
		_, err := asynq.NewClientFromRedisClient(s.client).Enqueue(task, asynq.Queue("push"), asynq.TaskID("3"), asynq.MaxRetry(0))
		must(t, err)
		s.eventually(t, "all three wait", func() bool { return stats(t, s.client).Waiting == 3 })
		for user, id := range map[string]string{"one": "1", "two": "2", "three": "3"} {
			lane, err := inspector.Lane(t.Context(), "school", user, 0, 10)
			must(t, err)
			if len(lane) != 1 {
				t.Fatalf("%d jobs wait for user %s", len(lane), user)
			}
			waits := lane[0].Job
			waits.StartBy = waits.StartBy.UTC()
			if diff := cmp.Diff(job(user, id), waits); diff != "" {
				t.Errorf("job %s (-want +got):\n%s", id, diff)
			}
		}
	})
}

// Nothing that asynq keeps is exact to less than a second: the header is.
func TestNotBeforeThroughTheInboxIsExact(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		due := time.Now().Truncate(time.Second).Add(1900 * time.Millisecond)
		throughInbox(t, s, named("late in its second", "u", notBefore(due)))
		s.eventually(t, "it has started", func() bool { return got.count() == 1 })
		if at := got.all()[0].Started; at.Before(due) {
			t.Errorf("started %v before its time", due.Sub(at))
		}
	})
}

// A task that cannot be a job goes to asynq's archive at once, and says what is wrong.
func TestTasksThatAreNoJobs(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ header, value, want string }{
		"tenant":       {"waterclock-tenant", "", `the task has no header "waterclock-tenant"; make it with queue.NewTask`},
		"long":         {"waterclock-user", strings.Repeat("u", 1025), "user has 1025 bytes; at most 1024"},
		"cost":         {"waterclock-cost", "lots", `header "waterclock-cost" is "lots"; a whole number from 1 to 1000000`},
		"no-cost":      {"waterclock-cost", "0", `header "waterclock-cost" is "0"; a whole number`},
		"high-cost":    {"waterclock-cost", "1000001", "cost 1000001; from 1 to 1000000"},
		"unit":         {"waterclock-cost-tokens", "-1", `header "waterclock-cost-tokens" is "-1"; a whole number from 0 to 1000000000`},
		"no-unit":      {"waterclock-cost-jobs", "1", `costs: unit "jobs"; want a name such as tokens`},
		"no-key":       {"waterclock-key-", "x", `keys: name ""; 1 to 64 letters`},
		"empty-key":    {"waterclock-key-domain", "", "keys.domain has 0 bytes; from 1 to 256"},
		"deadline":     {"waterclock-deadline", "soon", `header "waterclock-deadline" is "soon"; a time such as 2026-11-21T08:00:00Z`},
		"not-before":   {"waterclock-not-before", "1748607359", `header "waterclock-not-before" is "1748607359"; a time such as`},
		"priority":     {"waterclock-priority", "urgent", `header "waterclock-priority" is "urgent"; high, normal or low`},
		"timeout":      {"waterclock-timeout", "-3s", `header "waterclock-timeout" is "-3s"; a time such as 30s`},
		"collapse-key": {"waterclock-collapse-key", strings.Repeat("k", 1025), "collapse_key has 1025 bytes; at most 1024"},
		"unknown":      {"waterclock-dedline", "x", `header "waterclock-dedline" is "x"; there is no such header`},
	}
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		producer := asynq.NewClientFromRedisClient(s.client)
		for id, test := range tests {
			headers := queue.Headers("school", "teacher")
			headers[test.header] = test.value
			_, err := producer.Enqueue(asynq.NewTaskWithHeaders("push", nil, headers), asynq.Queue("push"), asynq.TaskID(id))
			must(t, err)
		}
		throughInbox(t, s, named("good", "teacher"))
		inspector := asynq.NewInspectorFromRedisClient(s.client)
		s.eventually(t, "what is good has run, and the rest is archived", func() bool {
			info, err := inspector.GetQueueInfo("push")
			must(t, err)
			return got.count() == 1 && info.Archived == len(tests)
		})
		archived, err := inspector.ListArchivedTasks("push")
		must(t, err)
		for _, task := range archived {
			if want := tests[task.ID].want; !strings.Contains(task.LastErr, want) || task.Retried != 0 {
				t.Errorf("%s: tried again %d times, says %q, want %q", task.ID, task.Retried, task.LastErr, want)
			}
		}
		if all := stats(t, s.client); all.Offered != 1 {
			t.Errorf("%d jobs were offered, want one", all.Offered)
		}
	})
}

// What Redis refuses to file is filed when it no longer does, however few retries the job
// has: these are for its handler.
func TestFilingIsNoAttempt(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		const broken = "wc:{push}:meta"
		must(t, s.client.Set(t.Context(), broken, "not a hash", 0).Err())
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		task, err := queue.NewTask(named("a", "u", func(j *queue.Job) { j.MaxAttempts = 2 }))
		must(t, err)
		_, err = asynq.NewClientFromRedisClient(s.client).Enqueue(task, asynq.Queue("push"))
		must(t, err)
		inspector := asynq.NewInspectorFromRedisClient(s.client)
		tries := map[time.Time]bool{}
		s.eventually(t, "filing has failed three times", func() bool {
			info, err := inspector.GetTaskInfo("push", "a")
			must(t, err)
			if !info.LastFailedAt.IsZero() {
				tries[info.LastFailedAt] = true
			}
			return len(tries) == 3
		})
		must(t, s.client.Del(t.Context(), broken).Err())
		s.eventually(t, "it has run", func() bool { return got.count() == 1 })
		if start := got.all()[0]; start.Attempt != 1 || start.MaxAttempts != 2 {
			t.Errorf("started %+v", start)
		}
	})
}

func TestWhatATaskCannotCarry(t *testing.T) {
	t.Parallel()
	tests := map[string]func(*queue.Job){
		"user is missing":                                      func(j *queue.Job) { j.User = "" },
		"tenant is not UTF-8":                                  func(j *queue.Job) { j.Tenant = "\xff" },
		"collapse_key is not UTF-8":                            func(j *queue.Job) { j.CollapseKey = "\xff" },
		`key "domain" is not UTF-8`:                            func(j *queue.Job) { j.Keys = map[string]string{"domain": "\xff"} },
		"id is only white space":                               func(j *queue.Job) { j.ID = " " },
		"type is only white space":                             func(j *queue.Job) { j.Type = "\n" },
		`header "trace" is not UTF-8`:                          func(j *queue.Job) { j.Headers = map[string]string{"trace": "\xff"} },
		`header "waterclock-cost"; names that begin with "wat`: func(j *queue.Job) { j.Headers = map[string]string{"waterclock-cost": "2"} },
	}
	for want, spoil := range tests {
		bad := named("1", "u", spoil)
		if _, err := queue.NewTask(bad); !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	task, err := queue.NewTask(named("1", "u"))
	if err != nil || !maps.Equal(task.Headers(), queue.Headers("school", "u")) {
		t.Errorf("a job with nothing but its names: %v, %v", task, err)
	}
}
