package queue_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A lock of asynq.Unique is over after its time, whatever its job does, and is not lifted by a
// job that has lost it.
func TestUniqueHoldsForItsTimeAtMost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := way{s: stage{redistest.Mini(t), time.Second, true}}
		w.serve(t, &recorder{}, settings{})
		inspector := newInspector(t, w.s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(60 * time.Second)}))
		must(t, w.enqueue("hello", asynq.Unique(20*time.Second), asynq.TaskID("first")))
		time.Sleep(15 * time.Second)
		if err := w.enqueue("hello", asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("within its time: %v", err)
		}
		time.Sleep(10 * time.Second)
		must(t, w.enqueue("hello", asynq.Unique(time.Hour), asynq.TaskID("second"), asynq.ProcessIn(time.Hour)))
		time.Sleep(60 * time.Second) // the first has run
		if err := w.enqueue("hello", asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) || stats(t, w.s.client).Done != 1 {
			t.Errorf("the first job has lifted the second one's lock: %v, %+v", err, stats(t, w.s.client))
		}
	})
}

// A task that is refused or dropped at the door lifts its lock.
func TestUniqueEndsAtTheDoor(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		w := way{s: s}
		setPolicies(t, s.client, policies(queue.Policy{Capacity: 1}))
		w.serve(t, &recorder{}, settings{})
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(time.Hour)}))
		must(t, w.enqueue("first", asynq.TaskID("first")))
		filed(t, s)
		for _, id := range []string{"first", "second"} { // a duplicate, and one too many
			must(t, w.enqueue("hello", asynq.Unique(time.Hour), asynq.TaskID(id)))
			filed(t, s)
		}
		if all := stats(t, s.client); all.Duplicates != 1 || all.Waiting != 1 {
			t.Errorf("%+v", all)
		}
		if err := w.enqueue("hello", asynq.Unique(time.Hour)); err != nil {
			t.Errorf("the lock outlives its task: %v", err)
		}
	})
}

// A task that asynq's servers have failed twice comes through the inbox with the attempts that
// are left.
func TestAttemptsThatAreLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := way{s: stage{redistest.Mini(t), time.Second, true}}
		failed := make(chan int, 10)
		server := asynq.NewServerFromRedisClient(w.s.client, asynq.Config{
			Queues: map[string]int{"push": 1}, LogLevel: asynq.FatalLevel, DelayedTaskCheckInterval: time.Second,
			RetryDelayFunc: func(n int, _ error, _ *asynq.Task) time.Duration { return time.Duration(1+n*60) * time.Second },
		})
		must(t, server.Start(asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			n, _ := asynq.GetRetryCount(ctx)
			failed <- n
			return errors.New("broken")
		})))
		must(t, w.enqueue("hello", asynq.MaxRetry(5)))
		for want := range 2 {
			if n := <-failed; n != want {
				t.Fatalf("retry %d, want %d", n, want)
			}
		}
		server.Shutdown()
		starts := make(chan queue.Info, 1)
		w.serve(t, &recorder{then: func(_ context.Context, info queue.Info) error { starts <- info; return nil }}, settings{})
		if info := <-starts; info.Attempt != 1 || info.MaxAttempts != 4 {
			t.Errorf("attempt %d of %d, want 1 of 4", info.Attempt, info.MaxAttempts)
		}
	})
}

// InboxJob says what job a task without headers is; one in three cannot be told, and the
// others do not notice.
func TestInboxJob(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true, InboxJob: func(task *asynq.Task) (queue.Job, error) {
			switch tenant, user, _ := strings.Cut(string(task.Payload()), "/"); tenant {
			case "error":
				return queue.Job{}, errors.New("no user in it")
			case "panic":
				panic("no slash")
			default:
				return queue.Job{
					Tenant: tenant, User: user, Keys: map[string]string{"domain": "a.example"}, Costs: map[string]int{"tokens": 3}, Priority: queue.Low,
					Type: "not this", Payload: []byte("nor this"), ID: "nor this",
				}, nil
			}
		}})
		producer := asynq.NewClientFromRedisClient(s.client)
		for i := range 9 {
			payload := []string{"school/teacher", "school/parent", []string{"error", "panic", "school"}[i/3]}[i%3]
			_, err := producer.Enqueue(asynq.NewTask("push", []byte(payload)), asynq.Queue("push"))
			must(t, err)
		}
		headers := queue.Headers("club", "coach")
		_, err := producer.Enqueue(asynq.NewTaskWithHeaders("push", []byte("error"), headers), asynq.Queue("push"))
		must(t, err)
		s.eventually(t, "all that can have run", func() bool { return stats(t, s.client).Done == 7 })
		count := make(map[string]int)
		for _, start := range got.all() {
			count[start.Tenant+"/"+start.User]++
			if told := start.Tenant == "school"; told != (start.Keys["domain"] == "a.example" && start.Costs["tokens"] == 3) || start.Type != "push" || start.ID == "nor this" {
				t.Errorf("ran %+v", start)
			}
		}
		if want := map[string]int{"school/teacher": 3, "school/parent": 3, "club/coach": 1}; !maps.Equal(count, want) {
			t.Errorf("ran %v, want %v", count, want)
		}
		var why []string
		s.eventually(t, "the others are archived", func() bool {
			archived, err := asynq.NewInspectorFromRedisClient(s.client).ListArchivedTasks("push")
			must(t, err)
			why = nil
			for _, task := range archived {
				why = append(why, task.LastErr)
			}
			return len(why) == 3
		})
		all := strings.Join(why, "\n")
		for _, want := range []string{"InboxJob: no user in it", "InboxJob: panic: no slash", `InboxJob: tenant "school", user ""`} {
			if !strings.Contains(all, want) {
				t.Errorf("want %q in\n%s", want, all)
			}
		}
	})
}
