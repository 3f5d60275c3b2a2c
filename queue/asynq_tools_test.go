package queue_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
)

// What docs/migrate-from-asynq.md says that asynq's own tools see of a queue with an inbox is so.
func TestWhatAsynqsToolsSee(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	page, err := os.ReadFile("../docs/migrate-from-asynq.md")
	must(t, err)
	_, table, found := strings.Cut(string(page), "## What asynq's tools see\n")
	if !found {
		t.Fatal("the page has no table")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := make(map[string]string)
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| (yes|partly|no)\b[^|]* \|$`).FindAllStringSubmatch(table, -1) {
		rows[strings.ReplaceAll(row[1], "`", "")] = row[2]
	}
	if n := strings.Count(table, "\n|") - 2; n != len(rows) {
		t.Errorf("the table has %d rows, %d of them say yes, partly or no", n, len(rows))
	}
	client := redistest.Start(t).Client(t)
	probes := asynqsView()
	for i, row := range slices.Sorted(maps.Keys(rows)) {
		probe := probes[row]
		if probe == nil {
			t.Errorf("nobody finds out about %q", row)
			continue
		}
		delete(probes, row)
		t.Run(row, func(t *testing.T) {
			t.Parallel()
			if got := probe(newTools(client, fmt.Sprint("queue-", i)), t); got != rows[row] {
				t.Errorf("the page says %q, and it is %q", rows[row], got)
			}
		})
	}
	for row := range probes {
		t.Errorf("the table has no row for %s", row)
	}
}

// asynqsView holds for each row of the table how to find out.
func asynqsView() map[string]func(*tools, *testing.T) string {
	return map[string]func(*tools, *testing.T) string{
		"pending": (*tools).pending, "active": (*tools).active, "scheduled": (*tools).scheduled, "retry": (*tools).retry,
		"archived": (*tools).archived, "completed": (*tools).completed, "aggregating": (*tools).aggregating,
		"GetTaskInfo": (*tools).taskInfo, "TaskInfo.Result": (*tools).result,
		"DeleteTask, RunTask, ArchiveTask": (*tools).oneTask, "CancelProcessing": (*tools).cancelProcessing,
		"PauseQueue, UnpauseQueue": (*tools).pause, "DeleteQueue": (*tools).deleteQueue,
		"Processed, Failed, History": (*tools).history, "Size, Latency": (*tools).size,
		"Servers": (*tools).servers, "SchedulerEntries": (*tools).schedulers,
	}
}

// seen is the verdict on a tool that sees, or reaches, tasks before the inbox takes them, and the jobs that they become.
func seen(tasks, jobs bool) string {
	switch {
	case tasks && jobs:
		return "yes"
	case tasks:
		return "partly"
	}
	return "no"
}

// tools are asynq's and waterclock's views of one queue.
type tools struct {
	*asynq.Inspector
	client  redis.UniversalClient
	queue   string
	release chan struct{} // ends the handlers that hold
}

func newTools(client redis.UniversalClient, name string) *tools {
	return &tools{asynq.NewInspectorFromRedisClient(client), client, name, make(chan struct{})}
}

// work runs a worker with an inbox. What its handler does is the task's type.
func (o *tools) work(t *testing.T) {
	runWorker(t, o.client, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		switch task.Type() {
		case "hold":
			<-o.release
		case "fail":
			return errors.New("no")
		case "dead":
			return fmt.Errorf("no: %w", asynq.SkipRetry)
		}
		return queue.WriteResult(ctx, task, []byte("done"))
	}), queue.WorkerConfig{Queues: []string{o.queue}, Inbox: true, RetryDelay: after(time.Hour)})
}

// enqueue enqueues a task as a producer of the service does.
func (o *tools) enqueue(t *testing.T, kind string, options ...asynq.Option) (id string) {
	t.Helper()
	task := asynq.NewTaskWithHeaders(kind, []byte("payload"), queue.Headers(kind, "teacher"))
	info, err := asynq.NewClientFromRedisClient(o.client).Enqueue(task, append(options, asynq.Queue(o.queue))...)
	must(t, err)
	return info.ID
}

// wait pauses the tenant of a kind of tasks, so that its jobs wait.
func (o *tools) wait(t *testing.T, kind string) {
	t.Helper()
	pause := queue.Pause{Scope: queue.ScopeTenant, Tenant: kind, Until: time.Now().Add(time.Hour)}
	must(t, newInspector(t, o.client, o.queue).Pause(t.Context(), pause))
}

