package outbox

import (
	"context"
	"database/sql"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// A Collector gives Prometheus the lag of queues: waterclock_outbox_up, _waiting_rows, _oldest_seconds and _refused_rows. One
// collector for a table is enough.
type Collector struct {
	db     *sql.DB
	table  Table
	queues []string

	mu    sync.Mutex
	taken time.Time
	last  []prometheus.Metric

	up, waiting, oldest, refused *prometheus.Desc
}

// A collector repeats for a while what it has read: scraping it more often costs the database nothing more. Reading may take so long.
const (
	collectEvery    = 5 * time.Second
	collectPatience = 3 * time.Second
)

// NewCollector returns a collector of the lag of some queues.
func NewCollector(db *sql.DB, table Table, queues ...string) *Collector {
	describe := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("waterclock_"+name, help, []string{"queue"}, nil)
	}
	return &Collector{
		db: db, table: table, queues: queues,
		up:      describe("outbox_up", "1 if the outbox could be read."),
		waiting: describe("outbox_waiting_rows", "Rows that wait for a relay."),
		oldest:  describe("outbox_oldest_seconds", "For how long the first of them has waited."),
		refused: describe("outbox_refused_rows", "Rows that are dropped, invalid or unknown, and still in the table."),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.up, c.waiting, c.oldest, c.refused} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.taken) >= collectEvery {
		ctx, cancel := context.WithTimeout(context.Background(), collectPatience)
		defer cancel()
		c.last = c.last[:0]
		for _, queue := range c.queues {
			c.read(ctx, queue)
		}
		c.taken = time.Now()
	}
	for _, m := range c.last {
		to <- m
	}
}

func (c *Collector) read(ctx context.Context, queue string) {
	add := func(d *prometheus.Desc, value float64) {
		c.last = append(c.last, prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, queue))
	}
	lag, err := c.table.Lag(ctx, c.db, queue)
	if err != nil {
		add(c.up, 0)
		return
	}
	add(c.up, 1)
	add(c.waiting, float64(lag.Waiting))
	add(c.oldest, lag.Oldest.Seconds())
	add(c.refused, float64(lag.Refused))
}
