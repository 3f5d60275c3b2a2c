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
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A way is how an asynq service runs its handlers with waterclock: behind the inbox, or in its
// fleet behind Forward.
type way struct {
	s     stage
	fleet bool
}

// settings are what a service has in its [asynq.Config], and what it gives to Forward.
type settings struct {
	errors    asynq.ErrorHandler
	isFailure func(error) bool
	base      context.Context
	aggregate func(group string, tasks []*asynq.Task) *asynq.Task
	forward   []asynq.Option
}

const fleetQueue = "fleet"

// serve runs the service until the test ends.
func (w way) serve(t *testing.T, h asynq.Handler, c settings) {
	t.Helper()
	if c.base == nil {
		c.base = context.Background()
	}
	cfg := queue.WorkerConfig{Queues: []string{"push"}, Inbox: true}
	if w.fleet {
		w.serveFleet(t, h, c)
		h = queue.Forward(asynq.NewClientFromRedisClient(w.s.client), fleetQueue, c.forward...)
		c.base = context.Background()
	} else {
		cfg.ErrorHandler, cfg.IsFailure = c.errors, c.isFailure
		cfg.RetryDelay = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}
	worker, err := queue.NewWorker(w.s.client, cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(c.base)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, h) }()
	t.Cleanup(func() {
		cancel()
		must(t, <-done)
	})
}

func (w way) serveFleet(t *testing.T, h asynq.Handler, c settings) {
	t.Helper()
	cfg := asynq.Config{
		Queues: map[string]int{fleetQueue: 1}, Concurrency: 10, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		ErrorHandler:   c.errors, IsFailure: c.isFailure,
		BaseContext: func() context.Context { return c.base },
	}
	if c.aggregate != nil {
		cfg.GroupAggregator, cfg.GroupGracePeriod = asynq.GroupAggregatorFunc(c.aggregate), time.Second
	}
	server := asynq.NewServerFromRedisClient(w.s.client, cfg)
	must(t, server.Start(h))
	t.Cleanup(server.Shutdown)
}

// enqueue enqueues a task as the producer of the service does.
func (w way) enqueue(payload string, options ...asynq.Option) error {
	task := asynq.NewTaskWithHeaders("push", []byte(payload), queue.Headers("school", "teacher"))
	_, err := asynq.NewClientFromRedisClient(w.s.client).Enqueue(task, append(options, asynq.Queue("push"))...)
	return err
}

// holdsIf is a verdict.
func holdsIf(yes bool) string { return map[bool]string{true: "yes", false: "no"}[yes] }

// options holds for each row of the table in docs/migrate-from-asynq.md how to find out: yes if
// a service sees what it sees of asynq alone, partly with a difference, and no.
func options() map[string]func(t *testing.T, w way) string {
	return map[string]func(t *testing.T, w way) string{
		"Unique": uniqueHolds, "TaskID": taskIDHolds, "MaxRetry": maxRetryHolds, "Timeout": timeoutHolds,
		"Deadline": deadlineHolds, "ProcessAt": processAtHolds, "Retention": retentionHolds, "results": resultsHold,
		"Group": groupHolds, "periodic tasks": periodicTasksHold, "mux": muxHolds, "middleware": middlewareHolds,
		"ErrorHandler": errorHandlerHolds, "IsFailure": isFailureHolds, "BaseContext": baseContextHolds,
	}
}

// What docs/migrate-from-asynq.md says of each of asynq's options is so.
func TestWhatOfAsynqHolds(t *testing.T) {
	page, err := os.ReadFile("../docs/migrate-from-asynq.md")
	must(t, err)
	_, table, found := strings.Cut(string(page), "## What holds\n")
	if !found {
		t.Fatal("the page has no table")
	}
	rows := make(map[string][]string)
	for _, row := range regexp.MustCompile(`(?m)^\| ([^|]+) \| (yes|partly|no)\b[^|]* \| (yes|partly|no)\b[^|]* \|$`).FindAllStringSubmatch(table, -1) {
		rows[strings.Trim(row[1], "`")] = row[2:4]
	}
	if n := strings.Count(table, "\n|") - 2; n != len(rows) {
		t.Errorf("the table has %d rows, %d of them say yes, partly or no twice", n, len(rows))
	}
	probes := options()
	for _, option := range slices.Sorted(maps.Keys(rows)) {
		probe := probes[option]
		if probe == nil {
			t.Errorf("nobody finds out about %q", option)
			continue
		}
		delete(probes, option)
		for i, name := range []string{"inbox", "Forward"} {
			holds := func(t *testing.T, s stage) {
				if got := probe(t, way{s, i == 1}); got != rows[option][i] {
					t.Errorf("%s, %s: the page says %q, and it is %q", option, name, rows[option][i], got)
				}
			}
			t.Run(option+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { holds(t, stage{redistest.Mini(t), time.Second, true}) })
			})
			if option == "Unique" || option == "TaskID" { // what asynq's own scripts have a part in
				t.Run(option+"/"+name+"/redis", func(t *testing.T) {
					holds(t, stage{redistest.Start(t).Client(t), 40 * time.Millisecond, false})
				})
			}
		}
	}
	for option := range probes {
		t.Errorf("the table has no row for %s", option)
	}
}