func (o *tools) stats(t *testing.T) queue.Stats {
	t.Helper()
	s, err := newInspector(t, o.client, o.queue).Stats(t.Context())
	must(t, err)
	return s
}

func (o *tools) info(t *testing.T) *asynq.QueueInfo {
	t.Helper()
	info, err := o.GetQueueInfo(o.queue)
	must(t, err)
	return info
}

func (o *tools) eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	redistest.Eventually(t, 20*time.Second, what, holds)
}

func (o *tools) pending(t *testing.T) string {
	o.enqueue(t, "later")
	before := o.info(t).Pending == 1
	o.wait(t, "later")
	o.work(t)
	o.eventually(t, "the job waits", func() bool { return o.stats(t).Waiting == 1 })
	return seen(before, o.info(t).Pending == 1)
}

// active looks for tasks only while their jobs run: to be filed takes a millisecond.
func (o *tools) active(t *testing.T) string {
	defer close(o.release)
	o.work(t)
	o.enqueue(t, "hold")
	o.eventually(t, "the job runs and its task is gone", func() bool { return o.stats(t).Running == 1 && o.info(t).Pending == 0 })
	runs := true
	o.eventually(t, "the filing ends", func() bool { runs = o.info(t).Active == 1; return !runs })
	return seen(runs, runs)
}

func (o *tools) scheduled(t *testing.T) string {
	o.work(t)
	id := o.enqueue(t, "ok", asynq.ProcessIn(time.Hour))
	kept, err := o.ListScheduledTasks(o.queue)
	must(t, err)
	must(t, o.RunTask(o.queue, id))
	o.eventually(t, "it runs", func() bool { return o.stats(t).Done == 1 })
	return seen(len(kept) == 1, o.info(t).Scheduled == 0)
}

func (o *tools) retry(t *testing.T) string {
	server := asynq.NewServerFromRedisClient(o.client, asynq.Config{
		Queues: map[string]int{o.queue: 1}, LogLevel: asynq.FatalLevel, TaskCheckInterval: 50 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	must(t, server.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return errors.New("no") })))
	o.enqueue(t, "ok")
	o.eventually(t, "it has failed in a server", func() bool { return o.info(t).Retry == 1 })
	server.Shutdown()
	o.work(t)
	o.enqueue(t, "fail")
	o.eventually(t, "it has failed in the worker", func() bool { return o.stats(t).Later == 1 })
	n := o.info(t).Retry
	return seen(n > 0, n == 2)
}

func (o *tools) archived(t *testing.T) string {
	o.work(t)
	_, err := asynq.NewClientFromRedisClient(o.client).Enqueue(asynq.NewTask("no job", nil), asynq.Queue(o.queue))
	must(t, err)
	o.enqueue(t, "dead")
	o.eventually(t, "one is dead, one archived", func() bool { return o.stats(t).Dead == 1 && o.info(t).Archived > 0 })
	n := o.info(t).Archived
	return seen(n > 0, n == 2)
}

// completed is partly true if tasks are listed whose jobs are not done.
func (o *tools) completed(t *testing.T) string {
	o.wait(t, "later")
	o.work(t)
	for _, kind := range []string{"later", "dead", "ok"} {
		o.enqueue(t, kind, asynq.Retention(time.Hour))
	}
	o.eventually(t, "one job is done, one dead", func() bool { s := o.stats(t); return s.Waiting+s.Dead+s.Done == 3 })
	var n int
	o.eventually(t, "some are listed", func() bool { n = o.info(t).Completed; return n == 3 })
	return seen(n > 0, n == 1)
}

func (o *tools) aggregating(t *testing.T) string {
	o.enqueue(t, "ok", asynq.Group("news"))
	o.enqueue(t, "ok", asynq.Group("news"))
	before := o.info(t).Aggregating == 2
	o.work(t)
	o.eventually(t, "they have come one by one", func() bool { return o.stats(t).Done == 2 })
	return seen(before, o.info(t).Aggregating > 0)
}

