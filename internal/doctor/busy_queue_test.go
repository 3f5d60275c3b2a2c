package doctor

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	keys "github.com/waterclock/waterclock/queue/doctor"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
)

// A scene is a queue at work on a Redis of its own.
type scene struct {
	t         testing.TB
	client    *redis.Client
	inspector *watch.Watcher
	keys      *keys.Doctor
	offers    *queue.Client
	handler   func(ctx context.Context) error

	mu     sync.Mutex
	starts map[string]int // by ID
}

const name = "push"

func newScene(t testing.TB) *scene {
	t.Helper()
	s := &scene{t: t, client: redistest.Start(t).Client(t), starts: make(map[string]int)}
	var err error
	if s.keys, err = keys.New(s.client, name); err != nil {
		t.Fatal(err)
	}
	if s.inspector, err = watch.New(s.client, name); err != nil {
		t.Fatal(err)
	}
	if s.offers, err = queue.NewClient(s.client, name); err != nil {
		t.Fatal(err)
	}
	return s
}

// policies are rules of all kinds of subjects, and a concurrency limit.
func (s *scene) policies() {
	s.t.Helper()
	err := s.inspector.SetPolicies(s.t.Context(), queue.Policies{
		Queue: []throttle.Rule{throttle.Leak(5000, time.Second)}, Default: "p",
		Policies: map[string]queue.Policy{
			"p": {
				Tenant: []throttle.Rule{throttle.Leak(400, time.Second)}, TenantConcurrency: queue.Concurrency{Jobs: 20},
				User: []throttle.Rule{throttle.Window(20, time.Second), throttle.Spacing(2 * time.Millisecond)}, Capacity: 2000,
			},
			"hourly": {User: []throttle.Rule{throttle.Window(2, time.Hour)}},
		},
		Tenants: map[string]string{"slow": "hourly"},
	})
	s.must(err)
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// ProcessTask notes a start, and does what the scene's handler does.
func (s *scene) ProcessTask(ctx context.Context, _ *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	s.mu.Lock()
	s.starts[info.ID]++
	s.mu.Unlock()
	if s.handler == nil {
		return nil
	}
	return s.handler(ctx)
}

func (s *scene) started(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starts[id]
}

// work runs workers until the test ends, or the returned function is called.
func (s *scene) work(n int) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for range n {
		w, err := queue.NewWorker(s.client, queue.WorkerConfig{
			Queues: []string{name}, Concurrency: 30, Lease: time.Second, ShutdownTimeout: time.Second,
			RetryDelay: func(int, error, *asynq.Task) time.Duration { return 20 * time.Millisecond },
		})
		s.must(err)
		running.Go(func() { w.Run(ctx, s) })
	}
	stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	s.t.Cleanup(stop)
	return stop
}

// mixed returns a job that uses whatever jobs can use.
func mixed(r *rand.Rand, n int) queue.Job {
	job := queue.Job{
		Tenant: fmt.Sprint("t", r.IntN(8)), User: fmt.Sprint("u:", r.IntN(60)), Type: "x", Payload: []byte("p"),
		Priority: queue.Priority(r.IntN(3) - 1), MaxAttempts: 3,
	}
	switch r.IntN(10) {
	case 0:
		job.ID = fmt.Sprint("id ", n)
	case 1:
		job.CollapseKey = fmt.Sprint("k", r.IntN(3))
	case 2:
		job.Payload = []byte(strings.Repeat("large ", 1000))
	case 3:
		job.NotBefore = time.Now().Add(time.Duration(r.IntN(200)) * time.Millisecond)
	case 4:
		job.Tenant = "slow"
	case 5:
		job.StartBy = time.Now().Add(50 * time.Millisecond)
		job.ID, job.CollapseKey = fmt.Sprint("id ", n), "k"
	}
	return job
}

// ends lets handlers end in all ways.
func ends(ctx context.Context) error {
	r := rand.IntN(40)
	select {
	case <-ctx.Done():
	case <-time.After(time.Duration(r/4) * time.Millisecond):
	}
	switch r {
	case 0, 1:
		return errors.New("no")
	case 2:
		return asynq.SkipRetry
	case 3:
		return queue.RefundUser{}
	case 4:
		return queue.Pause{Scope: queue.ScopeUser, Until: time.Now().Add(30 * time.Millisecond)}
	case 5:
		return queue.Retry{Yield: true}
	}
	return nil
}

// A busy queue is sound: nothing is found, however often it is looked at, although everything
// moves.
func TestABusyQueueIsSound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	s := newScene(t)
	s.policies()
	s.handler = ends
	s.work(3)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var load sync.WaitGroup
	var offered atomic.Int64
	for seed := range 2 {
		load.Go(func() {
			r := rand.New(rand.NewPCG(7, uint64(seed)))
			for n := 0; ctx.Err() == nil; n++ {
				jobs := make([]queue.Job, 10)
				for i := range jobs {
					jobs[i] = mixed(r, int(offered.Add(1)))
				}
				if _, err := s.offers.Enqueue(ctx, jobs...); err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				switch n % 50 {
				case 10:
					s.inspector.Pause(ctx, queue.Pause{Scope: queue.ScopeTenant, Tenant: "t1", Until: time.Now().Add(20 * time.Millisecond)})
				case 20:
					s.inspector.Purge(ctx, "t2")
				case 30:
					s.inspector.Cancel(ctx, fmt.Sprint("id ", offered.Load()))
				case 40:
					s.policies()
				}
				select {
				case <-ctx.Done():
				case <-time.After(40 * time.Millisecond):
				}
			}
		})
	}
	for range 50 {
		found, err := Examine(t.Context(), s.client, name)
		s.must(err)
		for _, f := range found {
			t.Errorf("%+v", f)
		}
	}
	cancel()
	load.Wait()
	stats, err := s.inspector.Stats(t.Context())
	s.must(err)
	t.Logf("%d offered, %+v", offered.Load(), stats)
	if stats.Started == 0 {
		t.Error("nothing was going on")
	}
}
