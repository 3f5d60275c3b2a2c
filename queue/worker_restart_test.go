package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// A worker that runs again is as good as a new one.
func TestAWorkerRunsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{"push"}})
		must(t, err)
		var got recorder
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- worker.Run(ctx, &got) }()
			for range 20 {
				begin, before := time.Now(), got.count()
				enqueue(t, client, jobs("school", "teacher", 1)...)
				time.Sleep(50 * time.Millisecond)
				if got.count() != before+1 || got.all()[before].Started.Sub(begin) > 10*time.Millisecond {
					t.Errorf("%d starts, want %d at once", got.count(), before+1)
				}
			}
			if err := worker.Run(ctx, &got); err == nil || !strings.Contains(err.Error(), "runs already") {
				t.Errorf("a second Run beside the first: %v", err)
			}
			cancel()
			must(t, <-ended)
		}
	})
}

// haunt lets a worker be in the fleet that takes jobs and never does anything, until its
// lease ends.
func haunt(t *testing.T, client redis.UniversalClient, places int, lease time.Duration) {
	t.Helper()
	s, err := store.New(client, "push")
	must(t, err)
	_, err = s.Beat(t.Context(), store.Beat{Worker: "ghost", Lease: lease, Record: store.WorkerRecord{Places: places}})
	must(t, err)
}

// Jobs that were given to a worker which died before it started them have used no attempt,
// and come back in their order, however many they are.
func TestJobsThatNeverStartedAreNotDead(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		const count = 250 // more than are taken back at once
		inspector := newInspector(t, s.client, "push")
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		// Jobs that take no time would all have run by the time that the leader hears of the ghost.
		got := recorder{then: func(context.Context, queue.Info) error { time.Sleep(10 * time.Millisecond); return nil }}
		metrics := prometheus.NewRegistry()
		runWorker(t, s.client, &got, queue.WorkerConfig{Concurrency: 1, Lease: time.Second, Registerer: metrics})
		var all []queue.Job
		for i := range count {
			user := "u"
			if i%4 == 3 {
				user = "v"
			}
			all = append(all, named(fmt.Sprintf("job-%03d", i), user, func(j *queue.Job) { j.MaxAttempts = 1 }))
		}
		enqueue(t, s.client, all...)
		haunt(t, s.client, 10_000, 2*time.Second)
		must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeQueue}))
		claimed := func() int64 { return s.client.HLen(t.Context(), "wc:{push}:running:ghost").Val() }
		s.eventually(t, "the ghost has most of them", func() bool { return claimed()+int64(got.count()) == count })
		if claimed() < 200 {
			t.Fatalf("the ghost has %d", claimed())
		}
		s.eventually(t, "all have run", func() bool { return got.count() >= count && drained(t, s.client)() })
		checkOutcome(t, s.client, queue.Counters{Done: count}, "")
		// A job that a busy machine starts late comes back, and those that were claimed behind it go before.
		late := gathered(t, metrics, "waterclock_late_starts_total")
		before, seen := map[string]string{}, map[string]bool{}
		for _, start := range got.all() {
			if start.Attempt != 1 || seen[start.ID] {
				t.Errorf("%s ran in attempt %d, and before: %v", start.ID, start.Attempt, seen[start.ID])
			}
			seen[start.ID] = true
			if start.Waited > time.Second && start.ID < before[start.User] && (s.virtual || late == 0) {
				t.Errorf("%s came back after %s", start.ID, before[start.User])
			}
			if start.Waited > time.Second {
				before[start.User] = start.ID
			}
		}
	})
}

// Jobs of a lane that fail together, and wait as long, come back in their order.
func TestRetriesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	onStages(t, func(t *testing.T, s stage) {
		const count = 20
		var first atomic.Int64
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Attempt > 1 {
				return nil
			}
			first.Add(1)
			return errors.New("no")
		}}
		var all []queue.Job
		for i := range count {
			all = append(all, named(fmt.Sprintf("job-%02d", i), "u"))
		}
		enqueue(t, s.client, all...)
		setPolicies(t, s.client, policies(queue.Policy{User: []throttle.Rule{throttle.Spacing(s.unit / 10)}}))
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{Concurrency: 1, RetryDelay: after(s.units(5))})
		s.eventually(t, "all have failed", func() bool { return stats(t, s.client).Later+int64(got.count())-first.Load() == count })
		s.eventually(t, "all are done", ended(t, s.client, count))
		stop()
		if !s.virtual {
			return // a slow machine mixes retries and first attempts
		}
		for i, start := range got.all()[count:] {
			if want := fmt.Sprintf("job-%02d", i); start.ID != want {
				t.Errorf("retry %d is %s, want %s", i, start.ID, want)
			}
		}
	})
}

