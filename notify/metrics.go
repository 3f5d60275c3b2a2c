package notify

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a handler counts: no label is about a tenant, a user or a device.
type metrics struct {
	sends     *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	suspended *prometheus.GaugeVec

	mu    sync.Mutex
	codes map[string]bool
}

const maxCodes = 100 // answers may say anything; the codes beyond are "other"

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		sends: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "waterclock_sends_total",
			Help: "Attempts to send to one device, by provider, by what was to be done then (done, retry, defer, pause, halt, drop, forget), and by the provider's code.",
		}, []string{"provider", "action", "code"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "waterclock_send_duration_seconds", Help: "How long attempts took until the provider's answer.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 20},
		}, []string{"provider"}),
		suspended: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "waterclock_provider_suspended_until_timestamp_seconds",
			Help: "Until when nothing but probes is sent through a provider; in the past if it is open. Of the origins of webpush and webhook, the latest.",
		}, []string{"provider"}),
		codes: make(map[string]bool),
	}
	if registerer == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.sends, m.latency, m.suspended} {
		if err := registerer.Register(c); err != nil {
			return nil, fmt.Errorf("notify: registering metrics: %w", err)
		}
	}
	return m, nil
}

func (m *metrics) sent(p Provider, o Outcome, took time.Duration) {
	m.sends.WithLabelValues(p.String(), string(o.Action), m.code(p, o)).Inc()
	if took > 0 || o.Status > 0 {
		m.latency.WithLabelValues(p.String()).Observe(took.Seconds())
	}
}

// code returns a label for the answer: the provider's code, or the status. Whoever is
// behind a subscription or a webhook can write any code, so theirs do not count.
func (m *metrics) code(p Provider, o Outcome) string {
	var e *ProviderError
	if !errors.As(o.Err, &e) {
		if o.Action == Done {
			return "ok"
		}
		return "none"
	}
	status := strconv.Itoa(e.Status)
	if p.hasOrigins() {
		return status
	}
	code := cmp.Or(e.Code, status)
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.codes) >= maxCodes && !m.codes[code] {
		return "other"
	}
	m.codes[code] = true
	return code
}
