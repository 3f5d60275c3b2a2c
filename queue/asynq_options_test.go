package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// hand hands a task of the school's teacher to the inbox.
func hand(t *testing.T, client redis.UniversalClient, options ...asynq.Option) *asynq.TaskInfo {
	t.Helper()
	task := asynq.NewTaskWithHeaders("push", []byte("hello"), queue.Headers("school", "teacher"))
	info, err := asynq.NewClientFromRedisClient(client).Enqueue(task, append(options, asynq.Queue("push"))...)
	must(t, err)
	return info
}

// filed waits until the inbox has nothing to do.
func filed(t *testing.T, s stage) {
	t.Helper()
	inspector := asynq.NewInspectorFromRedisClient(s.client)
	s.eventually(t, "all tasks are filed", func() bool {
		info, err := inspector.GetQueueInfo("push")
		must(t, err)
		return info.Pending+info.Active == 0
	})
}

// Tasks whose Deadline has passed before anybody looks are archived, recorded and logged.
// They cost nothing from then on, and those beside them run.
func TestExpiredTasksAreArchived(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		const expired = 20
		for i := range expired {
			hand(t, s.client, asynq.TaskID(fmt.Sprint("late-", i)), asynq.Deadline(time.Now().Add(-time.Minute)), asynq.MaxRetry(i%3))
			if i%10 == 0 {
				hand(t, s.client, asynq.TaskID(fmt.Sprint("good-", i)), asynq.Deadline(time.Now().Add(time.Hour)))
			}
		}
		var log redistest.Buffer
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		inspector := asynq.NewInspectorFromRedisClient(s.client)
		s.eventually(t, "all are archived", func() bool {
			info, err := inspector.GetQueueInfo("push")
			must(t, err)
			return info.Archived == expired && info.Size == expired && got.count() == 2
		})
		drops := func() []queue.Drop {
			drops, err := newInspector(t, s.client, "push").Drops(t.Context(), 100)
			must(t, err)
			return drops
		}
		s.eventually(t, "all are recorded", func() bool { return len(drops()) == expired })
		for _, drop := range drops() {
			if drop.Reason != queue.ReasonExpired || !strings.HasPrefix(drop.ID, "late-") || drop.Tenant != "school" || drop.User != "teacher" || drop.Type != "push" {
				t.Errorf("%+v", drop)
			}
		}
		archived, err := inspector.ListArchivedTasks("push", asynq.PageSize(100))
		must(t, err)
		for _, task := range archived {
			if !strings.Contains(task.LastErr, "deadline exceeded") {
				t.Errorf("%s: %q", task.ID, task.LastErr)
			}
		}
		if n := strings.Count(log.String(), "archived a task whose asynq.Deadline has passed"); n != expired {
			t.Errorf("logged %d times, want %d", n, expired)
		}
	})
}