// A holding handler counts and keeps its jobs until they are released.
type holding struct {
	runs    atomic.Int64
	ids     sync.Map
	release chan struct{}
}

func newHolding() *holding { return &holding{release: make(chan struct{})} }

func (h *holding) ProcessTask(ctx context.Context, t *asynq.Task) error {
	id, _ := asynq.GetTaskID(ctx)
	if info, ok := queue.FromContext(ctx); ok {
		id = info.ID
	}
	h.ids.Store(id, true)
	h.runs.Add(1)
	<-h.release
	return nil
}

func uniqueHolds(t *testing.T, w way) string {
	h := newHolding()
	w.serve(t, h, settings{})
	inspector := newInspector(t, w.s.client, "push")
	must(t, inspector.PauseTenant(t.Context(), "school", time.Now().Add(time.Hour)))
	must(t, w.enqueue("hello", asynq.Unique(time.Hour)))
	filed(t, w.s)
	if err := w.enqueue("hello", asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("while the job waits: %v", err)
	}
	must(t, inspector.ResumeTenant(t.Context(), "school"))
	w.s.eventually(t, "it runs", func() bool { return h.runs.Load() == 1 })
	if w.fleet { // the hand-over ends when the task is there
		w.s.eventually(t, "it is handed over", func() bool { return stats(t, w.s.client).Done == 1 })
	}
	held := errors.Is(w.enqueue("hello", asynq.Unique(time.Hour)), asynq.ErrDuplicateTask)
	close(h.release)
	runs := int64(2)
	if held {
		w.s.eventually(t, "it is done", func() bool { return stats(t, w.s.client).Done == 1 })
		must(t, w.enqueue("hello", asynq.Unique(time.Hour)))
	}
	w.s.eventually(t, "the next one runs", func() bool { return h.runs.Load() == runs })
	return holdsIf(held)
}

func taskIDHolds(t *testing.T, w way) string {
	h := newHolding()
	defer close(h.release)
	w.serve(t, h, settings{})
	must(t, w.enqueue("first", asynq.TaskID("order-17")))
	w.s.eventually(t, "it runs", func() bool { return h.runs.Load() == 1 })
	if err := w.enqueue("second", asynq.TaskID("order-17")); err != nil {
		return holdsIf(errors.Is(err, asynq.ErrTaskIDConflict))
	}
	filed(t, w.s)
	if !w.fleet && (stats(t, w.s.client).Duplicates != 1 || h.runs.Load() != 1) {
		t.Error("the second task was not refused")
	}
	verdict := "no"
	h.ids.Range(func(id, _ any) bool {
		if strings.Contains(id.(string), "order-17") {
			verdict = "partly"
		}
		return true
	})
	return verdict
}

func maxRetryHolds(t *testing.T, w way) string {
	var runs atomic.Int64
	w.serve(t, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		runs.Add(1)
		return errors.New("again")
	}), settings{})
	must(t, w.enqueue("hello", asynq.MaxRetry(2)))
	time.Sleep(20 * time.Second)
	return holdsIf(runs.Load() == 3)
}

func timeoutHolds(t *testing.T, w way) string {
	took := make(chan time.Duration, 2)
	w.serve(t, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		end, _ := ctx.Deadline()
		took <- time.Until(end)
		return nil
	}), settings{})
	yes := true
	for _, c := range []struct {
		options []asynq.Option
		want    time.Duration
	}{{[]asynq.Option{asynq.Timeout(20 * time.Second)}, 20 * time.Second}, {nil, 30 * time.Minute}} {
		must(t, w.enqueue("hello", c.options...))
		yes = yes && (<-took-c.want).Abs() < time.Second
	}
	return holdsIf(yes)
}

