package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A recorder is a handler that keeps what was started.
type recorder struct {
	mu     sync.Mutex
	starts []queue.Info
	then   func(ctx context.Context, info queue.Info) error
}

func (r *recorder) ProcessTask(ctx context.Context, _ *asynq.Task) error {
	info, _ := queue.FromContext(ctx)
	r.mu.Lock()
	r.starts = append(r.starts, info)
	r.mu.Unlock()
	if r.then != nil {
		return r.then(ctx, info)
	}
	return nil
}

func (r *recorder) all() []queue.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.starts)
}

func (r *recorder) count() int { return len(r.all()) }

// runWorker runs a worker until the test ends or the returned function is called.
func runWorker(t *testing.T, client redis.UniversalClient, h asynq.Handler, cfg queue.WorkerConfig) (stop func()) {
	t.Helper()
	if cfg.Queues == nil {
		cfg.Queues = []string{"push"}
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	worker, err := queue.NewWorker(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func setPolicies(t *testing.T, client redis.UniversalClient, p queue.Policies) {
	t.Helper()
	if err := queue.NewInspector(client, "push").SetPolicies(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// policies is one policy for everybody.
func policies(p queue.Policy) queue.Policies {
	return queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": p}}
}

func enqueue(t *testing.T, client redis.UniversalClient, jobs ...queue.Job) []queue.Receipt {
	t.Helper()
	receipts, err := queue.NewClient(client, "push").Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

func stats(t *testing.T, client redis.UniversalClient) queue.Stats {
	t.Helper()
	s, err := queue.NewInspector(client, "push").Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// drained tells whether nothing waits or runs.
func drained(t *testing.T, client redis.UniversalClient) func() bool {
	return func() bool {
		s := stats(t, client)
		return s.Waiting == 0 && s.Running == 0 && s.Later == 0
	}
}

// verify checks the starts against a policy: users by their starts, tenants by their slots.
func verify(t *testing.T, starts []queue.Info, p queue.Policy) {
	t.Helper()
	var users, tenants []throttle.Event
	for _, s := range starts {
		if s.Started.Before(s.Slot) {
			t.Errorf("%s started %v before its slot", s.ID, s.Slot.Sub(s.Started))
		}
		users = append(users, throttle.Event{Subject: s.Tenant + "\x00" + s.User, At: s.Started})
		tenants = append(tenants, throttle.Event{Subject: s.Tenant, At: s.Slot})
	}
	for _, v := range append(throttle.Verify(users, p.User), throttle.Verify(tenants, p.Tenant)...) {
		t.Error(v)
	}
}

func jobs(tenant, user string, n int) []queue.Job {
	all := make([]queue.Job, n)
	for i := range all {
		all[i] = queue.Job{Tenant: tenant, User: user, Type: "push", Payload: fmt.Appendf(nil, "%s %s %d", tenant, user, i)}
	}
	return all
}

func TestFirstJob(t *testing.T) {
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		receipt := enqueue(t, client, jobs("school", "teacher", 1)...)[0]
		if receipt.Status != queue.Accepted || receipt.Place != 1 {
			t.Errorf("receipt %+v, want it accepted and first in line", receipt)
		}
		redistest.Eventually(t, 5*time.Second, "the job is done", func() bool { return stats(t, client).Done == 1 })
		start := got.all()[0]
		if start.ID != receipt.ID || start.Tenant != "school" || start.User != "teacher" || start.Attempt != 1 {
			t.Errorf("started %+v", start)
		}
	})
}

func TestHour(t *testing.T) {
	policy := queue.Policy{
		Tenant: []throttle.Rule{throttle.Leak(2, time.Second)},
		User:   []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)},
	}
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(policy))
		var got recorder
		for range 2 {
			runWorker(t, client, &got, queue.WorkerConfig{})
		}
		begin := time.Now()
		for user := range 50 {
			enqueue(t, client, jobs("big", fmt.Sprint("user-", user), 60)...)
		}
		enqueue(t, client, jobs("small", "only", 200)...)
		time.Sleep(time.Hour)
		if s := stats(t, client); s.Waiting != 0 || s.Running != 0 || s.Done != 3200 {
			t.Errorf("after an hour: %+v, want all 3200 done", s)
		}
		verify(t, got.all(), policy)
		perTenant := map[string][]time.Time{}
		for _, s := range got.all() {
			perTenant[s.Tenant] = append(perTenant[s.Tenant], s.Started)
			if !s.Started.Equal(s.Slot) {
				t.Fatalf("%s started %v after its slot, in a world without delays", s.ID, s.Started.Sub(s.Slot))
			}
		}
		for i, at := range perTenant["big"] {
			if want := perTenant["big"][0].Add(time.Duration(i) * time.Second / 2); !at.Equal(want) {
				t.Fatalf("start %d of the tenant with many lanes was %v off its leak", i, at.Sub(want))
			}
		}
		if first := perTenant["big"][0].Sub(begin); first > time.Millisecond {
			t.Errorf("the first start came after %v", first)
		}
	})
}
