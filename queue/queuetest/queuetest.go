// Package queuetest tests handlers and policies of your own in virtual time: minutes of a
// queue take a moment, an hour some seconds, and every instant is exact. Nothing has to be installed.
//
//	func TestReminders(t *testing.T) {
//		queuetest.Run(t, queuetest.Config{Policies: policies, Handler: handler}, func(t *testing.T, q *queuetest.Queue) {
//			q.Enqueue(queue.Job{Tenant: "school-7", User: "teacher-42", Type: "reminder"})
//			q.Drain()
//			q.Verify()
//			if n := len(q.Starts()); n != 1 {
//				t.Errorf("%d starts", n)
//			}
//		})
//	}
//
// The queue is a real one, with workers and a Redis inside the process, in a bubble of
// testing/synctest: time stands still while a goroutine of the bubble runs, and jumps ahead when
// all of them wait. So a handler must not wait for anything outside the bubble, such as a network
// connection or a mutex; time.Sleep, channels and contexts are fine. For the handler alone,
// without a queue, see [NewContext].
package queuetest

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/judged"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/ctxkey"
	"github.com/waterclock/waterclock/throttle"
)

// Config says what is tested. The zero value has no limits, one worker, and a handler that
// returns nil.
type Config struct {
	Policies queue.Policies
	Handler  asynq.Handler      // what the workers run; nil returns nil
	Worker   queue.WorkerConfig // of every worker; Queues is set, and without a Logger it logs to the test
	Workers  int                // how many; 0 is one
}

// A Queue is a queue in a bubble. Its methods end the test where they fail.
type Queue struct {
	Redis     redis.UniversalClient
	Client    *queue.Client
	Inspector *queue.Inspector

	t        *testing.T // of the bubble
	policies queue.Policies
	mu       sync.Mutex
	starts   []queue.Info
}

// Name is that of the queue.
const Name = "test"

// Run calls test with a queue whose workers run, in virtual time, and stops them after it. The
// test has to use the t that it is given: that of the bubble.
func Run(t *testing.T, cfg Config, test func(t *testing.T, q *Queue)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, open(t, cfg))
	})
}

func open(t *testing.T, cfg Config) *Queue {
	server := inprocess.New()
	t.Cleanup(server.Close)
	client := inprocess.NewClient(server)
	t.Cleanup(func() { client.Close() })
	q := &Queue{t: t, Redis: client, policies: cfg.Policies}
	var err error
	q.Client, err = queue.NewClient(client, Name)
	q.must(err)
	q.Inspector, err = queue.NewInspector(client, Name)
	q.must(err)
	q.must(q.Inspector.SetPolicies(t.Context(), cfg.Policies))
	for range max(1, cfg.Workers) {
		q.work(cfg)
	}
	return q
}

// work runs a worker until the test ends.
func (q *Queue) work(cfg Config) {
	cfg.Worker.Queues = []string{Name}
	if cfg.Worker.Logger == nil {
		cfg.Worker.Logger = slog.New(slog.NewTextHandler(q.t.Output(), nil))
	}
	worker, err := queue.NewWorker(q.Redis, cfg.Worker)
	q.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx, q.recording(cfg.Handler)) }()
	q.t.Cleanup(func() {
		cancel()
		q.must(<-ended)
	})
}

// recording notes every start before the handler runs.
func (q *Queue) recording(handler asynq.Handler) asynq.HandlerFunc {
	return func(ctx context.Context, task *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		q.mu.Lock()
		q.starts = append(q.starts, info)
		q.mu.Unlock()
		if handler == nil {
			return nil
		}
		return handler.ProcessTask(ctx, task)
	}
}

func (q *Queue) must(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatal(err)
	}
}

// Enqueue offers jobs and returns their receipts.
func (q *Queue) Enqueue(jobs ...queue.Job) []queue.Receipt {
	q.t.Helper()
	receipts, err := q.Client.Enqueue(q.t.Context(), jobs...)
	q.must(err)
	return receipts
}

// Advance lets time pass.
func (q *Queue) Advance(d time.Duration) { time.Sleep(d) }

// drainsWithin bounds Drain, in virtual time.
const drainsWithin = 24 * time.Hour

// Drain lets time pass until nothing waits, runs, or is due later, 24 hours at most. An hour in which nothing
// happens takes some seconds.
func (q *Queue) Drain() {
	q.t.Helper()
	step := 10 * time.Millisecond
	for begin := time.Now(); ; step = min(2*step, 10*time.Second) {
		time.Sleep(step)
		stats, err := q.Inspector.Stats(q.t.Context())
		q.must(err)
		if stats.Waiting+stats.Running+stats.Later == 0 {
			return
		}
		if time.Since(begin) > drainsWithin {
			q.t.Fatalf("after %v still %d jobs wait, %d run and %d are due later", drainsWithin, stats.Waiting, stats.Running, stats.Later)
		}
	}
}

// Starts returns all starts until now, in order of time.
func (q *Queue) Starts() []queue.Info {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(q.starts), func(a, b queue.Info) int {
		return cmp.Or(a.Started.Compare(b.Started), cmp.Compare(a.ID, b.ID))
	})
}

// Verify fails the test for every start that broke a rule of the policies. It uses
// [throttle.Verify], which shares no code with the scheduler. Starts that gave their slots back
// (see [queue.RefundUser]) count as starts here.
func (q *Queue) Verify() {
	q.t.Helper()
	for _, v := range violations(q.Starts(), q.policies) {
		q.t.Error(v)
	}
}

// violations returns every start that broke a rule.
func violations(starts []queue.Info, p queue.Policies) []throttle.Violation {
	tenants, users := make(map[string][]queue.Info), make(map[string][]queue.Info)
	for _, s := range starts {
		name, named := p.Tenants[s.Tenant]
		if !named {
			name = p.Default
		}
		tenants[name], users[name] = append(tenants[name], s), append(users[name], s)
	}
	found := verify(starts, p.Queue, func(queue.Info) string { return "the queue" })
	for name, policy := range p.Policies {
		found = append(found, verify(tenants[name], policy.Tenant, func(s queue.Info) string { return s.Tenant })...)
		found = append(found, verify(users[name], policy.User, func(s queue.Info) string { return s.Tenant + " / " + s.User })...)
	}
	return found
}

// verify checks rules, on starts or on slots.
func verify(starts []queue.Info, rules []throttle.Rule, subject func(queue.Info) string) (found []throttle.Violation) {
	for _, together := range judged.Together(rules) {
		log := make([]throttle.Event, len(starts))
		for i, s := range starts {
			log[i] = throttle.Event{Subject: subject(s), At: s.Slot, Cost: s.Cost}
			if judged.ByStarts(together[0]) {
				log[i].At = s.Started
			}
		}
		found = append(found, throttle.Verify(log, together)...)
	}
	return found
}

// NewContext returns a context in which [queue.FromContext] finds what is known of a job: for tests
// of a handler alone.
func NewContext(ctx context.Context, info queue.Info) context.Context {
	return context.WithValue(ctx, ctxkey.Info{}, &info)
}