func deadlineHolds(t *testing.T, w way) string {
	ends := make(chan time.Time, 1)
	w.serve(t, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		ends <- time.Now()
		return asynq.SkipRetry
	}), settings{})
	deadline := time.Now().Add(10 * time.Second).Truncate(time.Second)
	must(t, w.enqueue("hello", asynq.Deadline(deadline)))
	return holdsIf((<-ends).Sub(deadline).Abs() < time.Second)
}

func processAtHolds(t *testing.T, w way) string {
	starts := make(chan time.Time, 1)
	w.serve(t, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		starts <- time.Now()
		return nil
	}), settings{})
	at := time.Now().Add(10 * time.Second)
	must(t, w.enqueue("hello", asynq.ProcessAt(at)))
	late := (<-starts).Sub(at)
	return holdsIf(late >= -time.Second && late < 3*time.Second)
}

func retentionHolds(t *testing.T, w way) string {
	h := newHolding()
	w.serve(t, h, settings{forward: []asynq.Option{asynq.Retention(time.Hour)}})
	completed := func(name string) int {
		info, err := asynq.NewInspectorFromRedisClient(w.s.client).GetQueueInfo(name)
		must(t, err)
		return info.Completed
	}
	must(t, w.enqueue("hello", asynq.Retention(time.Hour)))
	w.s.eventually(t, "it runs", func() bool { return h.runs.Load() == 1 })
	filed(t, w.s)
	before := completed("push")
	close(h.release)
	time.Sleep(10 * time.Second)
	switch {
	case w.fleet && completed(fleetQueue) == 1:
		return "partly"
	case completed("push") == 0:
		return "no"
	case before == 1:
		return "partly"
	}
	return "yes"
}

func resultsHold(t *testing.T, w way) string {
	ran := make(chan bool, 1)
	w.serve(t, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		defer func() { ran <- true }()
		if task.ResultWriter() == nil {
			return nil
		}
		_, err := task.ResultWriter().Write([]byte("done"))
		return err
	}), settings{forward: []asynq.Option{asynq.Retention(time.Hour)}})
	must(t, w.enqueue("hello", asynq.Retention(time.Hour)))
	<-ran
	if !w.fleet {
		return "no"
	}
	time.Sleep(time.Second)
	kept, err := asynq.NewInspectorFromRedisClient(w.s.client).ListCompletedTasks(fleetQueue)
	must(t, err)
	if len(kept) == 1 && string(kept[0].Result) == "done" {
		return "partly" // Forward needs the option
	}
	return "no"
}

func groupHolds(t *testing.T, w way) string {
	var runs, together atomic.Int64
	w.serve(t, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		runs.Add(1)
		if task.Type() == "all" {
			together.Add(1)
		}
		return nil
	}), settings{
		aggregate: func(string, []*asynq.Task) *asynq.Task { return asynq.NewTask("all", nil) },
		forward:   []asynq.Option{asynq.Group("news")},
	})
	for i := range 3 {
		must(t, w.enqueue(fmt.Sprint(i), asynq.Group("news")))
	}
	time.Sleep(10 * time.Second)
	if !w.fleet && runs.Load() == 3 || w.fleet && together.Load() > 0 && runs.Load() == together.Load() {
		return "partly"
	}
	return "no"
}

func periodicTasksHold(t *testing.T, w way) string {
	var runs atomic.Int64
	w.serve(t, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		runs.Add(1)
		return nil
	}), settings{})
	scheduler := asynq.NewSchedulerFromRedisClient(w.s.client, &asynq.SchedulerOpts{LogLevel: asynq.FatalLevel})
	task := asynq.NewTaskWithHeaders("digest", nil, queue.Headers("school", "teacher"))
	_, err := scheduler.Register("@every 2s", task, asynq.Queue("push"), asynq.TaskID("digest"))
	must(t, err)
	must(t, scheduler.Start())
	time.Sleep(13 * time.Second)
	scheduler.Shutdown()
	return holdsIf(runs.Load() == 6)
}

func muxHolds(t *testing.T, w way) string {
	var right, wrong atomic.Int64
	mux := asynq.NewServeMux()
	mux.HandleFunc("push", func(context.Context, *asynq.Task) error { right.Add(1); return nil })
	mux.HandleFunc("mail", func(context.Context, *asynq.Task) error { wrong.Add(1); return nil })
	w.serve(t, mux, settings{})
	must(t, w.enqueue("hello"))
	time.Sleep(10 * time.Second)
	return holdsIf(right.Load() == 1 && wrong.Load() == 0)
}

