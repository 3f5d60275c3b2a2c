package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/queuetest"
)

// endpoint answers without a network: tests in virtual time have none.
type endpoint func(*http.Request) (status int, retryAfter string)

func (e endpoint) RoundTrip(r *http.Request) (*http.Response, error) {
	status, retryAfter := e(r)
	return &http.Response{
		StatusCode: status, Status: fmt.Sprint(status, " ", http.StatusText(status)), Body: io.NopCloser(strings.NewReader("")),
		Header: http.Header{"Retry-After": {retryAfter}}, Request: r,
	}, nil
}

// The limits of policies.yaml, with the handler, in virtual time.
func TestLimits(t *testing.T) {
	file, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	policies, err := queue.ParsePolicies("policies.yaml", file)
	if err != nil {
		t.Fatal(err)
	}
	calls := 0
	handler := caller{&http.Client{Transport: endpoint(func(*http.Request) (int, string) {
		if calls++; calls == 30 {
			return http.StatusTooManyRequests, "90"
		}
		return http.StatusOK, ""
	})}}
	queuetest.Run(t, queuetest.Config{Policies: policies, Handler: handler}, func(t *testing.T, q *queuetest.Queue) {
		for i := range 130 {
			if err := offer(t.Context(), q.Client, "customer-2", "orders", fmt.Sprint("event-", i), hook{URL: "https://example.com", Event: []byte(`{}`)}); err != nil {
				t.Fatal(err)
			}
		}
		q.Drain()
		q.Verify()
		starts := q.Starts()
		if len(starts) != 131 { // one of them twice
			t.Errorf("%d starts, want 131", len(starts))
		}
		if took := starts[130].Started.Sub(starts[0].Started); took < 2*time.Minute || took > 5*time.Minute {
			t.Errorf("130 events took %v, want two minutes and the pause", took)
		}
	})
}

// The service, with a real Redis and real requests: it delivers, answers its probes, takes a changed file, and stops.
func TestServe(t *testing.T) {
	var got atomic.Int64
	target := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if text, _ := io.ReadAll(r.Body); string(text) == `{"order":7}` {
			got.Add(1)
		}
	}))
	defer target.Close()
	rdb, dir, address := redistest.Start(t).Client(t), t.TempDir(), free(t)
	policies, starts := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "starts.jsonl")
	text, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	write(t, policies, text)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- serve(ctx, rdb, config{Policies: policies, Starts: starts, HTTP: address, Client: target.Client()})
	}()
	redistest.Eventually(t, 10*time.Second, "it is ready", func() bool { return strings.Contains(get(address, "/readyz"), "ready") })
	client, err := queue.NewClient(rdb, hooks)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		id := fmt.Sprint("event-", i%10) // each twice
		if err := offer(t.Context(), client, "customer-2", fmt.Sprint("endpoint-", i%10), id, hook{URL: target.URL, Event: []byte(`{"order":7}`)}); err != nil {
			t.Fatal(err)
		}
	}
	redistest.Eventually(t, 10*time.Second, "ten have arrived", func() bool { return got.Load() == 10 })
	redistest.Eventually(t, 10*time.Second, "the metrics say so", func() bool {
		page := get(address, "/metrics")
		return strings.Contains(page, `waterclock_jobs_total{outcome="done",queue="hooks"} 10`) && strings.Contains(page, `waterclock_wait_seconds_count{queue="hooks"} 10`) &&
			strings.Contains(page, `waterclock_queue_up{queue="hooks"} 1`)
	})
	inspector, err := queue.NewInspector(rdb, hooks)
	if err != nil {
		t.Fatal(err)
	}
	write(t, policies, []byte("default: standard\npolicies: {standard: {tenant: {capacity: 7}}}\n"))
	redistest.Eventually(t, 10*time.Second, "the changed file is in force", func() bool {
		in, err := inspector.Policies(t.Context())
		return err == nil && in.Policies.Policies["standard"].Capacity == 7
	})
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	lines, err := os.ReadFile(starts)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(lines)) {
		var start struct{ Tenant, User string }
		if err := json.Unmarshal([]byte(line), &start); err != nil || start.Tenant != "customer-2" || start.User == "" {
			t.Errorf("%s: %v", line, err)
		}
	}
	if n := strings.Count(string(lines), "\n"); n != 10 {
		t.Errorf("%d starts are written down, want 10", n)
	}
}

// A file with a mistake keeps the service from starting, and says where it is.
func TestServeWithAMistake(t *testing.T) {
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, []byte("default: standard\npolicies:\n  standard: {tenant: {rules: [{leek: 5/s}]}}\n"))
	err := serve(t.Context(), redistest.Mini(t), config{Policies: file})
	if err == nil || !strings.Contains(err.Error(), file+":3") || !strings.Contains(err.Error(), "leak") {
		t.Errorf("%v, want the line and the right word", err)
	}
}

func write(t *testing.T, name string, text []byte) {
	t.Helper()
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// free returns an address that nobody listens at.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func get(address, path string) string {
	answer, err := http.Get("http://" + address + path)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	return string(text)
}
