package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// work runs the command until it ends and returns its exit status and what it wrote.
func work(t *testing.T, args ...string) (status int, stdout, stderr string) {
	t.Helper()
	var out, errs redistest.Buffer
	err := run(t.Context(), args, strings.NewReader(""), &out, &errs)
	status = config.Report("worker", err, &errs)
	return status, out.String(), errs.String()
}

func TestFlags(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, want string }{
		{"--concurrency=0", "--concurrency 0: want 1 to 100000"},
		{"--concurrency=all", `--concurrency "all": want a whole number`},
		{"--sender=sms", `--sender "sms": want log, forward, fcm, apns, webpush or webhook`},
		{"", "--sender: which one? Want log, forward, fcm, apns, webpush or webhook; or --config"},
		{"--config=x --sender=fcm", "--sender: with --config, the senders and what they need stand in the file"},
		{"--config=x --apns-topic=x", "--apns-topic: with --config, the senders and what they need stand in the file"},
		{"--sender=log --trust-answers", "--forgotten-file, --forgotten-stream, --trust-answers: only the senders fcm, apns, webpush, webhook use them"},
		{"--sender=log --secret-file=x", "--secret-file: only the senders fcm, apns, webpush, webhook use it"},
		{"--sender=fcm --apns-topic=x", "--apns-topic: only the sender apns uses it"},
		{"--sender=apns --apns-topic=x", "--apns-key-id: the sender apns needs it"},
		{"--sender=webpush", "--webpush-subject: the sender webpush needs it"},
		{"--sender=apns --fcm-project=x", "--fcm-project: only the sender fcm uses it"},
		{"--sender=fcm --webpush-private", "--webpush-private: only the sender webpush uses it"},
		{"--sender=log --dry-run", "--dry-run: only the senders fcm, apns, webpush, webhook use it"},
		{"--sender=forward --proxy=http://p:1", "--proxy: only the senders fcm, apns, webpush, webhook use it"},
		{"--sender=fcm --connections=-1", "--connections -1: want at least 1, or 0 for the sender's own choice"},
		{"--sender=forward --log-file=x", "--log-file: only --sender log writes it"},
		{"--sender=log --forward-queue=x", "--forward-queue: only --sender forward uses it"},
		{"--sender=log --log-file=", `--log-file "": want a file, or - for standard output`},
		{"--sender=forward --forward-queue=", `--forward-queue "": want the name of an asynq queue`},
		{"--sender=forward --forward-queue=push", `--forward-queue "push": the inbox would file the released jobs again, ` +
			"for ever; want another queue, or --inbox=false"},
		{"--sender=log --metrics-tenants=a,b", "--metrics-tenants: nobody can read them; want --http, too"},
		{"--sender=log --http=:0 --metrics-tenants=a,b,a", `--metrics-tenants: tenant "a" is named twice`},
		{"--queue=a --queue=a", `--queue "a": named twice`},
		{"--queue=a:b", `--queue "a:b": want 1 to 128 bytes without braces, colons or white space`},
		{"--log-level=loud", `--log-level "loud": want debug, info, warn or error`},
		{"--drain=soon", `--drain "soon": want true or false`},
		{"--htpp=127.0.0.1:8080", "unknown flag: --htpp"},
		{"--sender=log --redis=ftp://x", "--redis: want a URL such as redis://127.0.0.1:6379/0, redis-sentinel://HOST,HOST/0?master=NAME, redis-cluster://HOST,HOST, or embedded"},
		{"push", `unexpected argument "push": everything is said with flags`},
	}
	for _, tt := range tests {
		status, stdout, stderr := work(t, strings.Fields(tt.args)...)
		want := "worker: " + tt.want + " (worker --help shows how)\n"
		if status != 2 || stdout != "" || stderr != want {
			t.Errorf("%s: status %d\n got %swant %s%s", tt.args, status, stderr, want, stdout)
		}
	}
	if status, stdout, stderr := work(t, "--help"); status != 0 || stdout != usage || stderr != "" {
		t.Errorf("help: status %d\n%s%s", status, stdout, stderr)
	}
}

