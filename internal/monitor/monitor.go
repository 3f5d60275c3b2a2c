// Package monitor serves what monitors ask a process for: its metrics, whether it lives, and
// whether it is ready; and beside that the dashboard.
package monitor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue/dashboard"
)

// A Server answers /metrics, /healthz and /readyz. Ready may be nil: then the process is
// ready as long as it lives.
type Server struct {
	Metrics prometheus.Gatherer
	Ready   func(ctx context.Context) error

	Dashboard *dashboard.Dashboard // answers /dashboard/, where / leads, too; nil for none

	API http.Handler // answers /v1/; nil for nobody
}

// readyPatience is how long a question whether the process is ready may take.
const readyPatience = 2 * time.Second

// Listen opens an address: 127.0.0.1:9090, or :9090 for all interfaces.
func Listen(address string) (net.Listener, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("--http %s: %w; want an address such as 127.0.0.1:9090", address, errors.Unwrap(err))
	}
	return listener, nil
}

// Run serves until ctx ends, and runs the dashboard.
func (s Server) Run(ctx context.Context, listener net.Listener) error {
	group, ctx := errgroup.WithContext(ctx)
	if s.Dashboard != nil {
		group.Go(func() error { return s.Dashboard.Run(ctx) })
	}
	group.Go(func() error { return s.serve(ctx, listener) })
	return group.Wait()
}

func (s Server) serve(ctx context.Context, listener net.Listener) error {
	server := &http.Server{
		Handler: s.Handler(), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 30 * time.Second,
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

// Handler returns the three answers.
func (s Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.Metrics, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), readyPatience)
		defer cancel()
		if s.Ready != nil {
			if err := s.Ready(ctx); err != nil {
				http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
				return
			}
		}
		fmt.Fprintln(w, "ready")
	})
	if s.Dashboard != nil {
		mux.Handle("/dashboard/", s.Dashboard)
		mux.Handle("GET /{$}", http.RedirectHandler("/dashboard/", http.StatusSeeOther))
	}
	if s.API != nil {
		mux.Handle("/v1/", s.API)
	}
	return mux
}
