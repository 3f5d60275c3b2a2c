package outbox

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue"
)

// A RelayConfig says what a relay does. Its zero value but for Queues works.
type RelayConfig struct {
	// Queues are whose rows the relay offers, at least one. Each is served on its own: one in trouble holds back no other.
	Queues []string

	// Interval is how long the relay waits before it looks again, after it has found less than a batch. Defaults to a second.
	Interval time.Duration

	// BatchSize is how many rows are offered in a round at most. Defaults to 500, at most 10,000.
	BatchSize int

	// Lease is how long after a relay's death another one takes over; one that is stopped hands over at once. A round that takes
	// longer is given up and tried again. Defaults to 5 seconds, at least 100 ms.
	Lease time.Duration

	// Durability is where jobs have to be before their rows count as accepted.
	Durability queue.Durability

	// KeepAccepted is how long the row of a job that was accepted stays in the table. With 0 it is deleted at once.
	KeepAccepted time.Duration

	// KeepRefused is how long rows stay that are dropped, invalid or unknown. With 0 they stay until somebody deletes them.
	KeepRefused time.Duration

	// Refused is told of each row that is dropped, invalid or unknown, after that was noted in the table. If the relay dies between,
	// it is not told; the table says it. It must return soon, and is called for several queues at the same time. May be nil: the
	// relay's log tells it, too.
	Refused func(Refusal)

	// Registerer gets the counter waterclock_outbox_rows_total. May be nil. How many rows wait, a [Collector] tells.
	Registerer prometheus.Registerer

	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// A State is what has become of a row. Package outbox explains them.
type State string

const (
	Waiting  State = "waiting"
	Accepted State = "accepted"
	Dropped  State = "dropped"
	Invalid  State = "invalid"
	Unknown  State = "unknown"
)

// A Refusal is a row whose job the queue does not have, or perhaps has not.
type Refusal struct {
	Queue  string
	ID     string
	State  State     // Dropped, Invalid or Unknown
	Reason string    // for people
	Job    queue.Job // as far as it could be read
}

// The bounds of a configuration.
const (
	maxBatch   = 10_000
	leastLease = 100 * time.Millisecond
)

// A Relay offers the rows of a table to queues.
type Relay struct {
	db     *sql.DB
	table  Table
	config RelayConfig
	name   string // in leases
	feeds  []*feed
	rows   *prometheus.CounterVec

	strays map[string]bool // queues without a relay that were warned of
}

// NewRelay returns a relay, or an error that says what is wrong with the configuration. It neither asks the database nor Redis.
func NewRelay(db *sql.DB, table Table, rdb redis.UniversalClient, config RelayConfig) (*Relay, error) {
	if err := table.check(); err != nil {
		return nil, err
	}
	if err := config.check(); err != nil {
		return nil, err
	}
	config.Interval = cmp.Or(config.Interval, time.Second)
	config.BatchSize = cmp.Or(config.BatchSize, 500)
	config.Lease = cmp.Or(config.Lease, 5*time.Second)
	config.Logger = cmp.Or(config.Logger, slog.Default())
	r := &Relay{db: db, table: table, config: config, name: rand.Text(), strays: make(map[string]bool)}
	if err := r.count(config.Registerer); err != nil {
		return nil, err
	}
	for _, name := range config.Queues {
		client, err := queue.NewClient(rdb, name, queue.ClientConfig{Durability: config.Durability})
		if err != nil {
			return nil, fmt.Errorf("outbox: %w", err)
		}
		r.feeds = append(r.feeds, &feed{Relay: r, queue: name, client: client, log: config.Logger.With("queue", name, "table", table.name())})
	}
	return r, nil
}

func (c RelayConfig) check() error {
	names := slices.Sorted(slices.Values(c.Queues))
	switch {
	case len(c.Queues) == 0:
		return fmt.Errorf("outbox: %w: RelayConfig.Queues is empty; name at least one", queue.ErrInvalidArgument)
	case len(slices.Compact(names)) < len(c.Queues):
		return fmt.Errorf("outbox: %w: RelayConfig.Queues names a queue twice: %q", queue.ErrInvalidArgument, c.Queues)
	case c.Interval < 0:
		return fmt.Errorf("outbox: %w: RelayConfig.Interval is %v; want a time above 0, or 0 for a second", queue.ErrInvalidArgument, c.Interval)
	case c.BatchSize < 0 || c.BatchSize > maxBatch:
		return fmt.Errorf("outbox: %w: RelayConfig.BatchSize is %d; from 1 to %d, or 0 for 500", queue.ErrInvalidArgument, c.BatchSize, maxBatch)
	case c.Lease != 0 && c.Lease < leastLease:
		return fmt.Errorf("outbox: %w: RelayConfig.Lease is %v; at least %v, or 0 for 5s", queue.ErrInvalidArgument, c.Lease, leastLease)
	case c.Durability.Replicas < 0:
		return fmt.Errorf("outbox: %w: RelayConfig.Durability.Replicas is %d; want 0 or more", queue.ErrInvalidArgument, c.Durability.Replicas)
	case c.KeepAccepted < 0 || c.KeepRefused < 0:
		return fmt.Errorf("outbox: %w: RelayConfig.KeepAccepted is %v and KeepRefused %v; want 0 or more", queue.ErrInvalidArgument, c.KeepAccepted, c.KeepRefused)
	}
	return nil
}

// Run offers rows until ctx ends, and returns nil then. What was answered it notes in the table before it returns. While
// the database or Redis cannot be reached, or the tables are not there, it tries again and says so in the log, once.
func (r *Relay) Run(ctx context.Context) error {
	var group errgroup.Group
	for _, f := range r.feeds {
		group.Go(func() error { f.run(ctx); return nil })
		group.Go(func() error { f.keep(ctx); return nil })
	}
	return group.Wait()
}
