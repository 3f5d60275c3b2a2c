package runner

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/queue/internal/worker"
)

type log struct {
	mu  sync.Mutex
	all []Attempt
}

func (l *log) handle(_ context.Context, a Attempt) Outcome {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, a)
	return Outcome{}
}

func (l *log) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.all)
}

func testConfig(t *testing.T, s *store.Store, name string, p *schedule.Policies, l *log) Config {
	var handler func(context.Context, Attempt) Outcome
	if l != nil {
		handler = l.handle
	}
	return Config{
		Store: s, Name: name, Places: worker.NewPlaces(100), Lease: 15 * time.Second, ShutdownTimeout: time.Second,
		Policies: func(string, int64, int64) (*schedule.Policies, error) { return p, nil }, Handle: handler,
		Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
}

func start(t *testing.T, client redis.UniversalClient, name string, p *schedule.Policies, l *log) (stop func()) {
	s, err := store.New(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	r := New(testConfig(t, s, name, p, l))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.Run(ctx)
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	t.Cleanup(stop)
	return stop
}

func offer(t *testing.T, client redis.UniversalClient, version int64, user string, n int) {
	t.Helper()
	s, _ := store.New(client, "q")
	o := store.Offer{Batch: fmt.Sprint(time.Now().UnixNano(), user), Keep: time.Minute, Policies: version, Tenants: []store.OfferTenant{{Name: "t"}}}
	for i := range n {
		e := envelope.Envelope{Cost: 1, MaxAttempts: envelope.DefaultAttempts, Priority: envelope.Normal, Type: "x", Payload: fmt.Sprint(user, i)}
		o.Jobs = append(o.Jobs, store.OfferJob{Lane: envelope.Lane{Tenant: "t", User: user, Priority: 1}, Body: e.Body()})
	}
	if _, err := s.Offer(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

func TestThinPath(t *testing.T) {
	t.Run("redis", func(t *testing.T) {
		client := redistest.Start(t).Client(t)
		var l log
		start(t, client, "a", nil, &l)
		offer(t, client, 0, "u", 10)
		redistest.Eventually(t, 5*time.Second, "all have run", func() bool { return l.count() == 10 })
	})
	t.Run("virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			client.HSet(t.Context(), "wc:{q}:policies", "version", 1, "source", "x")
			client.HSet(t.Context(), "wc:{q}:meta", "policies", 1)
			p := &schedule.Policies{Default: "p", Policies: map[string]schedule.Policy{"p": {Tenant: rules.Compile(0, rules.Rule{Kind: rules.Leak, Limit: 2, Period: time.Second})}}}
			var l log
			stop := start(t, client, "a", p, &l)
			stop2 := start(t, client, "b", p, &l)
			offer(t, client, 1, "u", 10)
			offer(t, client, 1, "v", 10)
			time.Sleep(20 * time.Second)
			if l.count() != 20 {
				t.Errorf("%d starts", l.count())
			}
			for i, a := range l.all {
				t.Log(i, a.Lane.User, a.Job.Payload, a.Slot-l.all[0].Slot, a.Started-a.Slot)
			}
			stop()
			stop2()
		})
	})
}

// TestNewWorkersAreSeen starts two workers at once: the leader gives jobs to the other one
// too, at once.
func TestNewWorkersAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		s, err := store.New(client, "q")
		if err != nil {
			t.Fatal(err)
		}
		var running atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		var workers sync.WaitGroup
		for _, name := range []string{"a", "b", "c"} {
			cfg := testConfig(t, s, name, nil, nil)
			cfg.Handle = func(ctx context.Context, _ Attempt) Outcome {
				running.Add(1)
				<-ctx.Done()
				return Outcome{}
			}
			workers.Go(func() { New(cfg).Run(ctx) })
		}
		time.Sleep(100 * time.Millisecond)
		offer(t, client, 0, "u", 250)
		time.Sleep(500 * time.Millisecond)
		if n := running.Load(); n != 250 {
			t.Errorf("%d of 250 jobs run in three workers with 100 places each", n)
		}
		stop()
		workers.Wait()
	})
}

// TestANewWorkerLooksAgain starts a worker beside a leader that was killed a moment ago and
// has appointed nobody: the worker leads as soon as that lease has ended.
func TestANewWorkerLooksAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		s, err := store.New(client, "q")
		if err != nil {
			t.Fatal(err)
		}
		if term, err := s.Lead(t.Context(), "killed", aloneLease, ""); err != nil || term.Token == "" {
			t.Fatal(term, err)
		}
		var l log
		start(t, client, "a", nil, &l)
		offer(t, client, 0, "u", 10)
		time.Sleep(aloneLease - time.Millisecond)
		if l.count() > 0 {
			t.Error("two workers lead at once")
		}
		time.Sleep(2 * elect.Looks) // it may look a moment too early, and then once more
		if l.count() != 10 {
			t.Errorf("%d of 10 jobs have started when the lease of the killed leader had ended", l.count())
		}
	})
}
