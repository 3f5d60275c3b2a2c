package watch

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/tenantlabel"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A TenantCollector gives Prometheus the metrics of some tenants of queues: how many jobs wait, for how long the oldest has
// waited, for how long limits have let one start, and how many were offered, started and dropped. Those of all tenants
// together are a [Collector]'s.
type TenantCollector struct {
	cfg   TenantCollectorConfig
	descs tenantDescs

	readings
	busiest map[string]map[string]time.Time // by queue, when a tenant was last one of the busiest
}

// TenantCollectorConfig says which tenants have metrics, at most 100 in all. The zero value has none.
type TenantCollectorConfig struct {
	Watchers []*Watcher // of the queues

	// Tenants always have metrics, also while nothing of theirs waits.
	Tenants []string

	// Busiest is how many others have metrics in each queue: those with most waiting, among the five hundred that are due
	// first. A tenant keeps its metrics until one with twice as much waiting needs them, or until it has not been one of the
	// busiest for ten minutes.
	Busiest int
}

// How many tenants the busiest are sought among, and for how long one that is busy no longer keeps its metrics.
const (
	busiestSample = 500
	busiestMemory = 10 * time.Minute
)

// tenantDescs describe the metrics of a tenant.
type tenantDescs struct{ waiting, oldest, overdue, events *prometheus.Desc }

// NewTenantCollector returns a collector of some tenants' numbers.
func NewTenantCollector(cfg TenantCollectorConfig) (*TenantCollector, error) {
	if err := tenantlabel.Check(cfg.Tenants, cfg.Busiest); err != nil {
		return nil, fmt.Errorf("%w: metrics of tenants: %w", queue.ErrInvalidArgument, err)
	}
	return &TenantCollector{cfg: cfg, busiest: make(map[string]map[string]time.Time), descs: tenantDescs{
		waiting: describe("queue_tenant_waiting_jobs", "Jobs of a tenant that wait in its lanes.", "tenant"),
		oldest:  describe("queue_tenant_oldest_seconds", "For how long the oldest job in a tenant's lanes has waited since it was to start, of five users with most waiting; 0 if none waits.", "tenant"),
		overdue: describe("queue_tenant_overdue_seconds", "For how long limits have let a tenant's job start that is due first, 0 if they do not.", "tenant"),
		events:  describe("queue_tenant_jobs_total", "Jobs of a tenant: offered, started, dropped. It begins anew a day after the tenant had nothing waiting.", "tenant", "event"),
	}}, nil
}

// Describe implements [prometheus.Collector].
func (c *TenantCollector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{c.descs.waiting, c.descs.oldest, c.descs.overdue, c.descs.events} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. Of a queue that cannot be read there are no metrics; [Collector] says so.
func (c *TenantCollector) Collect(to chan<- prometheus.Metric) {
	c.collect(to, c.cfg.Watchers, func(ctx context.Context, w *Watcher) {
		if metrics, err := c.read(ctx, w); err == nil {
			c.last = append(c.last, metrics...)
		}
	})
}

// read reads the numbers of the tenants of one queue.
func (c *TenantCollector) read(ctx context.Context, w *Watcher) ([]prometheus.Metric, error) {
	all, err := c.chosen(ctx, w)
	if err != nil {
		return nil, err
	}
	names, oldest := make([]string, len(all)), make([]time.Duration, len(all))
	for i, t := range all {
		names[i] = t.Tenant
	}
	overdue, err := ofTenants(ctx, w, "inspecting", names, func(l *look, names []string) ([]time.Duration, error) { return l.lateness(ctx, names) })
	if err != nil {
		return nil, err
	}
	err = each(ctx, len(all), func(ctx context.Context, i int) (err error) {
		if all[i].Waiting > 0 {
			oldest[i], err = w.oldestOf(ctx, names[i])
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var metrics []prometheus.Metric
	for i, t := range all {
		add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
			metrics = append(metrics, prometheus.MustNewConstMetric(d, kind, value, append([]string{w.root.Queue, t.Tenant}, labels...)...))
		}
		add(c.descs.waiting, prometheus.GaugeValue, float64(t.Waiting))
		add(c.descs.oldest, prometheus.GaugeValue, oldest[i].Seconds())
		add(c.descs.overdue, prometheus.GaugeValue, overdue[i].Seconds())
		for event, n := range map[string]int64{"offered": t.Counts.Offered, "started": t.Counts.Started, "dropped": t.Counts.Dropped} {
			add(c.descs.events, prometheus.CounterValue, float64(n), event)
		}
	}
	return metrics, nil
}

// chosen returns the tenants that have metrics, those that are named first.
func (c *TenantCollector) chosen(ctx context.Context, w *Watcher) ([]store.TenantView, error) {
	names := slices.Clone(c.cfg.Tenants)
	if c.cfg.Busiest > 0 {
		due, err := w.due(ctx, busiestSample)
		if err != nil {
			return nil, err
		}
		due = slices.DeleteFunc(due, func(name string) bool { return slices.Contains(names, name) || !utf8.ValidString(name) })
		all, err := w.tenants(ctx, due)
		if err != nil {
			return nil, err
		}
		names = append(names, c.busy(w.root.Queue, all, time.Now())...)
	}
	return w.tenants(ctx, names)
}

// busy returns the tenants of a queue with most waiting now, and lately, in the order of their names.
func (c *TenantCollector) busy(queue string, all []store.TenantView, now time.Time) []string {
	was := c.busiest[queue]
	if was == nil {
		was = make(map[string]time.Time)
		c.busiest[queue] = was
	}
	weight := func(t store.TenantView) int64 {
		if _, has := was[t.Tenant]; has {
			return 2 * t.Waiting
		}
		return t.Waiting
	}
	slices.SortStableFunc(all, func(a, b store.TenantView) int { return cmp.Compare(weight(b), weight(a)) })
	for _, t := range all[:min(c.cfg.Busiest, len(all))] {
		if t.Waiting > 0 {
			was[t.Tenant] = now
		}
	}
	names := make([]string, 0, len(was))
	for name := range was {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(was[b].Compare(was[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		if i >= c.cfg.Busiest || now.Sub(was[name]) > busiestMemory {
			delete(was, name)
		}
	}
	names = slices.DeleteFunc(names, func(name string) bool { _, kept := was[name]; return !kept })
	slices.Sort(names)
	return names
}

// oldestOf returns for how long the oldest job of a tenant has waited, of five users with most waiting.
func (w *Watcher) oldestOf(ctx context.Context, tenant string) (time.Duration, error) {
	now, err := w.nowOf(ctx, tenant)
	if err != nil {
		return 0, err
	}
	users, err := w.Users(ctx, tenant, 0, usersLooked)
	if err != nil {
		return 0, err
	}
	since, err := w.oldest(ctx, tenant, users)
	if err != nil || since.IsZero() {
		return 0, err
	}
	return max(0, now.Sub(since)), nil
}
