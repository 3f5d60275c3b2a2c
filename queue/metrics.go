package queue

import (
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a worker counts. They have no labels for users or values of the keys of limits, of which
// there is no bound, and for those tenants alone that are asked for.
type metrics struct {
	jobs    *prometheus.CounterVec
	commits *prometheus.CounterVec
	late    *prometheus.CounterVec
	counted *prometheus.CounterVec
	inLine  *prometheus.GaugeVec
	leading *prometheus.GaugeVec
	parts   *prometheus.GaugeVec
	delay   *prometheus.HistogramVec
	wait    *prometheus.HistogramVec
	waited  *prometheus.CounterVec

	lines lines

	tenants []string // that have metrics of their own
	each    *prometheus.HistogramVec
}

// lines are the lanes that wait for each limit by name, by the partitions that this worker leads.
type lines struct {
	sync.Mutex
	of map[*queueMetrics]map[string]int
}

func newMetrics(registerer prometheus.Registerer, tenants []string) (*metrics, error) {
	queue := []string{"queue"}
	m := &metrics{
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_jobs_total", Help: "Jobs by what happened to them: claimed (by a leader, for all workers), done, failed, dead, paused, sent_on (to another worker), interrupted (by the worker's stop).",
		}, []string{"queue", "outcome"}),
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_commits_total", Help: "Commits of this worker while it led the queue.",
		}, queue),
		late: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_late_starts_total", Help: "Jobs that came too late for their slot, and went back for another.",
		}, queue),
		counted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_limit_starts_total", Help: "Starts that a limit by name has counted (by a leader, for all workers).",
		}, []string{"queue", "limit"}),
		inLine: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_limit_waiting_lanes", Help: "Lanes that wait for a limit by name, at the worker that leads: a lane waits for one limit at a time.",
		}, []string{"queue", "limit"}),
		leading: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_leading", Help: "How many partitions of the queue this worker leads.",
		}, queue),
		parts: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_partitions", Help: "How many partitions the queue has.",
		}, queue),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_start_delay_seconds", Help: "Time from a job's slot to its start, or until it was found to be too late for it.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .005, .01, .025, .05, .1, .25, 1},
		}, queue),
		wait: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_wait_seconds", Help: "Time from a job's offer, or from its NotBefore, to the start of its first attempt.",
			Buckets: []float64{.005, .025, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 24 * 3600},
		}, queue),
		waited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_waited_seconds_total", Help: "How long all jobs that were claimed have waited, by what for: rules, pauses, concurrency, places (by a leader, for all workers), and backoff.",
		}, []string{"queue", "cause"}),
		lines:   lines{of: make(map[*queueMetrics]map[string]int)},
		tenants: tenants,
		each: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_tenant_wait_seconds", Help: "Time from a job's offer, or from its NotBefore, to the start of its first attempt, of tenants that are asked for.",
			Buckets: []float64{1, 10, 60, 300, 900, 3600},
		}, []string{"queue", "tenant"}),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.jobs, m.commits, m.late, m.counted, m.inLine, m.leading, m.parts, m.delay, m.wait, m.waited, m.each} {
		var already prometheus.AlreadyRegisteredError
		if err := registerer.Register(c); errors.As(err, &already) {
			return nil, fmt.Errorf("queue: the registerer has a worker's metrics already: %w", err)
		} else if err != nil {
			return nil, fmt.Errorf("queue: registering metrics: %w", err)
		}
	}
	return m, nil
}

// of returns the metrics of one queue, or of one partition of it, which counts for the same queue. Leads is told whether this worker
// leads there.
func (m *metrics) of(queue string, leads *atomic.Bool) *queueMetrics {
	each := make(map[string]prometheus.Observer, len(m.tenants))
	for _, tenant := range m.tenants {
		each[tenant] = m.each.WithLabelValues(queue, tenant)
	}
	return &queueMetrics{
		metrics: m, queue: queue, leads: leads, each: each, started: m.delay.WithLabelValues(queue), first: m.wait.WithLabelValues(queue), done: m.jobs.WithLabelValues(queue, "done"),
	}
}

// queueMetrics are what [worker.Metrics] asks for. Those that each job asks for are looked up once.
type queueMetrics struct {
	*metrics
	queue          string
	leads          *atomic.Bool
	started, first prometheus.Observer
	each           map[string]prometheus.Observer // first, by tenant
	done           prometheus.Counter
}

func (m *queueMetrics) Claimed(jobs int) {
	m.jobs.WithLabelValues(m.queue, "claimed").Add(float64(jobs))
}
func (m *queueMetrics) Started(d time.Duration) { m.started.Observe(d.Seconds()) }
func (m *queueMetrics) First(tenant string, d time.Duration) {
	m.first.Observe(d.Seconds())
	if of := m.each[tenant]; of != nil {
		of.Observe(d.Seconds())
	}
}
func (m *queueMetrics) Waited(cause string, d time.Duration) {
	m.waited.WithLabelValues(m.queue, cause).Add(d.Seconds())
}
func (m *queueMetrics) Ended(outcome string) {
	if outcome == "done" {
		m.done.Inc()
		return
	}
	m.jobs.WithLabelValues(m.queue, outcome).Inc()
}
func (m *queueMetrics) Late(d time.Duration) {
	m.started.Observe(d.Seconds())
	m.late.WithLabelValues(m.queue).Inc()
}
func (m *queueMetrics) Counted(limit string) { m.counted.WithLabelValues(m.queue, limit).Inc() }

// InLine replaces what this partition adds to the lines of limits.
func (m *queueMetrics) InLine(lanes map[string]int) {
	m.lines.Lock()
	defer m.lines.Unlock()
	delete(m.lines.of, m)
	if lanes != nil {
		m.lines.of[m] = maps.Clone(lanes)
	}
	sums := make(map[string]int)
	for other, its := range m.lines.of {
		if other.queue == m.queue {
			for limit, n := range its {
				sums[limit] += n
			}
		}
	}
	m.inLine.DeletePartialMatch(prometheus.Labels{"queue": m.queue})
	for limit, n := range sums {
		m.inLine.WithLabelValues(m.queue, limit).Set(float64(n))
	}
}

func (m *queueMetrics) Committed() { m.commits.WithLabelValues(m.queue).Inc() }
func (m *queueMetrics) Leads(leads bool) {
	m.leads.Store(leads)
	if leads {
		m.leading.WithLabelValues(m.queue).Inc()
		return
	}
	m.leading.WithLabelValues(m.queue).Dec()
	m.InLine(nil)
}
