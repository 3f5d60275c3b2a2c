package queue_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Each node of a cluster does the work of its partitions, and no other: so n nodes carry n times as many. It is a measurement of the CPU time
// of three masters, on a machine that has nothing else to do.
func TestNodesShareTheWork(t *testing.T) {
	sample.WholeOnly(t)
	const tenants, rate, span = 200, 4000, 8 * time.Second
	client := redistest.StartCluster(t, 3)
	must(t, newInspector(t, client, "push").SetPolicies(t.Context(), queue.Policies{
		Partitions: 24, Default: "p", Policies: map[string]queue.Policy{"p": {Tenant: []throttle.Rule{throttle.Leak(rate/tenants, time.Second)}}},
	}))
	producer := newClient(t, client, "push")
	for user := range 40 {
		var all []queue.Job
		for k := range 10 * tenants {
			all = append(all, queue.Job{Tenant: fmt.Sprint("school-", k%tenants), User: fmt.Sprint("teacher-", user), Type: "push"})
		}
		_, err := producer.Enqueue(t.Context(), all...)
		must(t, err)
	}
	var mu sync.Mutex
	done := 0
	count := func() int {
		mu.Lock()
		defer mu.Unlock()
		return done
	}
	h := func(context.Context, queue.Info) error {
		mu.Lock()
		defer mu.Unlock()
		done++
		return nil
	}
	for range 3 {
		runWorker(t, client, &recorder{then: h}, queue.WorkerConfig{Concurrency: 400})
	}
	settled := time.Now().Add(3 * time.Second)
	redistest.Eventually(t, 30*time.Second, "jobs flow", func() bool { return count() > 0 && time.Now().After(settled) })
	cpu, partitions := mastersOf(t, client)
	begin, before := time.Now(), count()
	redistest.Eventually(t, 30*time.Second, "some seconds have passed", func() bool { return time.Since(begin) > span })
	after, _ := mastersOf(t, client)
	jobs := count() - before
	if least := rate * span.Seconds() * 0.9; float64(jobs) < least {
		t.Errorf("%d jobs, want %v", jobs, least)
	}
	all, of := time.Duration(0), 0
	for node, n := range partitions {
		all, of = all+after[node]-cpu[node], of+n
	}
	for node, n := range partitions {
		spent := after[node] - cpu[node]
		t.Logf("a node of %d partitions: %v, %v each", n, spent, spent/time.Duration(n))
		if each := float64(spent) / float64(n) / (float64(all) / float64(of)); each < 0.7 || each > 1.4 {
			t.Errorf("a partition costs one node %.2f times as much as it costs all", each)
		}
	}
	t.Logf("%d jobs, %v of Redis each", jobs, all/time.Duration(jobs))
}

// mastersOf returns what CPU time each master has used, and how many partitions it has.
func mastersOf(t *testing.T, client redis.UniversalClient) (cpu map[string]time.Duration, partitions map[string]int) {
	t.Helper()
	used := regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)
	var mu sync.Mutex
	cpu, partitions = make(map[string]time.Duration), make(map[string]int)
	must(t, client.(*redis.ClusterClient).ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		info, err := node.Info(ctx, "cpu").Result()
		if err != nil {
			return err
		}
		keys, err := node.Keys(ctx, "wc:{push/*}:meta").Result()
		if err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		name := node.Options().Addr
		partitions[name] = len(keys)
		for _, found := range used.FindAllStringSubmatch(info, -1) {
			seconds, err := strconv.ParseFloat(found[1], 64)
			if err != nil {
				return err
			}
			cpu[name] += time.Duration(seconds * float64(time.Second))
		}
		return nil
	}))
	return cpu, partitions
}
