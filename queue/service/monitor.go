package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/dashboard"
)

// A Monitor answers what monitors ask a process for: /metrics, for Prometheus; /healthz, whether it lives; and /readyz,
// whether it is ready. What is nil is not served.
type Monitor struct {
	Metrics prometheus.Gatherer

	// Ready returns why the process is not ready, see [Reachable]. With nil it is, as long as it lives.
	Ready func(ctx context.Context) error

	Dashboard *dashboard.Dashboard // answers /dashboard/, where / leads, too
	API       http.Handler         // answers /v1/, see package api
}

// Reachable is what [Monitor].Ready asks in most programs: whether Redis answers.
func Reachable(rdb redis.UniversalClient) func(ctx context.Context) error {
	return func(ctx context.Context) error { return rdb.Ping(ctx).Err() }
}

// readyPatience is how long a question whether the process is ready may take.
const readyPatience = 2 * time.Second

// Run serves at a listener until ctx ends, and runs the dashboard. It closes the listener.
func (m Monitor) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	if m.Dashboard != nil {
		group.Go(func() error { return m.Dashboard.Run(ctx) })
	}
	group.Go(func() error { return m.serve(ctx, listener) })
	return group.Wait()
}

func (m Monitor) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: m.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
		MaxHeaderBytes: 16 << 10,
	}
	stop := context.AfterFunc(ctx, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	})
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler returns the answers, for a server of the program's own. The dashboard has to be run then.
func (m Monitor) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
		defer cancel()
		if m.Ready != nil {
			if err := m.Ready(ctx); err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ready")
	})
	if m.Dashboard != nil {
		mux.Handle("/dashboard/", m.Dashboard)
		mux.Handle("GET /{$}", http.RedirectHandler("/dashboard/", http.StatusSeeOther))
	}
	if m.API != nil {
		mux.Handle("/v1/", m.API)
	}
	return mux
}
