package main

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue/access"
)

// A token of a file lets its owner act at the worker's dashboard, also one that comes while the worker runs.
func TestTokensFile(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("tokens: []")
	var stdout, stderr redistest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- run(ctx, []string{"--redis", server.URL(), "--sender=log", "--http=127.0.0.1:0", "--tokens-file", file}, nil, &stdout, &stderr)
	}()
	redistest.Eventually(t, 10*time.Second, "it runs", func() bool { return strings.Contains(stderr.String(), "pulling") })
	address := regexp.MustCompile(`http=(http://\S+)`).FindStringSubmatch(stderr.String())
	if address == nil {
		t.Fatalf("no address in %s", stderr.String())
	}
	token, hash := access.New()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	enter := func() int {
		reply, err := client.PostForm(address[1]+"/dashboard/-/login", url.Values{"token": {token}})
		if err != nil {
			t.Fatal(err)
		}
		reply.Body.Close()
		return reply.StatusCode
	}
	if status := enter(); status != http.StatusForbidden {
		t.Errorf("a token that is not in the file: status %d", status)
	}
	write("tokens: [{name: ann, hash: " + hash + ", scopes: [steer], queues: [push]}]")
	redistest.Eventually(t, 10*time.Second, "the file is read", func() bool { return strings.Contains(stderr.String(), "new tokens") })
	if status := enter(); status != http.StatusSeeOther {
		t.Errorf("status %d", status)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// --http serves the worker's numbers, and whether it lives and reaches Redis.
func TestMonitors(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	var stdout, stderr redistest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	args := []string{"--redis", server.URL(), "--sender=log", "--http=127.0.0.1:0", "--metrics-tenants=school-1,school-2"}
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
	if _, body := get("/metrics"); !strings.Contains(body, `waterclock_tenant_wait_seconds_count{queue="push",tenant="school-2"} 0`) {
		t.Errorf("no metrics of a tenant: %s", body)
	}
	if status, body := get("/dashboard/push/"); status != http.StatusOK || !strings.Contains(body, "nothing waits") || !strings.Contains(body, "read-only") {
		t.Errorf("the dashboard: %d, %s", status, body)
	}
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

// What the provider's sender counts is served, too.
func TestMonitorsOfASender(t *testing.T) {
	hook, err := notifytest.NewWebhook(notifytest.Options{TCP: true})
	must(t, err)
	defer hook.Close()
	server, dir := redistest.Start(t), t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	write(t, ca, string(hook.CA))
	t.Setenv(senders.SecretVariable, hook.PrivateKey)
	job, err := notify.NewJob("school", "teacher", notify.Message{Title: "hello", Targets: []notify.Target{{Token: hook.URL + "/hook"}}})
	must(t, err)
	_, err = newClient(t, server.Client(t), "push").Enqueue(t.Context(), job)
	must(t, err)
	var stdout, stderr redistest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	args := []string{"--redis", server.URL(), "--sender=webhook", "--webhook-private", "--provider-ca", ca, "--http=127.0.0.1:0"}
	go func() { done <- run(ctx, args, nil, &stdout, &stderr) }()
	want := `waterclock_sends_total{action="done",code="ok",provider="webhook"} 1`
	redistest.Eventually(t, 10*time.Second, want, func() bool {
		address := regexp.MustCompile(`http=(http://\S+)`).FindStringSubmatch(stderr.String())
		if address == nil {
			return false
		}
		reply, err := http.Get(address[1] + "/metrics")
		if err != nil {
			return false
		}
		defer reply.Body.Close()
		body, _ := io.ReadAll(reply.Body)
		return strings.Contains(string(body), want)
	})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
