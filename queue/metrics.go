package queue

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a worker counts. They have no labels for tenants or users, of which
// there is no bound.
type metrics struct {
	pulls  *prometheus.CounterVec
	jobs   *prometheus.CounterVec
	admits *prometheus.CounterVec
	delay  *prometheus.HistogramVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	queue := []string{"queue"}
	m := &metrics{
		pulls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_pulls_total", Help: "Pulls sent to Redis.",
		}, queue),
		jobs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_jobs_total", Help: "Jobs by what happened to them: pulled, done, failed, dead, paused, refunded.",
		}, []string{"queue", "outcome"}),
		admits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_late_starts_total", Help: "Jobs that came too late for their slot and had to ask again.",
		}, queue),
		delay: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_start_delay_seconds", Help: "Time from a job's slot to its start.",
			Buckets: []float64{.0001, .00025, .0005, .001, .002, .005, .01, .025, .1, 1},
		}, queue),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.pulls, m.jobs, m.admits, m.delay} {
		var already prometheus.AlreadyRegisteredError
		if err := registerer.Register(c); err != nil && !errors.As(err, &already) {
			return nil, fmt.Errorf("queue: registering metrics: %w", err)
		} else if err != nil {
			return nil, fmt.Errorf("queue: the registerer has a worker's metrics already: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) pulled(queue string, jobs int) {
	m.pulls.WithLabelValues(queue).Inc()
	m.jobs.WithLabelValues(queue, "pulled").Add(float64(jobs))
}

func (m *metrics) ended(queue, outcome string) { m.jobs.WithLabelValues(queue, outcome).Inc() }

func (m *metrics) late(queue string) { m.admits.WithLabelValues(queue).Inc() }

func (m *metrics) started(queue string, delay time.Duration) {
	m.delay.WithLabelValues(queue).Observe(delay.Seconds())
}
