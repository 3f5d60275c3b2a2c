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

// What docs/migrate-from-asynq.md says of each of asynq's options is so.
func TestWhatOfAsynqHolds(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
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
	must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(time.Hour)}))
	must(t, w.enqueue("hello", asynq.Unique(time.Hour)))
	filed(t, w.s)
	if err := w.enqueue("hello", asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("while the job waits: %v", err)
	}
	must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school"}))
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
	nils := false
	w.serve(t, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		defer func() { ran <- true }()
		nils = task.ResultWriter() == nil
		return queue.WriteResult(ctx, task, []byte("done"))
	}), settings{forward: []asynq.Option{asynq.Retention(time.Hour)}})
	must(t, w.enqueue("hello", asynq.Retention(time.Hour)))
	<-ran
	time.Sleep(time.Second)
	where := map[bool]string{true: fleetQueue, false: "push"}[w.fleet]
	kept, err := asynq.NewInspectorFromRedisClient(w.s.client).ListCompletedTasks(where)
	must(t, err)
	if nils == w.fleet || len(kept) != 1 || string(kept[0].Result) != "done" {
		return "no"
	}
	return "partly" // Forward needs the option, and a worker WriteResult
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
	synctest.Wait()
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

// shutdownHolds stops the service while its only attempt of a job runs. In asynq the task runs
// again, since it has used no retry.
func shutdownHolds(t *testing.T, w way) string {
	release := make(chan struct{})
	var runs atomic.Int64
	h := asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		if runs.Add(1) > 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-release:
			return nil
		}
	})
	stop := w.serve(t, h, settings{})
	must(t, w.enqueue("hello", asynq.MaxRetry(0)))
	time.Sleep(10 * time.Second)
	if runs.Load() != 1 {
		t.Errorf("%d runs before the shutdown", runs.Load())
	}
	stop()
	close(release) // asynq leaves the handler behind
	w.serve(t, h, settings{})
	time.Sleep(time.Minute)
	return holdsIf(runs.Load() == 2)
}