func (o *tools) taskInfo(t *testing.T) string {
	id := o.enqueue(t, "later")
	_, before := o.GetTaskInfo(o.queue, id)
	o.wait(t, "later")
	o.work(t)
	o.eventually(t, "the job waits", func() bool { return o.stats(t).Waiting == 1 && o.info(t).Active == 0 })
	_, after := o.GetTaskInfo(o.queue, id)
	if after != nil && !errors.Is(after, asynq.ErrTaskNotFound) {
		t.Error(after)
	}
	return seen(before == nil, after == nil)
}

// result is partly there: for tasks that are retained.
func (o *tools) result(t *testing.T) string {
	o.work(t)
	retained, other := o.enqueue(t, "ok", asynq.Retention(time.Hour)), o.enqueue(t, "ok")
	o.eventually(t, "both are done", func() bool { return o.stats(t).Done == 2 && o.info(t).Active == 0 })
	info, err := o.GetTaskInfo(o.queue, retained)
	must(t, err)
	_, none := o.GetTaskInfo(o.queue, other)
	return seen(string(info.Result) == "done", none == nil)
}

func (o *tools) oneTask(t *testing.T) string {
	o.wait(t, "later")
	o.work(t)
	acts := []func(queue, id string) error{o.DeleteTask, o.RunTask, o.ArchiveTask}
	tasks, jobs := true, true
	for i, act := range acts {
		tasks = act(o.queue, o.enqueue(t, "later", asynq.ProcessIn(time.Hour))) == nil && tasks
		ran := i > 0 // RunTask lets its task into the lane
		id := o.enqueue(t, "later")
		o.eventually(t, "the job waits", func() bool {
			return o.stats(t).Waiting == int64(i+1)+map[bool]int64{true: 1}[ran] && o.info(t).Active == 0
		})
		jobs = act(o.queue, id) == nil && jobs
	}
	return seen(tasks, jobs)
}

// cancelProcessing looks whether the context of a handler ends.
func (o *tools) cancelProcessing(t *testing.T) string {
	ended := make(chan bool, 1)
	runWorker(t, o.client, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		select {
		case <-ctx.Done():
			ended <- true
		case <-o.release:
			ended <- false
		}
		return nil
	}), queue.WorkerConfig{Queues: []string{o.queue}, Inbox: true})
	id := o.enqueue(t, "hold")
	o.eventually(t, "it runs", func() bool { return o.stats(t).Running == 1 })
	must(t, o.CancelProcessing(id))
	after := time.AfterFunc(time.Second, func() { close(o.release) })
	defer after.Stop()
	cancelled := <-ended
	return seen(cancelled, cancelled)
}

func (o *tools) pause(t *testing.T) string {
	defer close(o.release)
	o.wait(t, "ok")
	o.work(t)
	o.enqueue(t, "ok")
	o.eventually(t, "the job waits", func() bool { return o.stats(t).Waiting == 1 })
	must(t, o.PauseQueue(o.queue))
	o.enqueue(t, "hold")
	must(t, newInspector(t, o.client, o.queue).Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "ok"}))
	o.eventually(t, "the job runs all the same", func() bool { return o.stats(t).Done == 1 })
	tasks := o.info(t).Pending == 1 && o.stats(t).Running == 0
	must(t, o.UnpauseQueue(o.queue))
	o.eventually(t, "the task comes", func() bool { return o.stats(t).Running == 1 })
	return seen(tasks, false)
}

func (o *tools) deleteQueue(t *testing.T) string {
	o.wait(t, "later")
	o.work(t)
	o.enqueue(t, "later")
	o.enqueue(t, "later", asynq.ProcessIn(time.Hour))
	o.eventually(t, "a job waits", func() bool { return o.stats(t).Waiting == 1 && o.info(t).Active == 0 })
	must(t, o.DeleteQueue(o.queue, true))
	queues, err := o.Queues()
	must(t, err)
	return seen(!slices.Contains(queues, o.queue), o.stats(t).Waiting == 0)
}

// history is partly true if it counts tasks that were filed, and not what became of them.
func (o *tools) history(t *testing.T) string {
	o.wait(t, "later")
	o.work(t)
	o.enqueue(t, "later")
	o.enqueue(t, "fail")
	o.eventually(t, "one waits, one has failed", func() bool { s := o.stats(t); return s.Waiting+s.Later == 2 })
	o.eventually(t, "they are filed", func() bool { return o.info(t).Active == 0 })
	days, err := o.History(o.queue, 1)
	must(t, err)
	info := o.info(t)
	if days[0].Processed != info.Processed || days[0].Failed != info.Failed {
		t.Errorf("History %+v, QueueInfo %+v", days[0], info)
	}
	return seen(info.Processed > 0, info.Processed == 1 && info.Failed == 1)
}

