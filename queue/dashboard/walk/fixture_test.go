package walk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http/httptest"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/dashboard"
	"github.com/waterclock/waterclock/queue/watch"
)

const token = "a-token-for-the-walk"

const policies = `default: standard
policies:
  standard:
    tenant: {rules: [{leak: 5/s}], concurrency: 4, capacity: 500}
    user: {rules: [{window: 10/1m}, {spacing: 3s}]}
  large:
    tenant: {rules: [{leak: 10/s}], capacity: 5000}
    user: {rules: [{window: 10/1m}]}
tenants:
  oak: large
limits:
  domain: {jobs: {type: mail}, key: keys.domain, rules: [{window: 40/1h}, {leak: 2/s}], each: {big.example: {rules: [{window: 400/1h}]}}}
  campaign: {jobs: {type: "mail"}, key: [tenant, keys.domain], counts: jobs, rules: [{window: 5/24h}]}
  calls: {jobs: {type: call}, concurrency: 3}
`

// A stage is a queue that works, and its dashboard.
type stage struct {
	*testing.T
	rdb       *redis.Client
	inspector *watch.Watcher
	client    *queue.Client
	url       string
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// open starts a Redis, a worker whose jobs of type "broken" die, and a dashboard.
func open(t *testing.T) *stage {
	s := &stage{T: t, rdb: redistest.Start(t).Client(t)}
	var err error
	s.inspector, err = watch.New(s.rdb, "push")
	s.must(err)
	s.client, err = queue.NewClient(s.rdb, "push")
	s.must(err)
	p, err := queue.ParsePolicies("policies.yaml", []byte(policies))
	s.must(err)
	s.must(s.inspector.As(queue.Note{Author: "ann", Reason: "the first ones"}).SetPolicies(t.Context(), p))
	quiet := slog.New(slog.DiscardHandler)
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{Queues: []string{"push"}, Concurrency: 20, Logger: quiet})
	s.must(err)
	board, err := dashboard.New(dashboard.Config{Redis: s.rdb, Queues: []string{"push"}, Token: token, Logger: quiet})
	s.must(err)
	s.offer()
	s.past()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 2)
	go func() { ended <- worker.Run(ctx, asynq.HandlerFunc(handle)) }()
	go func() { ended <- board.Run(ctx) }()
	server := httptest.NewServer(board)
	s.url = server.URL
	t.Cleanup(func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		server.Close()
	})
	return s
}

func handle(ctx context.Context, task *asynq.Task) error {
	switch task.Type() {
	case "broken":
		return fmt.Errorf("the printer is out of paper: %w", asynq.SkipRetry)
	case "flaky":
		return errors.New("try again")
	case "call":
		<-ctx.Done()
	}
	return nil
}

// offer fills the queue: a flood, a busy teacher, jobs that die, and more than a backlog holds.
func (s *stage) offer() {
	var jobs []queue.Job
	for i := range 2000 {
		jobs = append(jobs, queue.Job{Tenant: "oak", User: fmt.Sprintf("parent-%d", i%400), Type: "announcement"})
	}
	for i := range 30 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("reply-%d", i), Tenant: "birch", User: "teacher-42", Type: "chat", Payload: []byte(`{"text":"hello"}`)})
	}
	for i := range 3 {
		jobs = append(jobs, queue.Job{ID: fmt.Sprintf("letter-%d", i), Tenant: "cedar", User: fmt.Sprintf("office-%d", i), Type: "broken"})
	}
	for i := range 520 {
		jobs = append(jobs, queue.Job{Tenant: "elm", User: fmt.Sprintf("pupil-%d", i%60), Type: "reminder"})
	}
	jobs = append(jobs, queue.Job{Tenant: "cedar", User: "office-9", Type: "flaky"},
		queue.Job{Tenant: "cedar", User: "office-9", Type: "report", NotBefore: time.Now().Add(time.Hour)})
	domains := []string{"big.example", "small.example", "post.example", "<i>.example", "a-name-that-is-long-and-has-no-space-in-it.mail.example"}
	for i := range 300 {
		domain := domains[i%len(domains)]
		jobs = append(jobs, queue.Job{Tenant: fmt.Sprintf("shop-%d", i%7), User: fmt.Sprintf("buyer-%d", i), Type: "mail", Keys: map[string]string{"domain": domain}})
	}
	for i := range 6 {
		jobs = append(jobs, queue.Job{Tenant: "phones", User: fmt.Sprintf("caller-%d", i), Type: "call"})
	}
	for range 20 {
		jobs = append(jobs, queue.Job{Tenant: "<script>alert(1)</script>", User: "\u202egnol\x00\xff", Type: "<b>"})
	}
	_, err := s.client.Enqueue(s.Context(), jobs...)
	s.must(err)
}

// past writes ten minutes of history that end in what is now, as if somebody had watched: charts
// need one to be seen.
func (s *stage) past() {
	now, err := s.inspector.Record(s.Context())
	s.must(err)
	const seconds = 590
	since := func(k int, of func(x float64) float64) float64 { return of(float64(k)) - of(seconds) }
	waited := func(k int, of func(x float64) float64) time.Duration {
		return time.Duration(since(k, of) * float64(time.Second))
	}
	fields := make(map[string]string)
	for k := range seconds {
		p, x := now, float64(k)
		p.At = now.At.Add(-time.Duration(seconds-k) * time.Second)
		p.Health.Condition, p.Health.Places, p.Health.Workers, p.Health.Running = watch.Throttled, 20, 1, int64(6+4*math.Sin(x/30)+math.Sin(x/3))
		p.Health.Waiting = now.Health.Waiting - 900 + int64(1.5*x+500*math.Sin(x/110))
		p.Later += int64(8 + 6*math.Sin(x/50))
		p.Counters.Started += int64(since(k, func(x float64) float64 { return 13*x - 180*math.Cos(x/45) - 10*math.Cos(x/7) }))
		p.Counters.Offered += int64(since(k, func(x float64) float64 { return 15*x - 420*math.Cos(x/60) }))
		p.Counters.Dropped += int64(since(k, func(x float64) float64 { return .4*x - 18*math.Cos(x/60) }))
		p.Counters.Failed += int64(since(k, func(x float64) float64 { return .6*x - 12*math.Cos(x/40) }))
		p.Blocked = map[string]time.Duration{
			"leak 10/s":    waited(k, func(x float64) float64 { return 400*x - 16000*math.Cos(x/80) }),
			"window 10/1m": waited(k, func(x float64) float64 { return 180 * x }),
			"spacing 3s":   waited(k, func(x float64) float64 { return 90*x - 3600*math.Cos(x/60) }),
		}
		text, err := json.Marshal(p)
		s.must(err)
		second := p.At.Unix()
		fields[strconv.FormatInt(second%600, 10)] = fmt.Sprintf("%d %s", second, text)
	}
	s.must(s.rdb.HSet(s.Context(), "wc:{push}:chart:1", fields).Err())
}
