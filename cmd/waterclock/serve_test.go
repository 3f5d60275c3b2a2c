package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// serving runs serve until the returned function is called. It returns where it serves, and
// the lines that it has printed.
func (t *terminal) serving(lines int, args ...string) (address string, printed []string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- run(ctx, append([]string{"serve", "--http", "127.0.0.1:0", "--redis", t.url}, args...), strings.NewReader(""), in, io.Discard)
	}()
	reader := bufio.NewReader(out)
	for range lines {
		line, err := reader.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		printed = append(printed, line)
	}
	return strings.TrimSuffix(strings.Fields(printed[0])[1], "/"), printed, func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// ask returns the status and the body of an answer.
func (t *terminal) ask(url, token string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, _ := io.ReadAll(reply.Body)
	return reply.Status + " " + string(body)
}

// serve answers Prometheus and says whether Redis can be reached.
func TestServe(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.offer(queue.Job{Tenant: "school", User: "teacher", Type: "push"})
	address, printed, stop := c.serving(2)
	for path, want := range map[string]string{
		"/metrics": `waterclock_queue_jobs{queue="push",state="waiting"} 1`, "/healthz": "ok", "/readyz": "ready", "/nothing": "404", "/v1/queues": "404",
		"/": "no worker lives", "/dashboard/push/tenants": "school", "/dashboard/-/login": "was started without a token", "/dashboard/nothing/": "404",
	} {
		if got := c.ask(address+path, ""); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %q", path, got, want)
		}
	}
	if !strings.Contains(printed[1], "the HTTP API is not served: it needs --token-file FILE, --tokens-file FILE or WATERCLOCK_TOKEN") {
		t.Errorf("printed %q", printed)
	}
	stop()
	address, _, stop = c.serving(2, "--metrics-tenants", "nobody,school", "--metrics-busiest", "5")
	for _, want := range []string{`waterclock_queue_tenant_waiting_jobs{queue="push",tenant="school"} 1`, `waterclock_queue_tenant_waiting_jobs{queue="push",tenant="nobody"} 0`} {
		if got := c.ask(address+"/metrics", ""); !strings.Contains(got, want) {
			t.Errorf("/metrics: %s, want %q", got, want)
		}
	}
	stop()
	c.fails(2, "101 tenants; want at most 100", "serve", "--metrics-busiest", "101")
	c.fails(2, "want an address such as 127.0.0.1:9090", "serve", "--http", "nowhere")
}

// With a token, serve answers the API, of the queue or of all.
func TestServeAPI(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	const token = "a-token-that-nobody-guesses"
	file := c.file("token", token+"\n")
	for _, all := range []bool{false, true} {
		args := []string{"--token-file", file}
		if all {
			args = append(args, "--all")
		}
		address, _, stop := c.serving(1, args...)
		if got := c.ask(address+"/v1/queues/push", token); !strings.HasPrefix(got, "200 ") || !strings.Contains(got, `"condition":"idle"`) {
			t.Error(got)
		}
		if got := c.ask(address+"/v1/queues/push", "another"); !strings.HasPrefix(got, "401 ") {
			t.Error(got)
		}
		if got := c.ask(address+"/v1/queues/other", token); strings.HasPrefix(got, "200 ") != all {
			t.Error(got)
		}
		stop()
	}
	c.fails(2, "want at least 16", "serve", "--http", "127.0.0.1:0", "--token-file", c.file("short", "x"))
}

// The password of Redis can stand in a file.
func TestPasswordFile(t *testing.T) {
	t.Parallel()
	server, file := redistest.StartWithPassword(t)
	c := &terminal{t, nil, server.URL()}
	c.fails(1, "NOAUTH", "stats")
	c.prints([]string{"stats", "--password-file", file}, "queue push is idle")
}

// With a file of limits, serve decides by them, under keys that no queue has.
func TestServeLimits(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	token := c.file("token", "a-token-that-nobody-guesses")
	address, _, stop := c.serving(1, "--token-file", token, "--limits-file", c.file("limits.yaml", "limits: {all: {counts: jobs, rules: [{window: 1/1h}]}}"))
	defer stop()
	for _, want := range []string{`"allowed":true`, `"allowed":false`} {
		r, err := http.NewRequestWithContext(t.Context(), "POST", address+"/v1/decide", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer a-token-that-nobody-guesses")
		r.Header.Set("Content-Type", "application/json")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(reply.Body); reply.StatusCode != 200 || !strings.Contains(string(body), want) {
			t.Errorf("%s %s, want %s", reply.Status, body, want)
		}
		reply.Body.Close()
	}
	if keys := c.client.Keys(t.Context(), "wc:{:limits}*").Val(); len(keys) == 0 {
		t.Error("nothing is counted in Redis")
	}
	if queues, err := watch.Queues(t.Context(), c.client); err != nil || len(queues) != 0 {
		t.Errorf("queues %q, %v", queues, err)
	}
	c.fails(2, "limits.yaml:1: limits.all.rule: unknown key", "serve", "--http", "127.0.0.1:0", "--token-file", token, "--limits-file", c.file("limits.yaml", "limits: {all: {rule: []}}"))
	c.fails(2, "--limits-file: the HTTP API, which it is for, needs", "serve", "--http", "127.0.0.1:0", "--limits-file", c.file("limits.yaml", "limits: {}"))
}
