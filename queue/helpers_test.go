package queue_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/watch"
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

// all returns the starts in their order: handlers that start close to each other write theirs down in
// any.
func (r *recorder) all() []queue.Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	starts := slices.Clone(r.starts)
	slices.SortStableFunc(starts, func(a, b queue.Info) int { return a.Started.Compare(b.Started) })
	return starts
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
	if err := newInspector(t, client, "push").SetPolicies(t.Context(), p); err != nil {
		t.Fatal(err)
	}
}

// policies is one policy for everybody.
func policies(p queue.Policy) queue.Policies {
	return queue.Policies{Default: "standard", Policies: map[string]queue.Policy{"standard": p}}
}

func enqueue(t *testing.T, client redis.UniversalClient, jobs ...queue.Job) []queue.Receipt {
	t.Helper()
	receipts, err := newClient(t, client, "push").Enqueue(t.Context(), jobs...)
	if err != nil {
		t.Fatal(err)
	}
	return receipts
}

func stats(t *testing.T, client redis.UniversalClient) queue.Stats {
	t.Helper()
	s, err := newInspector(t, client, "push").Stats(t.Context())
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

func leakOf(perSecond int) queue.Policy {
	return queue.Policy{Tenant: []throttle.Rule{throttle.Leak(perSecond, time.Second)}}
}

func newMini(t *testing.T) *miniredis.Miniredis {
	server := inprocess.New()
	t.Cleanup(server.Close)
	return server
}

// clientUntil returns a client whose connections are cut, for ever, when lost is closed.
func clientUntil(t *testing.T, server *miniredis.Miniredis, lost chan struct{}) *redis.Client {
	client := redis.NewClient(inprocess.Options(func() (net.Conn, error) {
		select {
		case <-lost:
			return nil, &net.OpError{Op: "dial", Err: errors.New("cut off")}
		default:
		}
		conn, err := inprocess.Dial(server)
		if err == nil {
			go func() {
				<-lost
				conn.Close()
			}()
		}
		return conn, err
	}))
	t.Cleanup(func() {
		select {
		case <-lost:
		default:
			close(lost)
		}
		client.Close()
		time.Sleep(10 * time.Second) // in the bubble: go-redis dials on for a while
	})
	return client
}

// hooked is a client of a type that nobody knows: its worker waits on its connections, and its
// hooks see the waits.
type hooked struct{ redis.UniversalClient }

// singly is a client that sends each command on its own: hooks can keep commits from Redis.
type singly struct{ redis.UniversalClient }

func (singly) AsyncAutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error) {
	return nil, errors.New("each command goes its own way")
}

// cutAfter is a hook that loses the reply of the first script, as a connection
// does that breaks after the script has run.
type cutAfter struct {
	cuts int
}

func (c *cutAfter) DialHook(next redis.DialHook) redis.DialHook { return next }

func (c *cutAfter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *cutAfter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if c.cuts == 0 && err == nil && strings.HasPrefix(cmd.Name(), "eval") {
			c.cuts++
			err = &net.OpError{Op: "read", Err: errors.New("connection reset")}
			cmd.SetErr(err)
		}
		return err
	}
}

func newInspector(t testing.TB, rdb redis.UniversalClient, name string) *queue.Inspector {
	t.Helper()
	inspector, err := queue.NewInspector(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return inspector
}

func newWatcher(t testing.TB, rdb redis.UniversalClient, name string) *watch.Watcher {
	t.Helper()
	w, err := watch.New(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// grace is how long after its slot a job may start: windows and spacings are wider by it.
const grace = schedule.Grace * time.Microsecond

func newClient(t testing.TB, rdb redis.UniversalClient, name string) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// gathered returns the sum of a counter.
func gathered(t *testing.T, metrics *prometheus.Registry, name string) (sum float64) {
	t.Helper()
	families, err := metrics.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			for _, m := range family.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}
