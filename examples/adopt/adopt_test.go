package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// A ledger has what was sent.
type ledger struct {
	mu   sync.Mutex
	sent map[string]int
}

func (l *ledger) add(m mail) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[m.ID]++
}

// missing returns which of the mails were not sent once.
func (l *ledger) missing(ids []string) (wrong []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if n := l.sent[id]; n != 1 {
			wrong = append(wrong, fmt.Sprintf("%s was sent %d times", id, n))
		}
	}
	return wrong
}

func (l *ledger) count(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent[id]
}

// A move is a service on its way.
type move struct {
	*testing.T
	service
	ledger
	url  string
	page string
	all  []string // the mails that were enqueued
}

func newMove(t *testing.T) *move {
	server := redistest.Start(t)
	page, err := os.ReadFile("../../docs/migrate-from-asynq.md")
	if err != nil {
		t.Fatal(err)
	}
	m := &move{T: t, url: server.URL(), page: string(page), ledger: ledger{sent: make(map[string]int)}}
	m.service = service{rdb: server.Client(t), sent: m.ledger.add}
	return m
}

func (m *move) must(err error) {
	m.Helper()
	if err != nil {
		m.Fatal(err)
	}
}

// begin runs a server or a worker until the returned function is called.
func (m *move) begin(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		m.must(<-done)
	})
	m.Cleanup(stop)
	return stop
}

// enqueues enqueues mails for parents in turn.
func (m *move) enqueues(step string, n int, options ...asynq.Option) {
	m.Helper()
	for i := range n {
		next := mail{ID: fmt.Sprint(step, " ", i), School: "oak", Parent: fmt.Sprint("parent ", i%5), Text: "hello"}
		m.must(m.enqueue(m.Context(), next, options...))
		m.all = append(m.all, next.ID)
	}
}

// accounted waits until all that was enqueued was sent, each mail once.
func (m *move) accounted(step string) {
	m.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; {
		wrong := m.missing(m.all)
		if len(wrong) == 0 {
			return
		}
		if time.Now().After(deadline) {
			m.Fatalf("%s: of %d mails:\n%s", step, len(m.all), strings.Join(wrong, "\n"))
		}
		<-time.After(20 * time.Millisecond)
	}
}

// eventually waits for something else.
func (m *move) eventually(what string, holds func() bool) {
	m.Helper()
	redistest.Eventually(m, 30*time.Second, what, holds)
}

// apply puts policies in force.
func (m *move) apply(text string) {
	m.Helper()
	policies, err := queue.ParsePolicies("policies.yaml", []byte(text))
	m.must(err)
	inspector, err := queue.NewInspector(m.rdb, queueName)
	m.must(err)
	m.must(inspector.SetPolicies(m.Context(), policies))
}

func (m *move) stats() queue.Stats {
	m.Helper()
	inspector, err := queue.NewInspector(m.rdb, queueName)
	m.must(err)
	stats, err := inspector.Stats(m.Context())
	m.must(err)
	return stats
}

// block returns the first block of a language in the page.
func (m *move) block(language string) string {
	m.Helper()
	found := regexp.MustCompile("(?s)```" + language + "\n(.*?)```").FindStringSubmatch(m.page)
	if found == nil {
		m.Fatalf("the page shows no %q", language)
	}
	return regexp.MustCompile(`(?m)^   `).ReplaceAllString(found[1], "")
}