func TestFailures(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	bad := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, bad, "policies:\n  standard:\n    usr: {}\n")
	tests := []struct{ args, want string }{
		{"--sender=log --redis=redis://me:hunter2@127.0.0.1:1/0", "no Redis at 127.0.0.1:1: connection refused"},
		{"--sender=log --policies=none.yaml", "--policies: stat none.yaml: no such file or directory"},
		{"--sender=log --policies=" + bad, bad + ":3: policies.standard.usr: unknown key; want tenant, user, max_wait, closed_counts, weight or digest"},
	}
	for _, tt := range tests {
		status, stdout, stderr := work(t, strings.Fields(tt.args)...)
		if want := "worker: " + tt.want + "\n"; status != 1 || stdout != "" || stderr != want {
			t.Errorf("%s: status %d\n got %swant %s%s", tt.args, status, stderr, want, stdout)
		}
	}
	status, _, stderr := work(t, "--sender=log", "--redis=embedded", "--log-file=none/x.jsonl")
	if !strings.HasSuffix(stderr, "worker: --log-file: open none/x.jsonl: no such file or directory\n") || status != 1 {
		t.Errorf("status %d: %s", status, stderr)
	}
}

// At its start a worker says what is wrong with its Redis, and goes on where it can.
func TestServerIsChecked(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--maxmemory-policy", "allkeys-lru")
	status, _, stderr := work(t, "--sender=log", "--redis", server.URL(), "--drain")
	want := "maxmemory-policy is allkeys-lru: when its memory is full, Redis will throw waiting jobs away; want noeviction"
	if status != 0 || strings.Count(stderr, want) != 1 || !strings.Contains(stderr, "redis="+server.Addr) {
		t.Errorf("status %d: %s", status, stderr)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const someLimits = "default: a\npolicies: {a: {user: {rules: [{spacing: 20ms}]}}}\n"

func offer(t *testing.T, client redis.UniversalClient, name string, n int) {
	t.Helper()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = queue.Job{
			ID: fmt.Sprint(i), Tenant: "t", User: fmt.Sprint("u", i%3), Type: "push", Payload: []byte(`{"at":1748607359}`),
		}
	}
	if _, err := newClient(t, client, name).Enqueue(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
}

// Jobs of both doors, of two queues and of two workers end up in one file, once each and
// within the limits, and then the workers end.
func TestDrain(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	dir := t.TempDir()
	log, policies := filepath.Join(dir, "log.jsonl"), filepath.Join(dir, "policies.yaml")
	write(t, policies, someLimits)
	write(t, log, "{\"id\":\"before\"}\n")
	offer(t, client, "one", 30)
	offer(t, client, "two", 30)
	tasks := asynq.NewClientFromRedisClient(client)
	for range 5 {
		task := asynq.NewTaskWithHeaders("push", nil, queue.Headers("t", "u0"))
		if _, err := tasks.Enqueue(task, asynq.Queue("two")); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{
		"--redis", server.URL(), "--queue=one", "--queue=two", "--policies", policies, "--sender=log", "--log-file", log, "--drain",
	}
	var workers sync.WaitGroup
	for range 2 {
		workers.Go(func() {
			if status, stdout, stderr := work(t, args...); status != 0 || stdout != "" {
				t.Errorf("status %d\n%s%s", status, stdout, stderr)
			}
		})
	}
	workers.Wait()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	starts := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")[1:]
	if len(starts) != 65 {
		t.Errorf("%d starts, want 65", len(starts))
	}
	checkStarts(t, starts)
}

func checkStarts(t *testing.T, lines []string) {
	t.Helper()
	exactly := regexp.MustCompile(`^\{"id":"\w+(-\w+)*","tenant":"t","user":"u\d","type":"push",` +
		`"slot":"[0-9-]{10}T[0-9:]{8}\.\d{6}Z","started_at":"[0-9-]{10}T[0-9:]{8}\.\d{6}Z","attempt":1,"waited_ms":\d+\}$`)
	for _, line := range lines {
		var start struct {
			Slot    time.Time
			Started time.Time `json:"started_at"`
		}
		if err := json.Unmarshal([]byte(line), &start); err != nil || !exactly.MatchString(line) {
			t.Errorf("%s: %v", line, err)
		}
		if start.Started.Before(start.Slot) {
			t.Errorf("before its slot: %s", line)
		}
	}
}

func TestForward(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client(t)
	offer(t, client, "push", 20)
	status, stdout, stderr := work(t, "--redis", server.URL(), "--sender=forward", "--drain", "--inbox=false")
	if status != 0 || stdout != "" {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	tasks, err := asynq.NewInspectorFromRedisClient(client).ListPendingTasks("default", asynq.PageSize(100))
	if err != nil || len(tasks) != 20 {
		t.Errorf("%d tasks, %v", len(tasks), err)
	}
}

// A worker with a Redis of its own prints its address; jobs offered there are delivered
// to standard output. A changed file and SIGHUP are obeyed, a mistake is refused.
func TestEmbedded(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, file, someLimits)
	var stdout, stderr redistest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	args := []string{"--redis=embedded", "--sender=log", "--policies", file}
	go func() { done <- run(ctx, args, nil, &stdout, &stderr) }()
	says := func(what string) {
		t.Helper()
		redistest.Eventually(t, 10*time.Second, what, func() bool { return strings.Contains(stderr.String(), what) })
	}
	says("pulling")
	address := regexp.MustCompile(`redis=(redis://\S+)`).FindStringSubmatch(stderr.String())
	if address == nil {
		t.Fatalf("no address in %s", stderr.String())
	}
	rdb, err := config.OpenRedis(t.Context(), address[1])
	if err != nil {
		t.Fatal(err)
	}
	defer rdb.Close()
	offer(t, rdb, "push", 5)
	redistest.Eventually(t, 10*time.Second, "five starts", func() bool { return strings.Count(stdout.String(), "\n") == 5 })
	checkStarts(t, strings.Split(strings.TrimSuffix(stdout.String(), "\n"), "\n"))

	write(t, file, "default: b\n")
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	says(`there is no policy \"b\"`)
	write(t, file, "{}\n")
	says("new policies") // without being asked
	stop()
	if err := <-done; err != nil {
		t.Errorf("after a clean stop: %v\n%s", err, stderr.String())
	}
	if !strings.Contains(stderr.String(), "stopped") {
		t.Error(stderr.String())
	}
}

func newClient(t testing.TB, rdb redis.UniversalClient, name string) *queue.Client {
	t.Helper()
	client, err := queue.NewClient(rdb, name)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// SIGHUP opens the log file again after it was moved away, and ends no worker, policies or
// not. Jobs before it are in the one file, jobs after it in the other.
func TestHangupOpensTheLogAgain(t *testing.T) {
	server, dir := redistest.Start(t), t.TempDir()
	client := server.Client(t)
	log := filepath.Join(dir, "log.jsonl")
	var out redistest.Buffer
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	args := []string{"--redis", server.URL(), "--sender=log", "--log-file", log, "--inbox=false"}
	go func() { done <- run(ctx, args, nil, &out, &out) }()
	lines := func(name string) int {
		text, _ := os.ReadFile(name)
		return strings.Count(string(text), "\n")
	}
	offer(t, client, "push", 3)
	redistest.Eventually(t, 10*time.Second, "three starts", func() bool { return lines(log) == 3 })
	must(t, os.Rename(log, log+".1"))
	must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	redistest.Eventually(t, 10*time.Second, "a new file", func() bool {
		_, err := os.Stat(log)
		return err == nil
	})
	_, err := newClient(t, client, "push").Enqueue(t.Context(), queue.Job{ID: "after", Tenant: "t", User: "u", Type: "push"})
	must(t, err)
	redistest.Eventually(t, 10*time.Second, "a start in the new file", func() bool { return lines(log) == 1 })
	stop()
	must(t, <-done)
	if n := lines(log + ".1"); n != 3 {
		t.Errorf("%d lines in the old file, want 3", n)
	}
}
