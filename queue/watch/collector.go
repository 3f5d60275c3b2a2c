package watch

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/queue"
)

// A Collector gives Prometheus the metrics of queues: how many jobs wait, run and are overdue,
// the condition, and how long each rule has held jobs back. One collector for a queue is enough; a
// worker has metrics of its own (see [queue.WorkerConfig.Registerer]). There are no labels for tenants,
// since their number is unbounded (see [TenantCollector]), and labels for a bounded number of keys of those limits by name that ask for it
// ([queue.Limit].Detailed).
type Collector struct {
	watchers []*Watcher
	descs    queueDescs

	readings
	keys map[[2]string]*limitKeys // by queue and limit, of limits whose policies ask for their keys
}

// NewCollector returns a collector of the watchers' queues.
func NewCollector(watchers ...*Watcher) *Collector {
	return &Collector{watchers: watchers, descs: newQueueDescs(), keys: make(map[[2]string]*limitKeys)}
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("waterclock_"+name, help, append([]string{"queue"}, labels...), nil)
}

// queueDescs describe the metrics of a queue.
type queueDescs struct {
	up        *prometheus.Desc
	jobs      *prometheus.Desc
	condition *prometheus.Desc
	overdue   *prometheus.Desc
	overdueS  *prometheus.Desc
	workers   *prometheus.Desc
	places    *prometheus.Desc
	events    *prometheus.Desc
	dropped   *prometheus.Desc
	blocked   *prometheus.Desc
	shadowed  *prometheus.Desc
	policies  *prometheus.Desc
	pausedKey *prometheus.Desc
	overrides *prometheus.Desc

	keyWaiting *prometheus.Desc
	keyRunning *prometheus.Desc
	keyFull    *prometheus.Desc
}

func newQueueDescs() queueDescs {
	return queueDescs{
		up:         describe("queue_up", "1 if the queue could be read."),
		jobs:       describe("queue_jobs", "Jobs that wait in lanes, wait for their time (later), run, or are dead.", "state"),
		condition:  describe("queue_condition", "1 for the condition that the queue is in: idle, throttled, flowing, failing, starved, paused, stalled.", "condition"),
		overdue:    describe("queue_overdue_tenants", "Tenants with a job that limits let start and that has not started, of the twenty that are due first."),
		overdueS:   describe("queue_overdue_seconds", "For how long limits have let the first of those jobs start."),
		workers:    describe("queue_workers", "Workers whose leases hold."),
		places:     describe("queue_places", "Places of those workers."),
		events:     describe("queue_jobs_total", "Jobs since the beginning: offered, started, done, failed (attempts), dropped, dead.", "event"),
		dropped:    describe("queue_dropped_total", "Jobs that never run, since the beginning: full, rule, expired, collapsed, impossible, cancelled, purged, duplicate, broken.", "reason"),
		blocked:    describe("queue_blocked_seconds_total", "For how long a rule, a concurrency limit or a pause has held its queue, tenants and users back: a rate of 3 is 3 of them at a time.", "rule"),
		shadowed:   describe("queue_shadow_refused_total", "Starts that a shadow rule would have deferred or dropped.", "rule"),
		pausedKey:  describe("queue_limit_paused_keys", "Values of the key of a limit by name that are paused.", "limit"),
		overrides:  describe("queue_limit_overridden_keys", "Values of the key of a limit by name for which an override counts.", "limit"),
		keyWaiting: describe("queue_limit_key_waiting_jobs", "Jobs that wait and that a limit by name counts for a value of its key, of the lanes that are due first; for limits with detailed: true.", "limit", "key"),
		keyRunning: describe("queue_limit_key_running_jobs", "Jobs that run and that a limit by name counts for a value of its key; for limits with detailed: true.", "limit", "key"),
		keyFull:    describe("queue_limit_key_used_ratio", "How much of the fullest rule of a limit by name is used for a value of its key, 0 to 1; for limits with detailed: true.", "limit", "key"),
		policies:   describe("queue_policy_timestamp_seconds", "When the policies in force were set."),
	}
}

// Describe implements [prometheus.Collector].
func (c *Collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{
		c.descs.up, c.descs.jobs, c.descs.condition, c.descs.overdue, c.descs.overdueS, c.descs.workers, c.descs.places, c.descs.events, c.descs.dropped, c.descs.blocked, c.descs.shadowed, c.descs.policies, c.descs.pausedKey, c.descs.overrides,
		c.descs.keyWaiting, c.descs.keyRunning, c.descs.keyFull,
	} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *Collector) Collect(to chan<- prometheus.Metric) { c.collect(to, c.watchers, c.read) }

// read reads the numbers of one queue.
func (c *Collector) read(ctx context.Context, w *Watcher) {
	name := w.root.Queue
	add := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		c.last = append(c.last, prometheus.MustNewConstMetric(d, kind, value, append([]string{name}, labels...)...))
	}
	gauge, counter := prometheus.GaugeValue, prometheus.CounterValue
	h, s, err := w.health(ctx)
	var p queue.PolicyVersion
	if err == nil {
		p, err = w.Policies(ctx)
	}
	if err == nil {
		err = c.readLimits(ctx, w, p)
	}
	if err != nil {
		add(c.descs.up, gauge, 0)
		return
	}
	add(c.descs.up, gauge, 1)
	for _, condition := range []Condition{Idle, Throttled, Flowing, Failing, Starved, Paused, Stalled} {
		value := 0.0
		if h.Condition == condition {
			value = 1
		}
		add(c.descs.condition, gauge, value, string(condition))
	}
	add(c.descs.overdue, gauge, float64(h.Overdue))
	add(c.descs.overdueS, gauge, h.Oldest.Seconds())
	add(c.descs.workers, gauge, float64(h.Workers))
	add(c.descs.places, gauge, float64(h.Places))
	for state, n := range map[string]int64{"waiting": s.Waiting, "later": s.Later, "running": s.Running, "dead": s.DeadNow} {
		add(c.descs.jobs, gauge, float64(n), state)
	}
	for event, n := range map[string]int64{
		"offered": s.Offered, "started": s.Started, "done": s.Done, "failed": s.Failed, "dropped": s.Counters.Dropped, "dead": s.Dead,
	} {
		add(c.descs.events, counter, float64(n), event)
	}
	for reason, n := range s.Reasons {
		add(c.descs.dropped, counter, float64(n), string(reason))
	}
	for rule, d := range s.Blocked {
		add(c.descs.blocked, counter, d.Seconds(), rule)
	}
	for rule, n := range s.Shadowed {
		add(c.descs.shadowed, counter, float64(n), rule)
	}
	if p.Version > 0 {
		add(c.descs.policies, gauge, float64(p.Since.UnixMilli())/1000)
	}
}