// TestMove moves the service over as docs/migrate-from-asynq.md says, and back. Every mail is
// accounted for after every step.
func TestMove(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds, and builds a command")
	}
	m := newMove(t)
	digests := atomic.Int64{}
	scheduler, err := m.schedule("@every 1s", mail{ID: "digest", School: "oak", Parent: "everybody"}, func(_ *asynq.TaskInfo, err error) {
		if err == nil {
			digests.Add(1)
		}
	})
	m.must(err)
	m.must(scheduler.Start())
	stopScheduler := sync.OnceFunc(scheduler.Shutdown)
	t.Cleanup(stopScheduler)
	// Before.
	stopServer := m.begin(m.runServer)
	m.enqueues("before", 20)
	m.accounted("before")
	m.resultsKept(m.all[0])
	// 1. Policies that only watch.
	shadows := m.block("yaml")
	if strings.Count(shadows, "shadow: true") != 2 {
		t.Fatalf("the page's policies do not only watch:\n%s", shadows)
	}
	m.apply(shadows)
	// 2. A worker beside the servers.
	stopWorker := m.begin(m.runWorker)
	m.enqueues("beside", 60)
	m.accounted("2")
	m.enqueues("scheduled", 5, asynq.ProcessIn(2*time.Second))
	// 3. The servers stop.
	stopServer()
	m.enqueues("alone", 20)
	m.accounted("3")
	m.resultsKept(m.all[len(m.all)-1])
	// 4. The limits go live.
	m.apply(strings.ReplaceAll(shadows, ", shadow: true", ""))
	m.limited()
	// 5. Producers with headers.
	for i := range 5 {
		next := mail{ID: fmt.Sprint("with headers ", i), School: "elm", Parent: "bob"}
		bare := task(typeMail, next)
		_, err := asynq.NewClientFromRedisClient(m.rdb).Enqueue(
			asynq.NewTaskWithHeaders(bare.Type(), bare.Payload(), queue.Headers(next.School, next.Parent)), asynq.Queue(queueName))
		m.must(err)
		m.all = append(m.all, next.ID)
	}
	m.eventually("the headers are read", func() bool { return len(m.missing(m.all)) == 6 })
	// The way back.
	stopWorker()
	m.begin(m.runServer)
	m.enqueues("back", 20)
	m.apply("default: none\npolicies: {none: {}}\n")
	m.command()
	m.accounted("the way back")
	if left := m.stats(); left.Waiting+left.Later+left.Running+left.Dead != 0 {
		t.Errorf("left behind: %+v", left)
	}
	stopScheduler()
	m.eventually("all digests were sent", func() bool { return int64(m.count("digest")) == digests.Load() })
	if digests.Load() < 3 {
		t.Errorf("%d digests", digests.Load())
	}
	counted, err := m.rdb.HGet(t.Context(), "mail:count", typeMail).Int()
	if err != nil || counted != len(m.all) {
		t.Errorf("the middleware has counted %d of %d mails, %v", counted, len(m.all), err)
	}
}

// TestMoveByForward takes the steps of the page for a fleet that keeps its handlers, and the way back. Every mail is
// accounted for after every step.
func TestMoveByForward(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const limited = queueName + "-limited"
	m := newMove(t)
	for _, block := range []string{`Queues: map[string]int{"mail": 1, "mail-limited": 1}`, `queue.Forward(fleet, "mail-limited", asynq.Retention(time.Hour))`} {
		if !strings.Contains(m.page, block) {
			t.Fatalf("the page does not say %s", block)
		}
	}
	fleet := func(queues map[string]int) (stop func()) {
		server := asynq.NewServerFromRedisClient(m.rdb, asynq.Config{
			Queues: queues, Concurrency: 10, LogLevel: asynq.ErrorLevel, TaskCheckInterval: 50 * time.Millisecond,
		})
		m.must(server.Start(m.mux()))
		stop = sync.OnceFunc(server.Shutdown)
		t.Cleanup(stop)
		return stop
	}
	stop := fleet(map[string]int{queueName: 1})
	m.enqueues("before", 10)
	m.accounted("before")
	shadows := m.block("yaml")
	m.apply(shadows) // 1
	stop()
	stop = fleet(map[string]int{queueName: 1, limited: 1}) // 2
	stopWorker := m.begin(m.forward(limited, true))        // 3
	m.enqueues("beside", 40)
	m.accounted("beside")
	m.enqueues("scheduled", 5, asynq.ProcessIn(2*time.Second))
	stop()
	fleet(map[string]int{limited: 1})
	m.enqueues("alone", 20)
	m.accounted("alone")
	m.apply(strings.ReplaceAll(shadows, ", shadow: true", "")) // 4
	m.limited()
	kept, err := asynq.NewInspectorFromRedisClient(m.rdb).ListCompletedTasks(limited, asynq.PageSize(100))
	m.must(err)
	for _, task := range kept {
		if !strings.HasPrefix(string(task.Result), "sent at ") {
			t.Errorf("the fleet has kept no result of %s", task.Payload)
		}
	}
	if len(kept) < 30 { // what came alone, and ten of those that were limited
		t.Errorf("asynq's tools see %d completed tasks of the fleet", len(kept))
	}
	// The way back.
	stopWorker()
	fleet(map[string]int{queueName: 1, limited: 1})
	m.enqueues("back", 10)
	m.apply("default: none\npolicies: {none: {}}\n")
	m.begin(m.forward(queueName, false)) // which is what the page's command does
	m.accounted("the way back")
	if left := m.stats(); left.Waiting+left.Later+left.Running+left.Dead != 0 {
		t.Errorf("left behind: %+v", left)
	}
}

