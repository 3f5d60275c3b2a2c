package main

import (
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/dashboard"
	"github.com/waterclock/waterclock/queue/service"
)

// newRegistry returns a registry with what a process says of itself.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// monitored is what the worker serves to monitors, and where.
type monitored struct {
	service.Monitor
	listener net.Listener
	tokens   *access.Tokens
}

// newMonitor opens an address for monitors and the dashboard; nil if there is none.
func newMonitor(o options, registry *prometheus.Registry, rdb *config.Redis, log *slog.Logger) (*monitored, error) {
	if o.http == "" {
		return nil, nil
	}
	tokens, err := config.Tokens(o.tokenFile, o.tokensFile, log)
	if err != nil {
		return nil, err
	}
	board, err := dashboard.New(dashboard.Config{Redis: rdb, Queues: o.queues, Tokens: tokens, Logger: log})
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	listener, err := config.Listen(o.http)
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	log.Info("serving metrics, probes and the dashboard", "http", "http://"+listener.Addr().String())
	return &monitored{service.Monitor{Metrics: registry, Ready: service.Reachable(rdb), Dashboard: board}, listener, tokens}, nil
}
