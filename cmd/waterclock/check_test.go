package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// metric returns the numbers of the queue as Prometheus reads them.
func metric(t *testing.T, c *terminal) string {
	inspector, err := watch.New(c.client, "push")
	if err != nil {
		t.Fatal(err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(watch.NewCollector(inspector))
	out := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(out, httptest.NewRequest("GET", "/metrics", nil))
	return out.Body.String()
}

// The words for how a queue is, each made on a real Redis.
func TestConditions(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", someLimits), "--yes"})
	c.prints(words("check"), "idle")
	c.offer(queue.Job{Tenant: "school", User: "a", Type: "push"})
	c.fails(1, "the queue is stalled", "check")
	end := make(chan struct{})
	stop := c.work(2, func(_ context.Context, task *asynq.Task) error {
		<-end
		if task.Type() == "fails" {
			return errors.New("out of paper")
		}
		return nil
	})
	eventually := func(condition string) {
		t.Helper()
		redistest.Eventually(t, 10*time.Second, condition, func() bool {
			out, _ := c.call("", "check", "--max-overdue", "1h")
			return strings.Contains(out, "is "+condition)
		})
		c.prints(words("top --times 1 --every 100ms"), strings.ToUpper(condition))
		c.prints(words("stats"), "is "+condition)
		if name, value := metric(t, c), `waterclock_queue_condition{condition="`+condition+`",queue="push"} 1`; !strings.Contains(name, value) {
			t.Errorf("no %s in %s", value, name)
		}
	}
	eventually("idle") // it runs
	for _, user := range []string{"b", "c", "d"} {
		c.offer(queue.Job{Tenant: "school", User: user, Type: "push"})
	}
	eventually("starved")
	redistest.Eventually(t, 10*time.Second, "overdue", func() bool {
		_, err := c.call("", "check", "--max-overdue", "100ms")
		return err != nil && strings.Contains(err.Error(), "overdue")
	})
	c.prints(words("pause --for 10m --yes"))
	eventually("paused")
	c.prints(words("resume"))
	close(end)
	eventually("idle")
	for range 4 {
		c.offer(queue.Job{Tenant: "school", User: "e", Type: "push"})
	}
	eventually("throttled")
	for range 5 {
		c.offer(queue.Job{Tenant: "school", User: strconv.Itoa(rand.Int()), Type: "fails"})
	}
	eventually("failing")
	c.fails(1, "the queue is failing", "check")
	c.prints(words("stats"), "5 of the last", "the last one with: out of paper")
	stop()
	eventually("stalled")
}