// The ID of a task is its job's while that waits or runs. A second task with it is
// refused, and that is told; when the job has ended, however it did, the ID is free.
func TestTaskIDBindsWhileTheJobLives(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		var log redistest.Buffer
		release := make(chan struct{})
		got := recorder{then: func(ctx context.Context, info queue.Info) error {
			if info.ID == "runs" {
				<-release
			}
			if info.ID == "dies" {
				return asynq.SkipRetry
			}
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		refused := func(want int64) {
			t.Helper()
			filed(t, s)
			if all := stats(t, s.client); all.Duplicates != want {
				t.Errorf("%d duplicates, want %d", all.Duplicates, want)
			}
			drops, err := inspector.Drops(t.Context(), 100)
			must(t, err)
			if int64(len(drops)) != want || want > 0 && (drops[0].Reason != queue.ReasonDuplicate || drops[0].Tenant != "school") {
				t.Errorf("dropped %+v", drops)
			}
			if n := strings.Count(log.String(), "level=WARN msg=\"refused a task: a job that waits or runs has its ID\""); int64(n) != want {
				t.Errorf("%d warnings, want %d", n, want)
			}
		}
		// Waiting.
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		hand(t, s.client, asynq.TaskID("waits"))
		refused(0)
		hand(t, s.client, asynq.TaskID("waits"))
		refused(1)
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
		s.eventually(t, "it has run", func() bool { return stats(t, s.client).Done == 1 })
		// Running.
		hand(t, s.client, asynq.TaskID("runs"))
		s.eventually(t, "it runs", func() bool { return got.count() == 2 })
		filed(t, s) // until then asynq itself has a task of that ID
		hand(t, s.client, asynq.TaskID("runs"))
		refused(2)
		close(release)
		s.eventually(t, "it has run", func() bool { return stats(t, s.client).Done == 2 })
		// Ended well, and dead.
		for i := range 3 {
			hand(t, s.client, asynq.TaskID("waits"))
			hand(t, s.client, asynq.TaskID("dies"))
			s.eventually(t, "both have ended", func() bool { all := stats(t, s.client); return all.Done == int64(3+i) && all.Dead == int64(1+i) })
			filed(t, s)
		}
		refused(2)
		if all := stats(t, s.client); all.Offered != 8 {
			t.Errorf("%+v, want 8 offered", all)
		}
	})
}

// What asynq keeps for a task goes on with its job, its Timeout too, which is thirty minutes
// if nobody says otherwise. A job that was made a task with no bounds has none.
func TestOptionsOfATask(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		end := time.Now().Add(2 * time.Hour).Truncate(time.Second)
		tests := map[string]struct {
			options  []asynq.Option
			timeout  time.Duration
			finishBy time.Time
			attempts int
		}{
			"deadline": {[]asynq.Option{asynq.Deadline(end)}, 0, end, 26},
			"both":     {[]asynq.Option{asynq.Deadline(end), asynq.Timeout(time.Minute)}, time.Minute, end, 26},
			"timeout":  {[]asynq.Option{asynq.Timeout(time.Minute), asynq.MaxRetry(0)}, time.Minute, time.Time{}, 1},
			"neither":  {[]asynq.Option{asynq.MaxRetry(7)}, 30 * time.Minute, time.Time{}, 8},
			"a job":    {nil, 0, time.Time{}, 26},
		}
		for id, test := range tests {
			if id != "a job" {
				hand(t, s.client, append(test.options, asynq.TaskID(id))...)
				continue
			}
			task, err := queue.NewTask(queue.Job{ID: id, Tenant: "school", User: "teacher", Type: "push"})
			must(t, err)
			_, err = asynq.NewClientFromRedisClient(s.client).Enqueue(task, asynq.Queue("push"))
			must(t, err)
		}
		s.eventually(t, "all wait", func() bool { return stats(t, s.client).Waiting == int64(len(tests)) })
		lane, err := inspector.Lane(t.Context(), "school", "teacher", 0, 10)
		must(t, err)
		for _, job := range lane {
			want := tests[job.ID]
			if !job.FinishBy.Equal(want.finishBy) || job.MaxAttempts != want.attempts || job.Timeout != want.timeout || !job.StartBy.IsZero() {
				t.Errorf("%s: %+v", job.ID, job.Job)
			}
		}
	})
}

// An ID that asynq has made up is known for minutes: nobody will ask for it.
func TestMadeUpIDsAreForgottenSoon(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true})
		for id, want := range map[string]time.Duration{
			hand(t, s.client).ID: 10 * time.Minute, hand(t, s.client, asynq.TaskID("order-17")).ID: 24 * time.Hour,
		} {
			s.eventually(t, "it is filed", func() bool { return s.client.Exists(t.Context(), "wc:{push}:id:"+id).Val() == 1 })
			if left := s.client.PTTL(t.Context(), "wc:{push}:id:"+id).Val(); left > want || left < want-time.Minute {
				t.Errorf("%s is known for %v, want %v", id, left, want)
			}
		}
	})
}
