package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// after makes failed attempts come back after exactly so long.
func after(d time.Duration) func(int, error, *asynq.Task) time.Duration {
	return func(int, error, *asynq.Task) time.Duration { return d }
}

// ended tells whether so many jobs were offered and all have come to their ends.
func ended(t *testing.T, client redis.UniversalClient, jobs int64) func() bool {
	return func() bool {
		s := stats(t, client)
		return s.Offered == jobs && s.Waiting+s.Running+s.Later == 0
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	tests := map[string]struct {
		then        func(ctx context.Context, info queue.Info) error
		maxAttempts int
		attempts    int
		want        queue.Counters // without Offered and Started
		dead        string         // part of the last error
	}{
		"nil ends it":            {func(context.Context, queue.Info) error { return nil }, 0, 1, queue.Counters{Done: 1}, ""},
		"RevokeTask ends it":     {func(context.Context, queue.Info) error { return fmt.Errorf("gone: %w", asynq.RevokeTask) }, 0, 1, queue.Counters{Done: 1}, ""},
		"an error is retried":    {failUntil(3, errors.New("no")), 0, 3, queue.Counters{Done: 1, Failed: 2}, ""},
		"a panic is an error":    {panicUntil(2), 0, 2, queue.Counters{Done: 1, Failed: 1}, ""},
		"attempts end":           {failUntil(99, errors.New("no way")), 3, 3, queue.Counters{Failed: 3, Dead: 1}, "no way"},
		"never retried":          {failUntil(99, errors.New("no")), 1, 1, queue.Counters{Failed: 1, Dead: 1}, "no"},
		"SkipRetry ends in dead": {failUntil(99, fmt.Errorf("bad: %w", asynq.SkipRetry)), 0, 1, queue.Counters{Failed: 1, Dead: 1}, "bad"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				got := recorder{then: test.then}
				runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(s.unit)})
				job := jobs("school", "teacher", 1)[0]
				job.MaxAttempts = test.maxAttempts
				begin := time.Now().Truncate(time.Microsecond)
				enqueue(t, s.client, job)
				s.eventually(t, "it has ended", ended(t, s.client, 1))
				checkOutcome(t, s.client, test.want, test.dead)
				starts := got.all()
				if len(starts) != test.attempts {
					t.Fatalf("%d attempts, want %d", len(starts), test.attempts)
				}
				want := begin
				for i, start := range starts {
					if i > 0 { // its delay after the end of the one before, which was at once
						want = starts[i-1].Started.Add(s.unit)
					}
					if start.Attempt != i+1 || s.wrong(start.Started, want) {
						t.Errorf("attempt %d was number %d and %v late", i+1, start.Attempt, start.Started.Sub(want))
					}
				}
			})
		})
	}
}

func checkOutcome(t *testing.T, client redis.UniversalClient, want queue.Counters, dead string) {
	t.Helper()
	s := stats(t, client)
	if s.Waiting+s.Running+s.Later != 0 {
		t.Errorf("left: %+v", s)
	}
	s.Offered, s.Started = 0, 0
	if s.Counters != want {
		t.Errorf("got %+v, want %+v", s.Counters, want)
	}
	buried, err := newInspector(t, client, "push").Dead(t.Context(), "", 10)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(buried)) != want.Dead {
		t.Fatalf("%d dead, want %d", len(buried), want.Dead)
	}
	for _, d := range buried {
		if !strings.Contains(d.Error, dead) || d.Tenant != "school" || d.User != "teacher" {
			t.Errorf("dead: %+v", d)
		}
	}
}

func failUntil(attempt int, err error) func(context.Context, queue.Info) error {
	return func(_ context.Context, info queue.Info) error {
		if info.Attempt < attempt {
			return err
		}
		return nil
	}
}

func panicUntil(attempt int) func(context.Context, queue.Info) error {
	return func(_ context.Context, info queue.Info) error {
		if info.Attempt < attempt {
			panic("oh no")
		}
		return nil
	}
}