func middlewareHolds(t *testing.T, w way) string {
	type key struct{}
	var order []string
	mux := asynq.NewServeMux()
	mux.Use(func(next asynq.Handler) asynq.Handler {
		return asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
			order = append(order, "before")
			err := next.ProcessTask(context.WithValue(ctx, key{}, "value"), task)
			order = append(order, "after "+fmt.Sprint(err))
			return err
		})
	})
	mux.HandleFunc("push", func(ctx context.Context, task *asynq.Task) error {
		order = append(order, fmt.Sprint(ctx.Value(key{}), " ", string(task.Payload())))
		return nil
	})
	w.serve(t, mux, settings{})
	must(t, w.enqueue("hello"))
	time.Sleep(10 * time.Second)
	return holdsIf(slices.Equal(order, []string{"before", "value hello", "after <nil>"}))
}

func errorHandlerHolds(t *testing.T, w way) string {
	var mu sync.Mutex
	var reported []string
	w.serve(t, asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if string(task.Payload()) == "panics" {
			panic("oh")
		}
		return errors.New("broken")
	}), settings{errors: asynq.ErrorHandlerFunc(func(_ context.Context, task *asynq.Task, err error) {
		mu.Lock()
		defer mu.Unlock()
		reported = append(reported, string(task.Payload())+" "+strings.Fields(err.Error())[0])
	})})
	must(t, w.enqueue("fails", asynq.MaxRetry(1)))
	must(t, w.enqueue("panics", asynq.MaxRetry(0)))
	time.Sleep(10 * time.Second)
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(reported)
	return holdsIf(len(reported) == 3 && slices.Equal(reported[:2], []string{"fails broken", "fails broken"}) && strings.HasPrefix(reported[2], "panics panic"))
}

func isFailureHolds(t *testing.T, w way) string {
	busy := errors.New("busy")
	var runs atomic.Int64
	w.serve(t, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if runs.Add(1) <= 5 {
			return busy
		}
		return errors.New("broken")
	}), settings{isFailure: func(err error) bool { return !errors.Is(err, busy) }})
	must(t, w.enqueue("hello", asynq.MaxRetry(1)))
	time.Sleep(20 * time.Second)
	return holdsIf(runs.Load() == 7) // five that do not count, and two
}

func baseContextHolds(t *testing.T, w way) string {
	type key struct{}
	base, cancel := context.WithCancel(context.WithValue(context.Background(), key{}, "value"))
	ended, values := make(chan bool, 1), make(chan any, 1)
	w.serve(t, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		values <- ctx.Value(key{})
		select {
		case <-ctx.Done():
			ended <- true
		case <-time.After(5 * time.Second):
			ended <- false
		}
		return nil
	}), settings{base: base})
	must(t, w.enqueue("hello"))
	value := <-values
	cancel()
	switch {
	case value != "value":
		return "no"
	case <-ended:
		return "yes"
	}
	return "partly"
}

// A lock of asynq.Unique is over after its time, whatever its job does, and is not lifted by a
// job that has lost it.
func TestUniqueHoldsForItsTimeAtMost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := way{s: stage{redistest.Mini(t), time.Second, true}}
		w.serve(t, &recorder{}, settings{})
		inspector := newInspector(t, w.s.client, "push")
		must(t, inspector.PauseTenant(t.Context(), "school", time.Now().Add(60*time.Second)))
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
	onStages(t, func(t *testing.T, s stage) {
		w := way{s: s}
		setPolicies(t, s.client, policies(queue.Policy{Capacity: 1}))
		w.serve(t, &recorder{}, settings{})
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.PauseTenant(t.Context(), "school", time.Now().Add(time.Hour)))
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

// InboxKey says whose job a task without headers is; one in three cannot be told, and the
// others do not notice.
func TestInboxKey(t *testing.T) {
	onStages(t, func(t *testing.T, s stage) {
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{Inbox: true, InboxKey: func(task *asynq.Task) (string, string, error) {
			switch tenant, user, _ := strings.Cut(string(task.Payload()), "/"); tenant {
			case "error":
				return "", "", errors.New("no user in it")
			case "panic":
				panic("no slash")
			default:
				return tenant, user, nil
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
		for _, want := range []string{"InboxKey: no user in it", "InboxKey: panic: no slash", `InboxKey: tenant "school", user ""`} {
			if !strings.Contains(all, want) {
				t.Errorf("want %q in\n%s", want, all)
			}
		}
	})
}