// limited sends one parent more than the limit: ten are sent, six wait. One is enough of the
// last, as long as it waits.
func (m *move) limited() {
	m.Helper()
	ann := mail{School: "elm", Parent: "ann"}
	for i := range 15 {
		ann.ID = fmt.Sprint("limited ", i)
		m.must(m.enqueue(m.Context(), ann))
		m.all = append(m.all, ann.ID)
	}
	m.eventually("five wait", func() bool { return len(m.missing(m.all)) == 5 && m.stats().Waiting == 5 })
	ann.ID = "reminder"
	m.must(m.remind(m.Context(), ann))
	m.all = append(m.all, ann.ID)
	m.eventually("it waits", func() bool { return m.stats().Waiting == 6 })
	if err := m.remind(m.Context(), ann); !errors.Is(err, asynq.ErrDuplicateTask) {
		m.Errorf("a second reminder while the first one waits: %v", err)
	}
}

// forward returns a worker that releases the service's jobs into an asynq queue.
func (m *move) forward(to string, inbox bool) func(context.Context) error {
	return func(ctx context.Context) error {
		worker, err := queue.NewWorker(m.rdb, queue.WorkerConfig{Queues: []string{queueName}, Inbox: inbox, InboxJob: jobOf})
		if err != nil {
			return err
		}
		return worker.Run(ctx, queue.Forward(asynq.NewClientFromRedisClient(m.rdb), to, asynq.Retention(time.Hour)))
	}
}

// resultsKept checks that asynq's tools show the result of a mail.
func (m *move) resultsKept(id string) {
	m.Helper()
	m.eventually("a result is kept", func() bool {
		tasks, err := asynq.NewInspectorFromRedisClient(m.rdb).ListCompletedTasks(queueName, asynq.PageSize(1000))
		m.must(err)
		for _, task := range tasks {
			if strings.Contains(string(task.Payload), id) && strings.HasPrefix(string(task.Result), "sent at ") {
				return true
			}
		}
		return false
	})
}

// command runs the command of the page that takes back what waits.
func (m *move) command() {
	m.Helper()
	line := strings.Fields(m.block("sh"))
	if line[0] != "worker" {
		m.Fatalf("the page's command is %q", line)
	}
	bin := m.TempDir() + "/worker"
	build := exec.Command("go", "build", "-o", bin, "../../cmd/worker")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		m.Fatalf("%v\n%s", err, out)
	}
	if out, err := exec.Command(bin, append(line[1:], "--redis", m.url)...).CombinedOutput(); err != nil {
		m.Fatalf("%q: %v\n%s", line, err, out)
	}
}
