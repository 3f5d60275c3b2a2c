package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/config"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A terminal calls the command for one Redis.
type terminal struct {
	*testing.T
	client redis.UniversalClient
	url    string
}

func openTerminal(t *testing.T) *terminal {
	server := redistest.Start(t)
	return &terminal{t, server.Client(t), server.URL()}
}

// call returns what a command prints, and its error.
func (t *terminal) call(stdin string, args ...string) (string, error) {
	var out, diagnostics bytes.Buffer
	err := run(t.Context(), append(args, "--redis", t.url, "--author", "ann"), strings.NewReader(stdin), &out, &diagnostics)
	if diagnostics.Len() > 0 {
		t.Errorf("%q wrote to stderr: %s", args, &diagnostics)
	}
	return out.String(), err
}

// prints calls a command that has to print some texts.
func (t *terminal) prints(args []string, want ...string) string {
	t.Helper()
	out, err := t.call("", args...)
	if err != nil {
		t.Errorf("%q: %v", args, err)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("%q lacks %q:\n%s", args, text, out)
		}
	}
	return out
}

// fails calls a command that has to fail, with an exit status and a text.
func (t *terminal) fails(status int, want string, args ...string) {
	t.Helper()
	_, err := t.call("", args...)
	var report bytes.Buffer
	if got := config.Report("waterclock", err, &report); got != status || !strings.Contains(report.String(), want) {
		t.Errorf("%q: exit status %d, %s; want %d and %q", args, got, &report, status, want)
	}
}

func words(line string) []string { return strings.Fields(line) }