func (o *tools) size(t *testing.T) string {
	o.enqueue(t, "later")
	before := o.info(t).Size == 1 && o.info(t).Latency > 0
	o.wait(t, "later")
	o.work(t)
	o.eventually(t, "the job waits", func() bool { return o.stats(t).Waiting == 1 && o.info(t).Active == 0 })
	return seen(before, o.info(t).Size > 0 || o.info(t).Latency > 0)
}

func (o *tools) servers(t *testing.T) string {
	defer close(o.release)
	o.work(t)
	o.enqueue(t, "hold")
	o.eventually(t, "it runs", func() bool { return o.stats(t).Running == 1 })
	listed, handlers := false, 0
	o.eventually(t, "the inbox is listed", func() bool {
		all, err := o.Servers()
		must(t, err)
		for _, server := range all {
			if server.Queues[o.queue] > 0 {
				listed, handlers = true, len(server.ActiveWorkers)
			}
		}
		return listed
	})
	return seen(listed, handlers > 0)
}

func (o *tools) schedulers(t *testing.T) string {
	o.work(t)
	scheduler := asynq.NewSchedulerFromRedisClient(o.client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel, HeartbeatInterval: 200 * time.Millisecond})
	entry, err := scheduler.Register("@every 1s", asynq.NewTaskWithHeaders("ok", nil, queue.Headers("ok", "teacher")), asynq.Queue(o.queue))
	must(t, err)
	must(t, scheduler.Start())
	defer scheduler.Shutdown()
	o.eventually(t, "it runs", func() bool { return o.stats(t).Done > 0 })
	var entries []*asynq.SchedulerEntry
	o.eventually(t, "it is listed", func() bool {
		entries, err = o.SchedulerEntries()
		must(t, err)
		return len(entries) == 1
	})
	events, err := o.ListSchedulerEnqueueEvents(entry)
	must(t, err)
	return seen(entries[0].ID == entry, len(events) > 0)
}

// A result has a place where asynq keeps the task. Anywhere else nothing is written, least of all a key that
// nobody would delete.
func TestResultsOfOtherJobsLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		runWorker(t, client, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			time.Sleep(time.Minute) // longer than some tasks are kept
			err := queue.WriteResult(ctx, task, []byte("done"))
			if err != nil {
				t.Error(err)
			}
			return err
		}), queue.WorkerConfig{Inbox: true})
		fleet := asynq.NewClientFromRedisClient(client)
		for name, options := range map[string][]asynq.Option{"not retained": nil, "too short": {asynq.Retention(time.Second)}, "good": {asynq.Retention(time.Hour)}} {
			task := asynq.NewTaskWithHeaders("push", nil, queue.Headers("school", name))
			_, err := fleet.Enqueue(task, append(options, asynq.Queue("push"), asynq.TaskID(name))...)
			must(t, err)
		}
		enqueue(t, client, named("no task", "u"))
		time.Sleep(2 * time.Minute)
		checkOutcome(t, client, queue.Counters{Done: 4}, "")
		keys := client.Keys(t.Context(), "asynq:{push}:t:*").Val()
		if info, err := asynq.NewInspectorFromRedisClient(client).GetTaskInfo("push", "good"); err != nil || string(info.Result) != "done" {
			t.Errorf("the good one: %+v, %v", info, err)
		}
		if slices.Contains(keys, "asynq:{push}:t:not retained") || slices.Contains(keys, "asynq:{push}:t:no task") {
			t.Errorf("left behind: %q", keys)
		}
		if client.HExists(t.Context(), "asynq:{push}:t:too short", "result").Val() && client.ZScore(t.Context(), "asynq:{push}:completed", "too short").Err() != nil {
			t.Error("a result without its task")
		}
	})
	if err := queue.WriteResult(t.Context(), asynq.NewTask("push", nil), nil); err == nil {
		t.Error("no error outside of a handler")
	}
	if err := queue.WriteResult(queuetest.NewContext(t.Context(), queue.Info{}), asynq.NewTask("push", nil), nil); err != nil {
		t.Errorf("in the test of a handler: %v", err)
	}
}
