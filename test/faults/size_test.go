package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// TestSize measures what docs/operations.md says about memory: a waiting job in a lane of
// ten, and a user whose jobs are done and whose window remembers them.
func TestSize(t *testing.T) {
	if testing.Short() {
		t.Skip("offers thousands of jobs")
	}
	const perUser, payload = 10, 100
	count := sample.Size(0, 20_000, 50_000)
	client := redistest.Start(t).Client(t)
	err := newInspector(t, client, queueName).SetPolicies(t.Context(), queue.Policies{
		Default: "p", Policies: map[string]queue.Policy{"p": {User: []throttle.Rule{throttle.Window(perUser, time.Hour)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	before := memory(t, client)
	jobs := make([]queue.Job, count)
	for i := range jobs {
		jobs[i] = queue.Job{
			Tenant: "school-7", User: fmt.Sprint("teacher-", i%(count/perUser)), Type: "push", Payload: make([]byte, payload),
		}
	}
	if _, err := newClient(t, client, queueName).Enqueue(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	perJob := (memory(t, client) - before) / count
	drainAll(t, client, int64(count))
	perIdle := (memory(t, client) - before) / (count / perUser)
	t.Logf("a waiting job with %d bytes of payload takes %d bytes; a user with %d starts in the window takes %d bytes",
		payload, perJob, perUser, perIdle)
	if perJob > 350 || perIdle > 650 {
		t.Error("that is more than docs/operations.md says")
	}
}

func memory(t *testing.T, client *redis.Client) int {
	t.Helper()
	// The receipts of batches are kept for a minute, and are not what is asked for.
	for batches := client.Scan(t.Context(), 0, "wc:*:batch:*", 1000).Iterator(); batches.Next(t.Context()); {
		client.Del(t.Context(), batches.Val())
	}
	info := client.InfoMap(t.Context(), "memory").Item
	number := func(field string) int {
		n, err := strconv.Atoi(info("Memory", field))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return number("used_memory") - number("mem_clients_normal")
}

func drainAll(t *testing.T, client *redis.Client, jobs int64) {
	t.Helper()
	worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{queueName}})
	if err != nil {
		t.Fatal(err)
	}
	var started atomic.Int64
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- worker.Run(ctx, asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			started.Add(1)
			return nil
		}))
	}()
	t.Cleanup(func() { t.Logf("%d of %d jobs have started", started.Load(), jobs) })
	redistest.Eventually(t, 3*time.Minute, "all jobs are done", func() bool { return started.Load() >= jobs })
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := started.Load(); n != jobs {
		t.Errorf("%d starts of %d jobs", n, jobs)
	}
}