type badError struct{}

func (badError) Error() string { panic("this error has no text") }

// Whatever a handler does to get around its end is a failed attempt, and the worker lives.
// Jobs beside it do not notice.
func TestHandlersThatDoNotReturn(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for name, end := range map[string]func() error{
		"Goexit":                func() error { runtime.Goexit(); return nil },
		"panic":                 func() error { panic("no") },
		"an error that panics":  func() error { return badError{} },
		"a nil error of a type": func() error { var err *net.OpError; return fmt.Errorf("%w", err) },
		"a delay that panics":   func() error { return errors.New("delay") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				got := recorder{then: func(_ context.Context, info queue.Info) error {
					if info.User == "bad" {
						return end()
					}
					return nil
				}}
				delay := func(_ int, err error, _ *asynq.Task) time.Duration {
					if err.Error() == "delay" {
						panic("no delay")
					}
					return time.Second
				}
				runWorker(t, client, &got, queue.WorkerConfig{RetryDelay: delay, Logger: slog.New(slog.DiscardHandler)})
				bad := named("bad", "bad")
				bad.MaxAttempts = 3
				enqueue(t, client, bad)
				for range 20 {
					enqueue(t, client, jobs("school", "good", 1)...)
					time.Sleep(time.Second)
				}
				s := stats(t, client)
				if s.Done != 20 || s.Failed != 3 || s.Dead != 1 || s.Running+s.Waiting+s.Later != 0 {
					t.Errorf("%+v", s)
				}
				for _, start := range got.all() {
					if start.User == "good" && start.Waited > 10*time.Millisecond {
						t.Errorf("a job beside it waited %v", start.Waited)
					}
				}
			})
		})
	}
}

// outage is a hook that lets the scripts of one queue fail while it is on, some of them
// after they have run.
type outage struct {
	queue string
	on    atomic.Bool
	calls atomic.Int64
}

func (o *outage) DialHook(next redis.DialHook) redis.DialHook { return next }

func (o *outage) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (o *outage) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !o.on.Load() || !strings.HasPrefix(cmd.Name(), "eval") || !strings.HasPrefix(fmt.Sprint(cmd.Args()[3]), "wc:{"+o.queue+"}:") {
			return next(ctx, cmd)
		}
		if o.calls.Add(1)%2 == 0 {
			next(ctx, cmd) // it arrives, and its reply does not
		}
		time.Sleep(time.Second) // a read timeout
		err := &net.OpError{Op: "read", Err: errors.New("connection reset")}
		cmd.SetErr(err)
		return err
	}
}

// The end of a job that could not be told is told when Redis is back, though another
// queue has all places of the worker: the job does not run again.
func TestEndsAreToldAfterTrouble(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		hook := &outage{queue: "a"}
		mine := redis.NewClient(client.Options())
		t.Cleanup(func() { mine.Close() })
		mine.AddHook(hook)
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.Queue == "b" {
				time.Sleep(3 * time.Minute)
				return nil
			}
			hook.on.Store(true) // Redis is away for a moment
			time.AfterFunc(4*time.Second, func() { hook.on.Store(false) })
			return nil
		}}
		runWorker(t, singly{mine}, &got, queue.WorkerConfig{Queues: []string{"a", "b"}, Concurrency: 1})
		time.Sleep(time.Second)
		var other recorder
		runWorker(t, client, &other, queue.WorkerConfig{Queues: []string{"a"}})
		offer := func(name string) {
			_, err := newClient(t, client, name).Enqueue(t.Context(), jobs("t", "u", 1)...)
			must(t, err)
		}
		offer("a")
		time.Sleep(time.Second)
		offer("b")
		time.Sleep(5 * time.Minute)
		ran := got.count() + other.count()
		s, err := newInspector(t, client, "a").Stats(t.Context())
		must(t, err)
		if ran != 2 || s.Done != 1 || s.Running+s.Waiting != 0 {
			t.Errorf("%d starts of 2 jobs, %+v", ran, s)
		}
	})
}

