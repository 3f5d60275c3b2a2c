package worker

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/internal/clock"
	"github.com/waterclock/waterclock/queue/internal/elect"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
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

// beaten is a worker that has had its first beat, and does nothing by itself.
func beaten(t *testing.T, client redis.UniversalClient, l *log) (*Worker, store.BeatReply) {
	s, err := store.New(client, "q")
	if err != nil {
		t.Fatal(err)
	}
	c, log := clock.New(nil), slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	w := New(Config{
		Store: s, Name: "a", Places: NewPlaces(100), Lease: 15 * time.Second, ShutdownTimeout: time.Second,
		Handle: l.handle, Log: log,
	}, c, elect.New(elect.Config{Store: s, Clock: c, Worker: "a", Log: log}))
	w.Begin(t.Context())
	reply, err := s.Beat(t.Context(), store.Beat{Worker: "a", Lease: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	c.Observe(reply.Reading)
	return w, reply
}

// A watched server is one whose commands a test can do something to.
type watched struct {
	*miniredis.Miniredis
	mu     sync.Mutex
	around func(cmd redis.Cmder, do func() error) error
}

// wired is such a worker as beaten, with a Redis of its own.
func wired(t *testing.T, l *log) (*Worker, store.BeatReply, *watched) {
	server := &watched{Miniredis: inprocess.New()}
	t.Cleanup(server.Close)
	client := redistest.MiniClient(t, server.Miniredis)
	client.AddHook(server)
	w, reply := beaten(t, client, l)
	return w, reply, server
}

// intercept lets a function run instead of each command.
func (s *watched) intercept(around func(cmd redis.Cmder, do func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.around = around
}

func (s *watched) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s *watched) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s *watched) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.mu.Lock()
		around := s.around
		s.mu.Unlock()
		if around == nil {
			return next(ctx, cmd)
		}
		return around(cmd, func() error { return next(context.WithoutCancel(ctx), cmd) }) // what was sent arrives
	}
}

// missing is such a worker with a job that has missed its slot by a second.
func missing(t *testing.T, client redis.UniversalClient, l *log) (w *Worker, claim envelope.Claim) {
	w, reply := beaten(t, client, l)
	env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
	missed := reply.Now - 1_000_000
	claim = envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}, Slot: missed, Spent: missed}
	client.HSet(t.Context(), "wc:{q}:running:a", claim.String(), env.String())
	w.Accept(Given{Claim: claim, Job: env.String()})
	synctest.Wait()
	return w, claim
}

// A thousand jobs report to Redis at once, and do not take all connections of a client.
func TestJobsLeaveConnections(t *testing.T) {
	client := redis.NewClient(&redis.Options{})
	defer client.Close()
	pool := client.Options().PoolSize
	synctest.Test(t, func(t *testing.T) {
		w, _ := beaten(t, redistest.Mini(t), new(log))
		var mu sync.Mutex
		var jobs sync.WaitGroup
		now, most, done := 0, 0, 0
		for range 1000 {
			jobs.Go(func() {
				w.Retry("reporting", func(context.Context) error {
					mu.Lock()
					now++
					most = max(most, now)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					now, done = now-1, done+1
					return nil
				})
			})
		}
		jobs.Wait()
		if most >= pool || most < pool/2 || done != 1000 {
			t.Errorf("%d of 1000 jobs reported, %d at once; a client has %d connections", done, most, pool)
		}
	})
}
