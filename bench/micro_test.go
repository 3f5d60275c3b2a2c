package main

import (
	"context"
	"net"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// A counted client counts the round trips of what is measured.
type counted struct {
	*redis.Client
	trips *trips
}

// newCounted returns a client of a Redis that ends with the benchmark.
func newCounted(b *testing.B) counted {
	b.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		b.Skip("no redis-server in PATH")
	}
	server, err := startServer(b.Context(), "--appendonly", "no")
	if err != nil {
		b.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: server.Addr})
	b.Cleanup(func() {
		client.Close()
		server.Close()
	})
	c := counted{client, new(trips)}
	client.AddHook(c.trips)
	return c
}

// follow starts a replica, which ends with the benchmark, and returns when it follows.
func (c counted) follow(b *testing.B) {
	b.Helper()
	host, port, _ := strings.Cut(c.Client.Options().Addr, ":")
	if err := c.ConfigSet(b.Context(), "repl-diskless-sync-delay", "0").Err(); err != nil {
		b.Fatal(err)
	}
	replica, err := startServer(b.Context(), "--appendonly", "no", "--replicaof", host+" "+port)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { replica.Close() })
	for !strings.Contains(c.Info(b.Context(), "replication").Val(), "state=online") {
		if err := wait(b.Context(), 10*time.Millisecond); err != nil {
			b.Fatal(err)
		}
	}
}

// begin starts the measurement: what went before is not counted.
func (c counted) begin(b *testing.B) {
	b.ReportAllocs()
	c.trips.n.Store(0)
	b.ResetTimer()
}

// report reports round trips for each of so many jobs or decisions in an operation.
func (c counted) report(b *testing.B, perOp int, unit string) {
	b.ReportMetric(float64(c.trips.n.Load())/float64(b.N), "rtt/op")
	if perOp > 1 {
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perOp), "ns/"+unit)
	}
}

// Trips is a hook of go-redis that counts round trips: a pipeline is one.
type trips struct{ n atomic.Int64 }

func (t *trips) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmd)
	}
}

func (t *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		t.n.Add(1)
		return next(ctx, cmds)
	}
}

// busy returns how long, in µs, Redis has run a command.
func (c counted) busy(b *testing.B, command string) float64 {
	b.Helper()
	_, stats, _ := strings.Cut(c.Info(b.Context(), "commandstats").Val(), "cmdstat_"+command+":")
	_, text, _ := strings.Cut(stats, "usec=")
	text, _, _ = strings.Cut(text, ",")
	us, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatalf("how long %s has run: %v", command, err)
	}
	return us
}
