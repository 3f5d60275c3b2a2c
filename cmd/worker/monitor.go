package main

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/monitor"
)

// newRegistry returns a registry with what a process says of itself.
func newRegistry() *prometheus.Registry {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return registry
}

// monitored is what the worker serves to monitors, and where.
type monitored struct {
	monitor.Server
	listener net.Listener
}

// newMonitor opens an address for monitors; nil if there is none.
func newMonitor(address string, registry *prometheus.Registry, rdb *config.Redis, log *slog.Logger) (*monitored, error) {
	if address == "" {
		return nil, nil
	}
	listener, err := monitor.Listen(address)
	if err != nil {
		return nil, config.Usagef("%v", err)
	}
	log.Info("serving monitors", "http", "http://"+listener.Addr().String())
	ready := func(ctx context.Context) error { return rdb.Ping(ctx).Err() }
	return &monitored{monitor.Server{Metrics: registry, Ready: ready}, listener}, nil
}
