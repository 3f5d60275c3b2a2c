package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// All connections of a worker die without a word, as many as its pool holds; new ones work. The worker keeps its lease:
// no job runs again.
func TestAllConnectionsOfAPoolDieWithoutAWord(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr)
	const pool = 20
	hurt := redis.NewClient(&redis.Options{Addr: proxy.Addr, PoolSize: pool})
	t.Cleanup(func() { hurt.Close() })
	client := server.Client(t)
	var mu sync.Mutex
	runs := make(map[string]int)
	handler := asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		mu.Lock()
		runs[string(task.Payload())]++
		mu.Unlock()
		<-time.After(100 * time.Millisecond)
		return nil
	})
	var log redistest.Buffer
	cfg := queue.WorkerConfig{Concurrency: 10, Lease: 3 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}
	workers := func(n int) func() bool {
		return func() bool {
			all, err := newWatcher(t, client, "push").Workers(t.Context())
			return err == nil && len(all) == n
		}
	}
	runWorker(t, client, handler, cfg) // it leads, and takes back the jobs of the dead
	redistest.Eventually(t, 10*time.Second, "a worker is there", workers(1))
	runWorker(t, hurt, handler, cfg)
	redistest.Eventually(t, 10*time.Second, "two workers are there", workers(2))
	var waits sync.WaitGroup
	for range pool {
		waits.Go(func() { hurt.BLPop(t.Context(), 100*time.Millisecond, "nothing") }) // each by a connection of its own
	}
	waits.Wait()
	tick := time.NewTicker(15 * time.Millisecond)
	defer tick.Stop()
	for n := range 300 {
		enqueue(t, client, queue.Job{Tenant: "t", User: fmt.Sprint("u", n), Type: "x", Payload: fmt.Append(nil, n)})
		if n == 50 {
			proxy.Silence(true, false)
		}
		<-tick.C
	}
	redistest.Eventually(t, 20*time.Second, "all jobs have run", drained(t, client))
	if strings.Contains(log.String(), "took back the jobs of a worker") {
		t.Errorf("the worker has lost its lease:\n%s", &log)
	}
	mu.Lock()
	defer mu.Unlock()
	for payload, n := range runs {
		if n > 1 {
			t.Errorf("job %s has run %d times", payload, n)
		}
	}
}