// slowly is a hook under which scripts are on their way for a while, once it is told so.
type slowly struct{ on atomic.Bool }

func (s *slowly) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *slowly) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *slowly) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.on.Load() && strings.HasPrefix(cmd.Name(), "eval") {
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				cmd.SetErr(ctx.Err())
				return ctx.Err()
			}
		}
		return next(ctx, cmd)
	}
}

// A worker that stops does not leave while the end of a job is on its way to Redis: the job
// would run again. So it is for a leader, whose commits take ends along, and for others.
func TestAStoppingWorkerTellsItsEnds(t *testing.T) {
	t.Parallel()
	for _, leads := range []bool{true, false} {
		for _, after := range []time.Duration{0, time.Millisecond, 4 * time.Millisecond, 20 * time.Millisecond, 70 * time.Millisecond} {
			t.Run(fmt.Sprintf("leads %v, %v after the end", leads, after), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { stopAfterAnEnd(t, leads, after) })
			})
		}
	}
}

func stopAfterAnEnd(t *testing.T, leads bool, after time.Duration) {
	server := newMini(t)
	client, mine := redistest.MiniClient(t, server), redistest.MiniClient(t, server)
	var hook slowly
	mine.AddHook(&hook)
	if !leads { // another one does, and has no place for the job
		runWorker(t, client, &recorder{then: func(ctx context.Context, _ queue.Info) error {
			<-ctx.Done()
			return ctx.Err()
		}}, queue.WorkerConfig{Concurrency: 1, ShutdownTimeout: time.Second})
		time.Sleep(time.Second)
		enqueue(t, client, jobs("a", "u", 1)...)
		time.Sleep(time.Second)
	}
	got := recorder{then: func(context.Context, queue.Info) error {
		time.Sleep(time.Second)
		hook.on.Store(true)
		return nil
	}}
	stop := runWorker(t, singly{mine}, &got, queue.WorkerConfig{Concurrency: 10})
	time.Sleep(time.Second)
	enqueue(t, client, jobs("b", "u", 1)...)
	time.Sleep(time.Second + after)
	stop()
	s := stats(t, client)
	if got.count() != 1 || s.Done != 1 || s.Running != s.Started-1 {
		t.Errorf("%d starts; when the worker has stopped: %+v", got.count(), s)
	}
}

// A pause in the past, as a worker with a slow clock asks for, does not repeat a job
// without end.
func TestPausesInThePast(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := recorder{then: func(context.Context, queue.Info) error {
			return queue.Pause{Scope: queue.ScopeTenant, Until: time.Now().Add(-time.Hour), Cause: errors.New("429")}
		}}
		runWorker(t, client, &got, queue.WorkerConfig{})
		enqueue(t, client, jobs("school", "teacher", 1)...)
		time.Sleep(9500 * time.Millisecond)
		if n := got.count(); n != 10 {
			t.Errorf("%d requests in 10 s, want one a second", n)
		}
	})
}

// Redis keeps a bounded part of an error, and the log another.
func TestErrorTextsAreBounded(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		got := recorder{then: func(context.Context, queue.Info) error { return errors.New(strings.Repeat("é", 1<<20)) }}
		var log redistest.Buffer
		runWorker(t, s.client, &got, queue.WorkerConfig{Logger: slog.New(slog.NewTextHandler(&log, nil)), RetryDelay: after(0)})
		enqueue(t, s.client, named("a", "u", func(j *queue.Job) { j.MaxAttempts = 2 }))
		s.eventually(t, "it is dead", func() bool { return stats(t, s.client).Dead == 1 })
		dead, err := newInspector(t, s.client, "push").Dead(t.Context(), "", 1)
		must(t, err)
		if n := len(dead[0].Error); n > 5000 || n < 1000 || !strings.HasSuffix(dead[0].Error, " …") {
			t.Errorf("%d bytes are kept of the error", n)
		}
		if n := len(log.String()); n > 20_000 {
			t.Errorf("%d bytes are logged", n)
		}
	})
}
