package notify

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what a handler counts: no label is about a tenant, a user or a device.
type metrics struct {
	attempts *prometheus.CounterVec
}

func newMetrics(registerer prometheus.Registerer) (*metrics, error) {
	m := &metrics{prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "waterclock_sends_total", Help: "Attempts to send to one device, by what was to be done then: done, retry, defer, pause, halt, drop, forget.",
	}, []string{"action"})}
	if registerer == nil {
		return m, nil
	}
	if err := registerer.Register(m.attempts); err != nil {
		return nil, fmt.Errorf("notify: registering metrics: %w", err)
	}
	return m, nil
}

func (m *metrics) sent(a Action) { m.attempts.WithLabelValues(string(a)).Inc() }
