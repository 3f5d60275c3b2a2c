package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
	"github.com/waterclock/waterclock/throttle"
)

// A master of a divided queue dies with a replica that has been behind, which is promoted; then that one is away for ten seconds, without a
// replica. No durable offer that was accepted is lost, of a hundred thousand, and jobs of partitions on other masters start as soon as ever.
// It is a measurement, on a machine that has nothing else to do.
func TestAMasterOfADividedQueueIsLost(t *testing.T) {
	sample.WholeOnly(t)
	const partitions, tenants, offers = 12, 24, 100_000
	cluster := redistest.StartNodes(t, 3, "--cluster-require-full-coverage", "no", "--save", "")
	replicas := make([]*redistest.Server, len(cluster.Nodes))
	for k, node := range cluster.Nodes {
		replicas[k] = cluster.StartReplica(t, node, "--cluster-require-full-coverage", "no", "--save", "")
	}
	client := cluster.Client(t)
	must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
		Partitions: partitions, Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}}},
	}))
	const victim = 0
	lies := func(tenant string) bool { // on the victim
		key := fmt.Sprintf("wc:{push/%d}:meta", store.PartitionOf(tenant, partitions))
		return cluster.Owner(t, key) == cluster.Nodes[victim]
	}
	var others, hit []string
	for k := range tenants {
		if name := fmt.Sprint("tenant-", k); lies(name) {
			hit = append(hit, name)
		} else {
			others = append(others, name)
		}
	}
	if len(hit) == 0 || len(others) == 0 {
		t.Fatal(hit, others)
	}

	var mu sync.Mutex
	began := make(map[string]time.Time)
	h := &recorder{then: func(_ context.Context, info queue.Info) error {
		mu.Lock()
		defer mu.Unlock()
		began[info.ID] = time.Now()
		return nil
	}}
	for range 3 {
		runWorker(t, cluster.Client(t), h, queue.WorkerConfig{Concurrency: 50})
	}

	// Durable offers to all partitions go on until so many are accepted. One producer has tenants of the victim, whose offers wait for it;
	// the others have none.
	bulk := make(map[bool][]string)
	for k := range 40 {
		name := fmt.Sprint("bulk-", k)
		bulk[lies(name)] = append(bulk[lies(name)], name)
	}
	durable := durableClient(t, cluster.Client(t), queue.Durability{Replicas: 1})
	var accepted []queue.Job
	var count atomic.Int64
	var producers sync.WaitGroup
	for p := range 4 {
		of := bulk[p == 0]
		producers.Go(func() {
			for n := 0; count.Load() < offers && t.Context().Err() == nil; n++ {
				batch := make([]queue.Job, 100)
				for k := range batch {
					batch[k] = queue.Job{ID: fmt.Sprintf("bulk-%d-%d-%d", p, n, k), Tenant: of[(n+k)%len(of)], User: "u", Type: "x", NotBefore: time.Now().Add(time.Hour)}
				}
				receipts, _ := durable.Enqueue(t.Context(), batch...) // what is in doubt is not among the accepted
				mu.Lock()
				for k, r := range receipts {
					if r.Status == queue.Accepted || r.Status == queue.Duplicate {
						accepted = append(accepted, batch[k])
						count.Add(1)
					}
				}
				mu.Unlock()
				letPass(t, 100*time.Millisecond)
			}
		})
	}

	// measure offers jobs of tenants on other masters at a pace, and returns how long they waited.
	probes := newClient(t, client, "push")
	measure := func(what string, lasts time.Duration) (p50, p99 time.Duration) {
		t.Helper()
		offered := make(map[string]time.Time)
		for begin := time.Now(); time.Since(begin) < lasts; letPass(t, 10*time.Millisecond) {
			id := fmt.Sprint(what, len(offered))
			offered[id] = time.Now()
			_, err := probes.Enqueue(t.Context(), queue.Job{ID: id, Tenant: others[len(offered)%len(others)], User: id, Type: "x"})
			must(t, err)
		}
		redistest.Eventually(t, 10*time.Second, "the jobs of other masters have started", func() bool {
			mu.Lock()
			defer mu.Unlock()
			for id := range offered {
				if began[id].IsZero() {
					return false
				}
			}
			return true
		})
		var waits []time.Duration
		mu.Lock()
		defer mu.Unlock()
		for id, at := range offered {
			waits = append(waits, began[id].Sub(at))
		}
		slices.Sort(waits)
		p50, p99 = waits[len(waits)/2], waits[len(waits)*99/100]
		t.Logf("%s: %d jobs on other masters waited %v, and %v at the 99th percentile; %d offers accepted", what, len(waits), p50.Round(10*time.Microsecond), p99.Round(10*time.Microsecond), count.Load())
		return p50, p99
	}
	measure("warm", 4*time.Second)
	_, usual := measure("usual", 8*time.Second)

	goOn := replicas[victim].Freeze()
	letPass(t, 300*time.Millisecond) // it is behind
	cluster.Nodes[victim].Kill()
	goOn()
	_, failing := measure("failover", 6*time.Second)
	redistest.Eventually(t, 30*time.Second, "the replica is a master", func() bool {
		return replicas[victim].Client(t).Do(t.Context(), "ROLE").Val().([]any)[0] == "master"
	})
	_, promoted := measure("promoted", 6*time.Second)
	goOn = replicas[victim].Freeze()
	_, away := measure("away", 10*time.Second)
	goOn()
	for what, p99 := range map[string]time.Duration{"failover": failing, "promoted": promoted, "away": away} {
		if p99 > usual*3/2 {
			t.Errorf("%s: the 99th percentile is %v, and %v usually", what, p99, usual)
		}
	}
	must(t, enqueueUntilAccepted(t, probes, queue.Job{ID: "after", Tenant: hit[0], User: "u", Type: "x"}))
	redistest.Eventually(t, 30*time.Second, "the tenants of the master that was away go on", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return !began["after"].IsZero()
	})
	cluster.Nodes[victim].Resume() // a replica now: durable offers are possible again
	producers.Wait()
	lost := 0
	for batch := range slices.Chunk(accepted, 500) {
		receipts, err := probes.Enqueue(t.Context(), batch...)
		must(t, err)
		for _, r := range receipts {
			if r.Status != queue.Duplicate {
				lost++
			}
		}
	}
	t.Logf("%d durable offers were accepted, %d are lost", len(accepted), lost)
	if lost > 0 {
		t.Errorf("%d of %d durable offers are lost", lost, len(accepted))
	}
}

// enqueueUntilAccepted offers a job again until it is accepted.
func enqueueUntilAccepted(t *testing.T, client *queue.Client, job queue.Job) error {
	for {
		receipts, err := client.Enqueue(t.Context(), job)
		if err == nil && (receipts[0].Status == queue.Accepted || receipts[0].Status == queue.Duplicate) || t.Context().Err() != nil {
			return t.Context().Err()
		}
		letPass(t, 100*time.Millisecond)
	}
}

// letPass lets time pass in a measurement.
func letPass(t *testing.T, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-t.Context().Done():
	}
}
