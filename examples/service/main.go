// Command service is a whole service around a queue, in one file: it calls the webhooks of customers under their limits. Its
// policies are a file that may change, it answers probes and Prometheus, writes down its starts, and stops without losing
// anything. docs/first-service.md goes through it.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/service"
	"github.com/waterclock/waterclock/queue/watch"
)

const hooks = "hooks" // the queue

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: cmp.Or(os.Getenv("REDIS_ADDR"), "127.0.0.1:6379"), ContextTimeoutEnabled: true})
	defer rdb.Close()
	err := serve(ctx, rdb, config{
		Policies: cmp.Or(os.Getenv("POLICIES"), "policies.yaml"),
		Starts:   cmp.Or(os.Getenv("STARTS"), "starts.jsonl"),
		HTTP:     cmp.Or(os.Getenv("HTTP"), "127.0.0.1:9090"),
		Client:   &http.Client{Timeout: 10 * time.Second},
	})
	if err != nil {
		slog.Error("stopped", "err", err)
		os.Exit(1)
	}
}

type config struct {
	Policies, Starts, HTTP string
	Client                 *http.Client
}

// serve runs the service until ctx ends.
func serve(ctx context.Context, rdb redis.UniversalClient, cfg config) error {
	limits, err := service.ReadPolicyFile(cfg.Policies) // a mistake is an error with its line
	if err != nil {
		return err
	}
	if err := limits.Apply(ctx, rdb, hooks); err != nil {
		return err
	}
	starts, err := os.OpenFile(cfg.Starts, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer starts.Close()
	registry := prometheus.NewRegistry()
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{
		Queues:          []string{hooks},
		Concurrency:     100,
		ShutdownTimeout: 20 * time.Second, // longer than a request may take
		Registerer:      registry,
	})
	if err != nil {
		return err
	}
	watcher, err := watch.New(rdb, hooks)
	if err != nil {
		return err
	}
	registry.MustRegister(watch.NewCollector(watcher)) // of the queue; one process of a fleet is enough
	listener, err := net.Listen("tcp", cfg.HTTP)
	if err != nil {
		return err
	}
	mux := asynq.NewServeMux()
	mux.Use(service.NewJournal(starts).Middleware(slog.Default()))
	mux.Handle("hook", caller{cfg.Client})

	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return worker.Run(ctx, mux) })
	group.Go(func() error { return limits.Run(ctx) })
	group.Go(func() error {
		return service.Monitor{Metrics: registry, Ready: service.Reachable(rdb)}.Run(ctx, listener)
	})
	return group.Wait()
}

// A hook is an event on its way to an endpoint of a customer.
type hook struct {
	URL   string          `json:"url"`
	Event json.RawMessage `json:"event"`
}

// offer puts an event in line. The endpoint is the user: the limits of a user count for it. The ID makes a second offer of
// the same event do nothing, and lets waterclock why --job say what became of it.
func offer(ctx context.Context, client *queue.Client, customer, endpoint, id string, h hook) error {
	payload, err := json.Marshal(h)
	if err != nil {
		return err
	}
	receipts, err := client.Enqueue(ctx, queue.Job{
		ID: id, Tenant: customer, User: endpoint, Type: "hook", Payload: payload, MaxAttempts: 5, Timeout: 15 * time.Second,
	})
	if err == nil && receipts[0].Status == queue.Dropped {
		return fmt.Errorf("the event %s is not delivered: %s", id, receipts[0].Reason)
	}
	return err
}

// A caller calls the endpoints.
type caller struct{ client *http.Client }

// ProcessTask calls one endpoint. What it returns decides what becomes of the job.
func (c caller) ProcessTask(ctx context.Context, t *asynq.Task) error {
	var h hook
	if err := json.Unmarshal(t.Payload(), &h); err != nil {
		return fmt.Errorf("the payload: %w: %w", err, asynq.SkipRetry) // another attempt would find the same
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.URL, bytes.NewReader(h.Event))
	if err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := c.client.Do(request)
	if err != nil {
		return err // again later, under the same limits
	}
	defer answer.Body.Close()
	failed := fmt.Errorf("the endpoint answers %s", answer.Status)
	switch {
	case answer.StatusCode < 300:
		return nil
	case answer.StatusCode == http.StatusTooManyRequests: // not a failed attempt: this endpoint waits, and no other
		seconds, _ := strconv.Atoi(answer.Header.Get("Retry-After"))
		return queue.Pause{Scope: queue.ScopeUser, For: time.Duration(max(1, seconds)) * time.Second, Cause: failed}
	case answer.StatusCode < 500:
		return fmt.Errorf("%w: %w", failed, asynq.SkipRetry)
	}
	return failed
}
