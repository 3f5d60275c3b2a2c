package faults

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// TestLargePayloadsDelayNobody measures how long the jobs of one tenant wait while another
// one's carry as much as there may be, ten of them a second.
func TestLargePayloadsDelayNobody(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	const tries = 3 // the machine may be busy
	for try := 1; ; try++ {
		calm, heavy := lightWaits(t, 0), lightWaits(t, 1<<20)
		t.Logf("without large payloads %v, with them %v", calm, heavy)
		if heavy <= 2*max(calm, 15*time.Millisecond) {
			return
		}
		if try == tries {
			t.Fatal("large payloads of one tenant delay another's jobs")
		}
	}
}

// lightWaits returns the 98th percentile of how long small jobs waited beside another
// tenant's with payloads of so many bytes.
func lightWaits(t *testing.T, bytes int) time.Duration {
	const jobs, every, heavyEvery = 250, 20 * time.Millisecond, 100 * time.Millisecond
	client := redistest.Start(t).Client(t)
	err := newInspector(t, client, queueName).SetPolicies(t.Context(), queue.Policies{
		Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var waits []time.Duration
	heavies := 0
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		mu.Lock()
		defer mu.Unlock()
		if info.Tenant == "light" {
			waits = append(waits, time.Since(info.Offered))
		} else if len(task.Payload()) == bytes {
			heavies++
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	for range 2 {
		worker, err := queue.NewWorker(client, queue.WorkerConfig{Queues: []string{queueName}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() { worker.Run(ctx, handler) })
	}
	redistest.Eventually(t, 10*time.Second, "both work", func() bool {
		return client.ZCard(ctx, "wc:{"+queueName+"}:workers").Val() == 2
	})
	producer := newClient(t, client, queueName)
	offer := func(tenant string, i int, payload []byte) {
		job := queue.Job{Tenant: tenant, User: fmt.Sprint("u", i), Type: "push", Payload: payload}
		if _, err := producer.Enqueue(t.Context(), job); err != nil {
			t.Error(err)
		}
	}
	const large = int(jobs * every / heavyEvery)
	running.Go(func() {
		for i, tick := 0, time.NewTicker(heavyEvery); i < large; i++ {
			<-tick.C
			offer("heavy", i, make([]byte, bytes))
		}
	})
	tick := time.NewTicker(every)
	for i := range jobs {
		<-tick.C
		offer("light", i, nil)
	}
	redistest.Eventually(t, 30*time.Second, "all have started", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(waits) == jobs && heavies == large
	})
	slices.Sort(waits)
	return waits[jobs*98/100]
}