func (t *terminal) offer(jobs ...queue.Job) {
	t.Helper()
	client, err := queue.NewClient(t.client, "push")
	if err == nil {
		_, err = client.Enqueue(t.Context(), jobs...)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// work runs a worker until the returned function is called.
func (t *terminal) work(places int, handler asynq.HandlerFunc) (stop func()) {
	worker, err := queue.NewWorker(t.client, queue.WorkerConfig{
		Queues: []string{"push"}, Concurrency: places, Lease: time.Second,
		RetryDelay: func(int, error, *asynq.Task) time.Duration { return 2 * time.Hour },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, handler) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func (t *terminal) file(name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const someLimits = `default: standard
policies:
  standard:
    tenant: {rules: [{leak: 100/s}]}
    user: {rules: [{window: 2/2h}], concurrency: 5}
`

// An operator's day: every command on a real Redis, one after the other.
func TestADayAtTheConsole(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints(words("stats"), "queue push is idle")
	c.fails(2, "--yes", "policies", "apply", c.file("bad.yaml", "polices: {}\n"), "--yes", "--yess")
	c.fails(1, "bad.yaml:1: polices: unknown key", "policies", "check", c.file("bad.yaml", "polices: {}\n"))
	file := c.file("policies.yaml", someLimits)
	c.prints([]string{"policies", "check", file}, "is right: 1 policy, 0 tenants named")
	c.prints([]string{"policies", "diff", file}, "+ default: standard", "window: 2/2h")
	if out, err := c.call("n\n", "policies", "apply", file); err == nil || !strings.Contains(out, "also for 0 jobs") {
		t.Errorf("applied without a yes: %s", out)
	}
	c.prints([]string{"policies", "apply", file, "--yes", "--reason", "the first ones"}, "The next start obeys")
	c.prints([]string{"policies", "apply", file, "--yes"}, "Nothing changes")
	c.prints(words("policies get"), "default: standard", "# version")
	c.prints(words("policies history"), "by ann: the first ones", "+ default: standard")
	c.fails(2, "there is no policy", "policies", "set-tenant", "school", "gold", "--yes")

	fails := map[string]error{"broken": errors.New("out of paper"), "once": errors.New("try again")}
	stop := c.work(10, func(_ context.Context, task *asynq.Task) error {
		if err := fails[task.Type()]; err != nil && task.Type() == "broken" {
			return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
		}
		return fails[task.Type()]
	})
	job := func(id, user, kind string) queue.Job {
		return queue.Job{ID: id, Tenant: "school", User: user, Type: kind, Payload: []byte("hello")}
	}
	c.offer(job("a", "teacher", "push"), job("b", "teacher", "push"), job("c", "teacher", "push"), job("d", "teacher", "push"),
		job("dead", "bob", "broken"), job("again", "eve", "once"))
	redistest.Eventually(t, 10*time.Second, "what may start has started, and ended", func() bool {
		out, _ := c.call("", "stats")
		return strings.Contains(out, "started     4") && strings.Contains(out, "running     0")
	})
	c.prints(words("queues"), "push", "throttled")
	c.prints(words("stats"), "is throttled", "waiting     2", "dead        1")
	c.prints(words("tenants"), "school  2", "TENANT")
	c.prints(words("users school"), "teacher  2")
	c.prints(words("lane school teacher"), "normal", "c ", "d ", "5 B")
	c.prints(words("why school teacher"), "Waiting: 2 jobs of school / teacher, 2 of the tenant.", "the user's rule window 2/2h", "◀ binds")
	c.prints(words("why school"), "school / teacher")
	c.prints(words("why --job d"), "at place 2 of its lane", "It starts in 2h")
	redistest.Eventually(t, 10*time.Second, "the end of job a is noted", func() bool {
		return strings.Contains(c.prints(words("why --job a")), "Job a is done. It was offered at ")
	})
	c.fails(1, "no job nobody is known", "why", "--job", "nobody")
	c.prints(words("retrying"), "eve", "once", "1", "try again")
	c.prints(words("failures"), "try again", "out of paper")
	c.prints(words("later"), "in 2h", "again")
	c.prints(words("dead"), "out of paper", "bob")
	c.prints(words("workers"), "leads")
	c.prints(words("top --times 1 --every 100ms"), "THROTTLED", "school")
	c.prints(words("check"), "throttled")
	c.fails(1, "2 jobs wait; at most 1", words("check --max-waiting 1")...)

	c.prints([]string{"pause", "school", "--for", "10m", "--reason", "their endpoint is down"}, "tenant school is paused until")
	c.prints(words("pauses"), "school", "ann", "their endpoint is down")
	c.prints(words("why school teacher"), "paused")
	c.prints(words("resume school"), "not paused any more")
	if out := c.prints(words("pauses")); strings.Contains(out, "school") {
		t.Errorf("still paused: %s", out)
	}
	c.prints(words("cancel d nobody --reason twice --author ann"), "1 of 2 jobs are cancelled", "Job nobody does not wait")
	c.prints(words("why --job d"), " by ann: twice; it is dropped when its turn comes")
	c.prints(words("revive --all --yes"), "1 of 1 jobs wait again")
	redistest.Eventually(t, 10*time.Second, "the revived one is dead again", func() bool {
		out, _ := c.call("", "dead")
		return strings.Contains(out, "out of paper")
	})
	if out, err := c.call("no\n", "purge", "school"); err == nil || !strings.Contains(out, "Drop 2 waiting jobs of tenant school?") {
		t.Errorf("purged without a yes: %s, %v", out, err)
	}
	c.prints(words("delete --all --yes"), "1 of 1 jobs are deleted")
	if out := c.prints(words("dead")); strings.Contains(out, "out of paper") {
		t.Errorf("still there: %s", out)
	}
	c.prints(words("purge school --yes"), "2 jobs were dropped")
	c.prints(words("drops --reason purged"), "school", "teacher")
	c.prints(words("drops --tenant nobody"), "REASON")
	stop()
	if out, err := c.call("", "doctor"); err == nil || !strings.Contains(out, "nothing starts without one") || !strings.Contains(out, "AOF off") {
		t.Errorf("the doctor finds nothing: %s", out)
	}
}

// A queue that nobody has used has nothing to watch or to steer: its name is misspelt. A tenant of
// whom no job is known may be yet to come: that is said.
func TestUnknownNames(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.fails(1, "queue push: nobody has ever used it; there are no queues in this Redis", "check")
	c.prints([]string{"policies", "apply", c.file("p.yaml", someLimits), "--yes"})
	for _, line := range []string{"check", "pause --for 1m --yes", "pause school --for 1m", "resume", "cancel a", "purge school --yes", "revive --all --yes", "delete --all --yes"} {
		c.fails(1, "queue pusj: nobody has ever used it; did you mean push?", append(words(line), "--queue", "pusj")...)
	}
	c.fails(1, "there are push", "check", "--queue", "mails")
	c.prints(words("check"), "idle")
	c.offer(queue.Job{Tenant: "school", User: "teacher", Type: "push", NotBefore: time.Now().Add(time.Hour)})
	c.prints(words("pause schol --for 1m"), "is paused until", " No job of tenant schol is known.")
	c.prints(words("resume schol"), "The tenant schol is not paused any more.")
	c.prints(words("resume scholl"), "The tenant scholl was not paused. No job of tenant scholl is known.")
	c.prints(words("resume school teacher"), "The user teacher of tenant school was not paused.")
	if out := c.prints(words("pause school --for 1m"), "is paused until"); strings.Contains(out, "known") {
		t.Errorf("its job is known: %s", out)
	}
}

// Whatever a name holds, it stays text.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	for _, name := range []string{"\x1b[31mred", "a\nb\tc", "\u202egnol", strings.Repeat("x", 1000), "\xff\xfe", "<b>", "--json", "a b"} {
		c.offer(queue.Job{Tenant: name, User: name, Type: "push"})
		for _, args := range [][]string{{"tenants", "-n", "50"}, {"users", "--", name}, {"why", "--", name}, {"lane", "--", name, name}} {
			out, err := run1(c, args)
			if err != nil || strings.ContainsAny(out, "\x1b\u202e\x00") {
				t.Errorf("%q: %v, %q", args, err, out)
			}
		}
	}
}

// run1 calls a command whose arguments end its flags.
func run1(c *terminal, args []string) (string, error) {
	var out, diagnostics bytes.Buffer
	err := run(c.Context(), append([]string{"--redis", c.url}, args...), strings.NewReader(""), &out, &diagnostics)
	return out.String(), err
}

// Every command that shows something prints JSON if asked.
func TestJSON(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	c.prints([]string{"policies", "apply", c.file("p.yaml", someLimits), "--yes"})
	c.offer(queue.Job{ID: "a", Tenant: "school", User: "teacher", Type: "push", NotBefore: time.Now().Add(time.Hour)}, queue.Job{Tenant: "school", User: "teacher", Type: "push"})
	for _, line := range []string{
		"queues", "stats", "tenants", "failures", "users school", "why school teacher", "why --job a", "lane school teacher", "running", "later", "retrying", "drops",
		"dead", "workers", "pauses", "policies get", "policies history", "pause school --for 1m", "resume school", "cancel a", "purge school --yes",
	} {
		out := c.prints(append(words(line), "--json"))
		if !json.Valid([]byte(out)) {
			t.Errorf("%s --json: %s", line, out)
		}
	}
}

// Two operators do not overwrite each other's policies.
func TestPoliciesAreComparedAndSet(t *testing.T) {
	t.Parallel()
	c := openTerminal(t)
	inspector, err := watch.New(c.client, "push")
	if err != nil {
		t.Fatal(err)
	}
	p, err := queue.ParsePolicies("p.yaml", []byte(someLimits))
	if err != nil {
		t.Fatal(err)
	}
	if err := inspector.SetPolicies(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	seen, err := inspector.Policies(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p.Tenants = map[string]string{"school": "standard"}
	if err := inspector.SetPolicies(t.Context(), p); err != nil { // somebody else
		t.Fatal(err)
	}
	p.Tenants = nil
	if err := inspector.ReplacePolicies(t.Context(), seen.Version, p); !errors.Is(err, queue.ErrPoliciesChanged) {
		t.Errorf("%v, want %v", err, queue.ErrPoliciesChanged)
	}
	if now, err := inspector.Policies(t.Context()); err != nil || now.Policies.Tenants["school"] != "standard" {
		t.Errorf("%+v, %v: the other one's change is lost", now, err)
	}
	c.prints(words("policies set-tenant other standard --yes --reason moved"), "obeys")
	c.prints(words("policies get"), "other: standard", "school: standard")
	c.prints(words("policies set-tenant other --yes"), "-     other: standard")
}
