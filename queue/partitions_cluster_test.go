package queue_test

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A divided queue on a cluster keeps the rules of the queue, of its tenants and of their users, and uses nearly all that the queue's
// rules allow while there is work. Tenants get what their weights say, whatever their partitions are. WATERCLOCK_JOBS says of how many jobs;
// 6000 otherwise. With many the share that is used is judged, too: the machine has to have nothing else to do. WATERCLOCK_TENANTS says how many
// of the 200 tenants have jobs.
func TestADividedQueueOnACluster(t *testing.T) {
	sample.WholeOnly(t)
	jobs := 6000
	if text := os.Getenv("WATERCLOCK_JOBS"); text != "" {
		jobs, _ = strconv.Atoi(text)
	}
	tenants := 200
	if text := os.Getenv("WATERCLOCK_TENANTS"); text != "" {
		tenants, _ = strconv.Atoi(text)
	}
	users := 4000 / tenants
	const leak, window, period = 2000, 10_000, 10 * time.Second
	weights := make(map[string]string)
	for k := 0; k < tenants; k += 2 {
		weights[fmt.Sprint("school-", k)] = "heavy"
	}
	client := redistest.StartCluster(t, 3)
	i := newInspector(t, client, "push")
	must(t, i.SetPolicies(t.Context(), queue.Policies{
		Partitions: 16, Queue: []throttle.Rule{throttle.Leak(leak, time.Second), throttle.Window(window, period)},
		Tenants: weights, Default: "p", Policies: map[string]queue.Policy{"p": {
			Tenant: []throttle.Rule{throttle.Leak(20_000/tenants, time.Second)},
			User:   []throttle.Rule{throttle.Window(10, 2*time.Second), throttle.Spacing(50 * time.Millisecond)},
		}, "heavy": {
			Tenant: []throttle.Rule{throttle.Leak(20_000/tenants, time.Second)},
			User:   []throttle.Rule{throttle.Window(10, 2*time.Second), throttle.Spacing(50 * time.Millisecond)}, Weight: 4,
		}},
	}))
	producer := newClient(t, client, "push")
	all := make([]queue.Job, jobs)
	for k := range all {
		all[k] = queue.Job{Tenant: fmt.Sprint("school-", k%tenants), User: fmt.Sprint("teacher-", k/tenants%users), Type: "push", ID: fmt.Sprint(k)}
	}
	_, err := producer.Enqueue(t.Context(), all...)
	must(t, err)
	type start struct {
		id, tenant, user string
		at               time.Time
	}
	var mu sync.Mutex
	var started []start
	h := func(_ context.Context, info queue.Info) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		started = append(started, start{info.ID, info.Tenant, info.User, now})
		return nil
	}
	for range 3 {
		runWorker(t, client, &recorder{then: h}, queue.WorkerConfig{Concurrency: 400})
	}
	begin, stats := time.Now(), queue.Stats{}
	defer func() {
		if t.Failed() {
			t.Logf("%+v", stats)
		}
	}()
	redistest.Eventually(t, time.Duration(jobs)*time.Millisecond+60*time.Second, "all jobs are done", func() bool {
		var err error
		if mu.Lock(); len(started) < jobs { // statistics cost as much as many jobs
			mu.Unlock()
			return false
		}
		mu.Unlock()
		stats, err = i.Stats(t.Context())
		must(t, err)
		return stats.Done == int64(jobs)
	})
	mu.Lock()
	defer mu.Unlock()
	by, ids := make(map[string][]time.Time), make(map[string]bool)
	for _, s := range started {
		by["queue"] = append(by["queue"], s.at)
		by["tenant "+s.tenant] = append(by["tenant "+s.tenant], s.at)
		by["user "+s.tenant+" "+s.user] = append(by["user "+s.tenant+" "+s.user], s.at)
		ids[s.id] = true
	}
	if len(ids) != jobs || len(started) != jobs {
		t.Errorf("%d starts of %d jobs, want %d", len(started), len(ids), jobs)
	}
	whole := by["queue"]
	slices.SortFunc(whole, time.Time.Compare)
	used := float64(len(whole)) / whole[len(whole)-1].Sub(whole[0]).Seconds()
	// The window lets a period's jobs start in the first part of each, at the rate of the leak. The last tenth of the jobs are those of the
	// tenants of the least weight: they may have to wait for their own rules.
	n := jobs * 9 / 10
	least := time.Duration(n/window)*period + time.Duration(n%window)*time.Second/leak
	share := least.Seconds() / whole[n-1].Sub(whole[0]).Seconds()
	var heavy, light int
	half := whole[len(whole)/2] // tenants of weight 4 have work until then
	counts := make(map[string]int)
	for _, s := range started {
		if s.at.After(half) {
			continue
		}
		counts[s.tenant]++
		if weights[s.tenant] != "" {
			heavy++
		} else {
			light++
		}
	}
	ratio := float64(heavy) / float64(light)
	var ofHeavy, ofLight []int
	for k := range tenants {
		if tenant := fmt.Sprint("school-", k); weights[tenant] != "" {
			ofHeavy = append(ofHeavy, counts[tenant])
		} else {
			ofLight = append(ofLight, counts[tenant])
		}
	}
	t.Logf("%.0f starts a second, %.1f %% of what the rules allow; weight 4 to 1: %.2f, each %d to %d and %d to %d; the first after %v",
		used, 100*share, ratio, slices.Min(ofHeavy), slices.Max(ofHeavy), slices.Min(ofLight), slices.Max(ofLight), whole[0].Sub(begin))
	if judged := jobs >= 30_000; judged && (share < 0.98 || tenants == 200 && (ratio < 3.8 || ratio > 4.2)) {
		t.Errorf("%.1f %% are used, weight 4 gets %.2f times as much", 100*share, ratio)
	}
	most := map[string]map[time.Duration]int{
		"queue":  {10 * time.Second: 10_000, time.Second: 2042},
		"tenant": {time.Second: 20_000/tenants + 3},
		"user":   {2 * time.Second: 10, 50 * time.Millisecond: 1},
	}
	for who, at := range by {
		kind := who
		for k := range most {
			if len(who) > len(k) && who[:len(k)+1] == k+" " {
				kind = k
			}
		}
		for within, n := range most[kind] {
			if got := busiest(at, within); got > n {
				t.Errorf("%s: %d starts within %v, want at most %d", who, got, within, n)
			}
		}
	}
}
