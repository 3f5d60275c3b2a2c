package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A job of a partition that has little to do starts soon beside one that uses up the rule of the queue. It is a measurement, on a machine
// that has nothing else to do: the bound is far above what is usual.
func TestAQuietPartition(t *testing.T) {
	sample.WholeOnly(t)
	client := redistest.Start(t).Client(t)
	must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
		Partitions: 16, Queue: []throttle.Rule{throttle.Leak(500, time.Second)},
	}))
	var mu sync.Mutex
	began, loud := make(map[string]time.Time), 0
	h := func(_ context.Context, info queue.Info) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if info.Tenant == "loud" {
			loud++
		} else {
			began[info.ID] = now
		}
		return nil
	}
	for range 3 {
		runWorker(t, client, &recorder{then: h}, queue.WorkerConfig{})
	}
	producer := newClient(t, client, "push")
	for k := range 100 {
		all := jobs("loud", fmt.Sprint("user-", k), 100)
		_, err := producer.Enqueue(t.Context(), all...)
		must(t, err)
	}
	const first, measured = 80, 300 // at first the machine has other things to do
	offered := make(map[string]time.Time)
	begin := time.Now()
	pace := time.NewTicker(37 * time.Millisecond)
	defer pace.Stop()
	for k := range first + measured {
		<-pace.C
		id := fmt.Sprint("quiet-", k)
		offered[id] = time.Now()
		_, err := producer.Enqueue(t.Context(), queue.Job{Tenant: fmt.Sprint("quiet-", k%5), User: "user", Type: "push", ID: id})
		must(t, err)
	}
	redistest.Eventually(t, 10*time.Second, "all jobs of the quiet tenants have started", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(began) == first+measured
	})
	mu.Lock()
	defer mu.Unlock()
	var waits []time.Duration
	for k := range measured {
		id := fmt.Sprint("quiet-", first+k)
		waits = append(waits, began[id].Sub(offered[id]))
	}
	slices.Sort(waits)
	p50, p99 := waits[measured/2], waits[measured*99/100]
	t.Logf("from offer to start: p50 %v, p99 %v, most %v; %d jobs of the other tenant in %v", p50, p99, waits[measured-1], loud, time.Since(begin))
	if p99 > 30*time.Millisecond {
		t.Errorf("p99 is %v", p99)
	}
}
