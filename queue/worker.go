package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/internal/tenantlabel"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

// WorkerConfig configures a [Worker]. Queues is required.
type WorkerConfig struct {
	// Queues are the queues to take jobs from, each once.
	Queues []string

	// Concurrency is how many jobs run at once, over all queues. Defaults to 100.
	Concurrency int

	// Inbox makes the worker take the tasks of the asynq queues of the same names and put them
	// into their lanes. See [Headers].
	Inbox bool

	// InboxJob returns the job of a task without the headers of [Headers], from its type and payload, so that
	// producers need no change. Tenant and User are required; ID, Type, Payload, Headers and MaxAttempts are the
	// task's. A task for which it returns an error goes to asynq's archive. It must be safe for concurrent use. nil
	// archives all tasks without headers.
	InboxJob func(*asynq.Task) (Job, error)

	// Lease is how long a worker keeps its jobs without a beat; after that other workers run them
	// again. Defaults to 15 seconds; at least 1.
	Lease time.Duration

	// ShutdownTimeout is how long running handlers may go on when Run's context has ended; then
	// their contexts are cancelled. Defaults to 10 seconds.
	ShutdownTimeout time.Duration

	// RetryDelay is the time until the next attempt after the n-th failed with err.
	// Defaults to 1 s, 2 s, 4 s … up to 10 minutes, give or take half.
	RetryDelay func(n int, err error, task *asynq.Task) time.Duration

	// IsFailure reports, as in [asynq.Config], whether an error uses up an attempt. After an
	// error that does not, the job is attempted again after RetryDelay, however often. With nil
	// all errors do.
	IsFailure func(error) bool

	// ErrorHandler is called, as in [asynq.Config], with every error that a handler returns,
	// or panics with, that does not ask for a pause.
	ErrorHandler asynq.ErrorHandler

	// History is for how long the history of a job with an ID of its own is known ([Inspector.ExplainJob]): from its last
	// note on, and no longer than the ID itself ([Job.ID]). It takes some 220 bytes and 3 µs of Redis a job. 0 is a day; below 0 nothing
	// is noted.
	History time.Duration

	// Logger gets errors, warnings and notable events. nil is slog.Default().
	Logger *slog.Logger

	// Registerer gets the metrics. nil keeps none.
	Registerer prometheus.Registerer

	// MetricsTenants are the tenants, at most 100, of which there is a metric of their own: the histogram
	// waterclock_tenant_wait_seconds. Without them no metric has a label for tenants.
	MetricsTenants []string
}

func (c WorkerConfig) withDefaults() (WorkerConfig, error) {
	if len(c.Queues) == 0 {
		return c, fmt.Errorf("%w: Queues is empty; name at least one", ErrInvalidArgument)
	}
	for i, q := range c.Queues {
		if err := store.CheckQueue(q); err != nil {
			return c, invalidName{err}
		}
		if slices.Contains(c.Queues[:i], q) {
			return c, fmt.Errorf("%w: Queues names %q twice; name each queue once", ErrInvalidArgument, q)
		}
	}
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	c.History = cmp.Or(c.History, 24*time.Hour)
	switch {
	case c.Concurrency < 1:
		return c, fmt.Errorf("%w: Concurrency is %d; want at least 1", ErrInvalidArgument, c.Concurrency)
	case c.Lease < time.Second:
		return c, fmt.Errorf("%w: Lease is %v; want at least 1s", ErrInvalidArgument, c.Lease)
	case c.ShutdownTimeout < 0:
		return c, fmt.Errorf("%w: ShutdownTimeout is %v; want 0 or more", ErrInvalidArgument, c.ShutdownTimeout)
	}
	if err := tenantlabel.Check(c.MetricsTenants, 0); err != nil {
		return c, fmt.Errorf("%w: MetricsTenants: %w", ErrInvalidArgument, err)
	}
	if c.RetryDelay == nil {
		c.RetryDelay = backoff
	}
	c.Logger = cmp.Or(c.Logger, slog.Default())
	return c, nil
}

// inboxes returns the queues whose inboxes the worker opens.
func (c WorkerConfig) inboxes() []string {
	if c.Inbox {
		return c.Queues
	}
	return nil
}

// backoff is the default RetryDelay: exponential, with jitter so that what failed
// together does not come back together.
func backoff(n int, _ error, _ *asynq.Task) time.Duration {
	const longest = 10 * time.Minute
	delay := time.Duration(math.Min(float64(longest), float64(time.Second)*math.Pow(2, float64(n-1))))
	return delay/2 + mathrand.N(delay)
}

var errRunning = errors.New("queue: the worker runs already")

// A Worker runs the jobs of its queues when they may start. Any number of workers share
// a queue; each may stop or die at any time. One of them at a time leads it: it decides
// which job starts when, and where.
type Worker struct {
	cfg     WorkerConfig
	client  redis.UniversalClient
	metrics *metrics
	running atomic.Bool
}

// NewWorker returns a worker, or an error wrapping [ErrInvalidArgument].
//
// While it runs it waits for jobs, renews its lease and acknowledges on connections of its own,
// with the options of rdb: four for each queue, as a rule, beside rdb's pool, which may be as small
// as one connection. Hooks of rdb do not see what goes by them. A client that wraps another needs
// a method Unwrap() redis.UniversalClient for that; otherwise all goes by the client's own pool,
// whose PoolSize has to be larger than four times the number of queues.
func NewWorker(rdb redis.UniversalClient, cfg WorkerConfig) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(cfg.Registerer, cfg.MetricsTenants)
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, client: rdb, metrics: metrics}, nil
}

// Run takes jobs and runs h for each at its slot, until ctx ends. Then it takes no more,
// hands jobs that have not started back to their lanes, waits for the running ones
// (ShutdownTimeout, after which their contexts end) and returns nil. It may be called
// again after that, and returns an error while another Run has not ended.
//
// A handler's nil, or an error wrapping [asynq.RevokeTask], ends the job. Any other
// error, or a panic, is a failed attempt: the job is attempted again after RetryDelay,
// under the same rules as any other, until its MaxAttempts are exhausted or the error
// wraps [asynq.SkipRetry]; then it is dead and kept for [Inspector.Dead]. The values of ctx
// are those of the handlers' contexts, as with BaseContext of [asynq.Config].
//
// While Redis cannot be reached nothing starts; running handlers go on and are
// acknowledged when it is back.
func (w *Worker) Run(ctx context.Context, h asynq.Handler) error {
	if !w.running.CompareAndSwap(false, true) {
		return errRunning
	}
	defer w.running.Store(false)
	if f, ok := h.(*forwarder); ok {
		if err := f.check(w.cfg.inboxes()); err != nil {
			return err
		}
	}
	places := worker.NewPlaces(w.cfg.Concurrency)
	group, ctx := errgroup.WithContext(ctx)
	for _, queue := range w.cfg.Queues {
		group.Go(func() error { return w.serve(ctx, queue, places, h) })
		if w.cfg.Inbox {
			group.Go(func() error { return w.runInbox(ctx, queue) })
		}
	}
	return group.Wait()
}