// A timeout asks the handler to end, and what it returns decides. One that does not listen
// is reported, keeps its place and its lease, and is the only one to run the job.
func TestTimeoutAsksTheHandler(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel() // it takes more than five seconds on a real Redis
	onStages(t, func(t *testing.T, s stage) {
		var log redistest.Buffer
		stuck := func() bool { return strings.Contains(log.String(), "a handler ignores the end of its context") }
		asked := make(chan error, 1)
		var let time.Time // when the handler ended
		got := recorder{then: func(ctx context.Context, info queue.Info) error {
			if info.Attempt > 1 {
				return nil
			}
			<-ctx.Done()
			asked <- ctx.Err()
			s.eventually(t, "it is reported as stuck", stuck)
			if all := stats(t, s.client); all.Running != 1 || all.Started != 1 {
				t.Errorf("while it is stuck: %+v", all)
			}
			let = time.Now().Truncate(time.Microsecond)
			return ctx.Err()
		}}
		logger := slog.New(slog.NewTextHandler(&log, nil))
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(s.unit), Lease: time.Second, Logger: logger})
		job := jobs("school", "teacher", 1)[0]
		job.Timeout = s.unit
		enqueue(t, s.client, job)
		s.eventually(t, "it has ended", ended(t, s.client, 1))
		if err := <-asked; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the context ended with %v", err)
		}
		starts := got.all()
		if len(starts) != 2 || s.wrong(starts[1].Started, let.Add(s.unit)) {
			t.Errorf("starts %+v; want a second one %v after the end of the first", starts, s.unit)
		}
		checkOutcome(t, s.client, queue.Counters{Done: 1, Failed: 1}, "")
	})
}

func TestShutdown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		policy := leakOf(100)
		setPolicies(t, client, policies(policy))
		stuck := recorder{then: func(ctx context.Context, _ queue.Info) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		stop := runWorker(t, client, &stuck, queue.WorkerConfig{RetryDelay: after(time.Second)})
		offered := enqueue(t, client, jobs("school", "teacher", 20)...)
		time.Sleep(95 * time.Millisecond)
		begin := time.Now()
		stop()
		if took := time.Since(begin) - 10*time.Second; took < 0 || took > 5*time.Millisecond {
			t.Errorf("stopping took %v more than the shutdown timeout", took)
		}
		started := stuck.count()
		if s := stats(t, client); s.Running+s.Later+s.Failed != 0 || s.Waiting != 20 {
			t.Errorf("after the stop: %+v, %d started; want none failed and all 20 waiting", s, started)
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Minute)
		verify(t, got.all(), policy)
		interrupted := make(map[string]bool)
		for _, s := range stuck.all() {
			interrupted[s.ID] = true
		}
		for i, s := range got.all() {
			if i < started && !interrupted[s.ID] {
				t.Errorf("start %d is %s, want one of the %d that had started before", i, s.ID, started)
			}
			if want := offered[i].ID; i >= started && s.ID != want {
				t.Errorf("start %d is %s, want %s: jobs handed back keep their order", i, s.ID, want)
			}
		}
		if got.count() != 20 {
			t.Errorf("%d starts, want 20", got.count())
		}
	})
}

func TestLostWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		lost := make(chan struct{})
		dying := clientUntil(t, server, lost)
		client := redistest.MiniClient(t, server)
		hang := recorder{then: func(ctx context.Context, _ queue.Info) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		stop := runWorker(t, dying, &hang, queue.WorkerConfig{ShutdownTimeout: time.Nanosecond})
		enqueue(t, client, jobs("school", "teacher", 5)...)
		time.Sleep(time.Second)
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Minute)
		if hang.count() != 5 || got.count() != 0 {
			t.Fatalf("%d and %d starts; a living worker keeps its jobs", hang.count(), got.count())
		}
		begin := time.Now()
		close(lost)
		time.Sleep(time.Minute)
		for _, s := range got.all() {
			if after := s.Started.Sub(begin); after > 20*time.Second || s.Attempt != 2 {
				t.Errorf("attempt %d came %v after the loss, want the second within 20s", s.Attempt, after)
			}
		}
		if got.count() != 5 {
			t.Errorf("%d jobs came back, want 5", got.count())
		}
		stop()
		if s := stats(t, client); s.Done != 5 || s.Dead != 0 {
			t.Errorf("%+v: a worker without its leases acknowledges nothing", s)
		}
	})
}

func TestKillerJobEndsInDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		client := redistest.MiniClient(t, server)
		job := jobs("school", "teacher", 1)[0]
		job.MaxAttempts = 3
		enqueue(t, client, job)
		for range 3 {
			lost := make(chan struct{})
			dying := clientUntil(t, server, lost)
			killed := recorder{then: func(ctx context.Context, _ queue.Info) error {
				<-ctx.Done()
				return ctx.Err()
			}}
			stop := runWorker(t, dying, &killed, queue.WorkerConfig{ShutdownTimeout: time.Nanosecond})
			time.Sleep(time.Minute)
			close(lost)
			stop()
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Minute)
		checkOutcome(t, client, queue.Counters{Failed: 3, Dead: 1}, "lease expired")
	})
}

// An ErrorHandler that panics changes nothing of what becomes of the job: one that is done stays
// done, one that is dead stays dead.
func TestAnErrorHandlerPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			if info.ID == "done" {
				return asynq.RevokeTask
			}
			return asynq.SkipRetry
		}}
		runWorker(t, client, &got, queue.WorkerConfig{ErrorHandler: asynq.ErrorHandlerFunc(func(context.Context, *asynq.Task, error) { panic("oh") })})
		enqueue(t, client, named("done", "u"), named("dead", "v"))
		time.Sleep(time.Minute)
		if s := stats(t, client); got.count() != 2 || s.Done != 1 || s.Dead != 1 {
			t.Errorf("%d starts of 2 jobs, %+v", got.count(), s)
		}
	})
}

// The ID of a job that is dead since its payload is gone says so.
func TestTheIDOfAJobWithoutItsPayload(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		enqueue(t, client, named("big", "u", func(j *queue.Job) { j.Payload = make([]byte, 1<<20) }))
		keys := client.Keys(t.Context(), "wc:{push}:body:*").Val()
		if len(keys) != 1 || client.Del(t.Context(), keys...).Err() != nil {
			t.Fatalf("payloads: %v", keys)
		}
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(time.Second)
		if s, where := stats(t, client), client.Get(t.Context(), "wc:{push}:id:big").Val(); s.Dead != 1 || where != "dead" {
			t.Errorf("%+v; the job is said to be %q", s, where)
		}
	})
}

// The error of a handler that panicked says where, to an ErrorHandler; its text does not, which is kept in Redis.
func TestAPanicHasItsStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var reported *queue.PanicError
		stop := runWorker(t, client, asynq.HandlerFunc(func(context.Context, *asynq.Task) error { panic("oh no") }), queue.WorkerConfig{
			ErrorHandler: asynq.ErrorHandlerFunc(func(_ context.Context, _ *asynq.Task, err error) { errors.As(err, &reported) }),
		})
		defer stop()
		enqueue(t, client, jobs("a", "u", 1)...)
		time.Sleep(time.Second)
		synctest.Wait()
		switch {
		case reported == nil:
			t.Error("the ErrorHandler got no PanicError")
		case reported.Value != "oh no" || reported.Error() != "panic: oh no" || !strings.Contains(reported.Stack, "handler_outcomes_test.go"):
			t.Errorf("%v, %q with the stack %s", reported.Value, reported.Error(), reported.Stack)
		}
	})
}
