package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	mathrand "math/rand/v2"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/internal/store"
)

// Grace is how long after its slot a job may still start without asking again. The
// windows and spacings in force are that much wider than written, so that the starts
// keep them as they are written.
const Grace = 5 * time.Millisecond

// WorkerConfig configures a [Worker]. Queues is required.
type WorkerConfig struct {
	// Queues are the queues to pull from.
	Queues []string

	// Concurrency is how many jobs run at once, over all queues. Defaults to 100.
	Concurrency int

	// Inbox opens the other door: the worker takes the tasks of the asynq queue of the
	// same name and files them into their lanes. See [Headers].
	Inbox bool

	// Lease is how long a pulled job stays with a worker that is not heard of any more.
	// Defaults to 15 seconds; at least 1.
	Lease time.Duration

	// ShutdownTimeout is how long running handlers get to end when Run's context has
	// ended; then theirs are cancelled. Defaults to 10 seconds.
	ShutdownTimeout time.Duration

	// RetryDelay is the time until the next attempt after the n-th failed with err.
	// Defaults to 1 s, 2 s, 4 s … up to 10 minutes, give or take half.
	RetryDelay func(n int, err error, task *asynq.Task) time.Duration

	// Logger gets what people should know. nil is silent.
	Logger *slog.Logger

	// Registerer gets the metrics. nil keeps none.
	Registerer prometheus.Registerer
}

// ErrInvalidConfig is returned when a worker's configuration means nothing.
var ErrInvalidConfig = errors.New("queue: invalid worker config")

func (c WorkerConfig) withDefaults() (WorkerConfig, error) {
	if len(c.Queues) == 0 {
		return c, fmt.Errorf("%w: Queues is empty; name at least one", ErrInvalidConfig)
	}
	for _, q := range c.Queues {
		if err := store.CheckQueue(q); err != nil {
			return c, fmt.Errorf("%w: %w", ErrInvalidConfig, err)
		}
	}
	c.Concurrency = cmp.Or(c.Concurrency, 100)
	c.Lease = cmp.Or(c.Lease, 15*time.Second)
	c.ShutdownTimeout = cmp.Or(c.ShutdownTimeout, 10*time.Second)
	switch {
	case c.Concurrency < 1:
		return c, fmt.Errorf("%w: Concurrency is %d; at least 1", ErrInvalidConfig, c.Concurrency)
	case c.Lease < time.Second:
		return c, fmt.Errorf("%w: Lease is %v; at least 1s", ErrInvalidConfig, c.Lease)
	case c.ShutdownTimeout < 0:
		return c, fmt.Errorf("%w: ShutdownTimeout is %v; not negative", ErrInvalidConfig, c.ShutdownTimeout)
	}
	if c.RetryDelay == nil {
		c.RetryDelay = backoff
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// backoff is the default RetryDelay: exponential, with jitter so that what failed
// together does not come back together.
func backoff(n int, _ error, _ *asynq.Task) time.Duration {
	const longest = 10 * time.Minute
	delay := time.Duration(math.Min(float64(longest), float64(time.Second)*math.Pow(2, float64(n-1))))
	return delay/2 + mathrand.N(delay)
}

// A Worker starts the jobs of its queues when they may start and runs their handler.
type Worker struct {
	cfg    WorkerConfig
	client redis.UniversalClient
}

// NewWorker returns a worker, or an error wrapping [ErrInvalidConfig].
func NewWorker(rdb redis.UniversalClient, cfg WorkerConfig) (*Worker, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Worker{cfg: cfg, client: rdb}, nil
}

// Run runs the inboxes until ctx ends.
func (w *Worker) Run(ctx context.Context, h asynq.Handler) error {
	var group errgroup.Group
	for _, queue := range w.cfg.Queues {
		if w.cfg.Inbox {
			group.Go(func() error { return w.runInbox(ctx, queue) })
		}
	}
	<-ctx.Done()
	return group.Wait()
}
