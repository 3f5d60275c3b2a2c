package callback_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/callback"
)

// A process that is killed is this program again, with these.
const (
	roleVariable  = "CALLBACK_TEST_ROLE"
	redisVariable = "CALLBACK_TEST_REDIS"
)

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: os.Getenv(redisVariable), ContextTimeoutEnabled: true})
	if err := play(ctx, role, rdb); err != nil {
		log.Fatal(err)
	}
}

// play is a worker, one job in ten of which ends badly, or a relay.
func play(ctx context.Context, role string, rdb redis.UniversalClient) error {
	if role == "relay" {
		relay, err := callback.NewRelay(callback.Config{Redis: rdb})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, Lease: time.Second})
	if err != nil {
		return err
	}
	return worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
		time.Sleep(10 * time.Millisecond)
		if info, _ := queue.FromContext(ctx); strings.HasSuffix(info.ID, "7") {
			return asynq.SkipRetry
		}
		return nil
	}))
}

// A shop is an endpoint: it verifies what it gets, and shares no code with who has sent it.
type shop struct {
	*httptest.Server
	key []byte

	mu   sync.Mutex
	ends map[string]map[string]int // of each job, by how it has ended and the webhook-id: how often
	bad  []string
}

func openShop(t *testing.T) *shop {
	s := &shop{key: []byte("0123456789abcdef0123456789abcdef"), ends: make(map[string]map[string]int)}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *shop) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	id, at := r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp")
	mac := hmac.New(sha256.New, s.key)
	fmt.Fprintf(mac, "%s.%s.%s", id, at, body)
	var message struct {
		Type string
		Data struct {
			Tenant, User string
			Data         map[string]string
		}
	}
	err := json.Unmarshal(body, &message)
	s.mu.Lock()
	defer s.mu.Unlock()
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); err != nil || r.Header.Get("webhook-signature") != want || message.Data.Tenant != "school" {
		s.bad = append(s.bad, string(body))
		return
	}
	job := message.Data.Data["id"]
	if s.ends[job] == nil {
		s.ends[job] = make(map[string]int)
	}
	s.ends[job][message.Type+" "+id]++
}

func (s *shop) heardOf() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.ends)
}

// Workers and relays are killed again and again: of each job its shop hears once, by a signed request.
func TestCallbacksThroughKills(t *testing.T) {
	sample.Slow(t)
	server := redistest.Start(t)
	rdb, shop := server.Client(t), openShop(t)
	const n = 1000
	var jobs []queue.Job
	for i := range n {
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("order-%d", i), User: fmt.Sprint(i % 50), Callback: queue.Callback{
			URL: shop.URL + "/hooks", Secret: "whsec_" + base64.StdEncoding.EncodeToString(shop.key),
		}})
	}
	offer(t, rdb, jobs...)
	sender, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	limit(t, rdb, callback.Queue("push"), "limits: {endpoint: {key: [tenant, keys.endpoint], concurrency: 10}}\n")
	delivery := newWorker(t, rdb, callback.Queue("push"))
	defer run(t, func(ctx context.Context) error { return delivery.Run(ctx, notify.Handler(sender)) })()

	start := func(role string) *exec.Cmd {
		process := exec.Command(os.Args[0])
		process.Env = append(os.Environ(), roleVariable+"="+role, redisVariable+"="+server.Addr)
		if err := process.Start(); err != nil {
			t.Fatal(err)
		}
		return process
	}
	kill := func(process *exec.Cmd) {
		_ = process.Process.Kill()
		_ = process.Wait() // it says that it was killed
	}
	crew := map[string][]*exec.Cmd{"work": {start("work"), start("work")}, "relay": {start("relay"), start("relay")}}
	defer func() {
		for _, processes := range crew {
			for _, process := range processes {
				kill(process)
			}
		}
	}()
	begun, kills := time.Now(), 0
	redistest.Eventually(t, time.Minute, "the shop has heard of all jobs", func() bool {
		if role := []string{"relay", "work"}[kills%2]; time.Since(begun) > time.Duration(kills+1)*400*time.Millisecond && kills < 12 {
			i := kills / 2 % 2
			kill(crew[role][i])
			crew[role][i] = start(role)
			kills++
		}
		return kills == 12 && shop.heardOf() == n
	})
	shop.mu.Lock()
	defer shop.mu.Unlock()
	if len(shop.bad) > 0 {
		t.Errorf("%d requests cannot be verified: %s", len(shop.bad), shop.bad[0])
	}
	for job, ends := range shop.ends {
		want := "job.done"
		if strings.HasSuffix(job, "7") {
			want = "job.dead"
		}
		for end, times := range ends {
			if len(ends) != 1 || times != 1 || !strings.HasPrefix(end, want+" ") {
				t.Errorf("%s: %v", job, ends)
			}
		}
	}
}

// Of three endpoints of a tenant one answers with errors, and one not at all: under the limits that the documentation suggests
// the third hears of its jobs as if it were alone.
func TestAnEndpointThatIsDownWaitsAlone(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, limits, _ := strings.Cut(string(page), "# callbacks.yaml\n")
	limits, _, _ = strings.Cut(limits, "```")
	server, shop := redistest.Start(t), openShop(t)
	rdb := server.Client(t)
	limit(t, rdb, callback.Queue("push"), limits)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }))
	defer down.Close()
	ctx, awake := context.WithCancel(context.Background())
	hangs := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-ctx.Done():
		case <-r.Context().Done():
		}
	}))
	defer hangs.Close()
	defer awake()
	var jobs []queue.Job
	const each = 40
	for i := range each {
		for _, url := range []string{hangs.URL, down.URL, shop.URL} {
			jobs = append(jobs, queue.Job{ID: fmt.Sprintf("%s-%d", url, i), User: fmt.Sprint(i % 5), Callback: queue.Callback{
				URL: url + "/hooks", Secret: "whsec_" + base64.StdEncoding.EncodeToString(shop.key),
			}})
		}
	}
	offer(t, rdb, jobs...)
	sender, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sender.Close()
	worker, delivery := newWorker(t, rdb, "push"), newWorker(t, rdb, callback.Queue("push"))
	done := asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })
	stopDelivery := run(t, func(ctx context.Context) error { return delivery.Run(ctx, notify.Handler(sender)) })
	defer func() {
		awake()
		stopDelivery()
	}()
	defer run(t, newRelay(t, rdb).Run)()
	defer run(t, func(ctx context.Context) error { return worker.Run(ctx, done) })()
	// Alone it would take 40 jobs at 50/s; those of the others take some of the tenant's slots, too.
	redistest.Eventually(t, 10*time.Second, "the endpoint that is well has heard of all of its jobs", func() bool { return shop.heardOf() == each })
}
