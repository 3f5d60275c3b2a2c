package main

import (
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
)

// --http serves the worker's numbers, and whether it lives and reaches Redis.
func TestMonitors(t *testing.T) {
	server := redistest.Start(t)
	var stdout, stderr lockedBuffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	args := []string{"--redis", server.URL(), "--sender=log", "--http=127.0.0.1:0"}
	go func() { done <- run(ctx, args, nil, &stdout, &stderr) }()
	redistest.Eventually(t, 10*time.Second, "it runs", func() bool { return strings.Contains(stderr.String(), "pulling") })
	address := regexp.MustCompile(`http=(http://\S+)`).FindStringSubmatch(stderr.String())
	if address == nil {
		t.Fatalf("no address in %s", stderr.String())
	}
	get := func(path string) (int, string) {
		reply, err := http.Get(address[1] + path)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		return reply.StatusCode, string(body)
	}
	redistest.Eventually(t, 10*time.Second, "it leads", func() bool {
		status, body := get("/metrics")
		return status == http.StatusOK && strings.Contains(body, `waterclock_leading{queue="push"} 1`)
	})
	if status, body := get("/readyz"); status != http.StatusOK {
		t.Errorf("not ready: %s", body)
	}
	server.Kill()
	if status, body := get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("without Redis %d, %s", status, body)
	}
	if status, _ := get("/healthz"); status != http.StatusOK {
		t.Error("without Redis it is not alive: it would be killed while it waits")
	}
	server.Resume()
	stop()
	if err := <-done; err != nil {
		t.Errorf("after a clean stop: %v", err)
	}
	if status, _, text := work(t, "--sender=log", "--redis", server.URL(), "--http=nowhere"); status != 2 || !strings.Contains(text, "want an address such as") {
		t.Errorf("exit status %d, %s", status, text)
	}
}
