package queue_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func TestFirstJob(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		receipt := enqueue(t, client, jobs("school", "teacher", 1)...)[0]
		if receipt.Status != queue.Accepted || receipt.Place != 1 {
			t.Errorf("receipt %+v, want it accepted and first in line", receipt)
		}
		redistest.Eventually(t, 5*time.Second, "the job is done", func() bool { return stats(t, client).Done == 1 })
		start := got.all()[0]
		if start.ID != receipt.ID || start.Tenant != "school" || start.User != "teacher" || start.Attempt != 1 {
			t.Errorf("started %+v", start)
		}
	})
}

func TestHalfAnHour(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	policy := queue.Policy{
		Tenant: []throttle.Rule{throttle.Leak(2, time.Second)},
		User:   []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second)},
	}
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(policy))
		var got recorder
		for range 2 {
			runWorker(t, client, &got, queue.WorkerConfig{})
		}
		begin := time.Now()
		for user := range 50 {
			enqueue(t, client, jobs("big", fmt.Sprint("user-", user), 60)...)
		}
		enqueue(t, client, jobs("small", "only", 200)...)
		time.Sleep(26 * time.Minute)
		if s := stats(t, client); s.Waiting != 0 || s.Running != 0 || s.Done != 3200 {
			t.Errorf("after 26 minutes: %+v, want all 3200 done", s)
		}
		verify(t, got.all(), policy)
		perTenant := map[string][]time.Time{}
		for _, s := range got.all() {
			perTenant[s.Tenant] = append(perTenant[s.Tenant], s.Slot)
			// The estimate of Redis's clock concedes it a little between replies.
			if late := s.Started.Sub(s.Slot); late > 10*time.Microsecond {
				t.Fatalf("%s started %v after its slot, in a world without delays", s.ID, late)
			}
		}
		for i, at := range perTenant["big"] {
			if want := perTenant["big"][0].Add(time.Duration(i) * time.Second / 2); !at.Equal(want) {
				t.Fatalf("start %d of the tenant with many lanes was %v off its leak", i, at.Sub(want))
			}
		}
		if first := perTenant["big"][0].Sub(begin); first > time.Millisecond {
			t.Errorf("the first start came after %v", first)
		}
	})
}
