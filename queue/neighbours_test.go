package queue_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A crowd is a tenant, beside which another one has something to do now and then.
type crowd struct {
	t      *testing.T
	client redis.UniversalClient
	got    *recorder
}

// beside runs two workers that are a millisecond from Redis.
func beside(t *testing.T, policy queue.Policy, scene func(t *testing.T, c *crowd)) {
	synctest.Test(t, func(t *testing.T) {
		server := newMini(t)
		c := &crowd{t: t, got: &recorder{}}
		for range 2 {
			way := &road{there: time.Millisecond / 2, back: time.Millisecond / 2}
			client := way.client(t, server)
			c.client = client
			runWorker(t, client, c.got, queue.WorkerConfig{})
		}
		setPolicies(t, c.client, queue.Policies{
			Policies: map[string]queue.Policy{"crowd": policy}, Tenants: map[string]string{"crowd": "crowd"},
		})
		time.Sleep(5 * time.Second)
		scene(t, c)
	})
}

// one returns a job of each of n users of the crowd.
func (c *crowd) one(from, n int, changes ...func(*queue.Job)) []queue.Job {
	all := make([]queue.Job, n)
	for i := range all {
		all[i] = named(fmt.Sprint("job", from+i), fmt.Sprint("u", from+i), changes...)
		all[i].Tenant = "crowd"
	}
	return all
}

// bystanders offers a job of another tenant every 10 ms for a time, and checks that each starts soon.
func (c *crowd) bystanders(during time.Duration) {
	c.t.Helper()
	const soon = 40 * time.Millisecond
	before := c.client.HGet(c.t.Context(), "wc:{push}:meta", "epoch").Val()
	offered := 0
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		enqueue(c.t, c.client, queue.Job{Tenant: "bystander", User: fmt.Sprint("u", offered), Type: "push"})
		offered++
	}
	time.Sleep(soon)
	var waits []time.Duration
	for _, s := range c.got.all() {
		if s.Tenant == "bystander" {
			waits = append(waits, s.Waited)
		}
	}
	slices.Sort(waits)
	if len(waits) < offered || waits[len(waits)-1] > soon {
		c.t.Errorf("%d of %d bystanders were started, the last after %v", len(waits), offered, slices.Max(append(waits, 0)))
	}
	if after := c.client.HGet(c.t.Context(), "wc:{push}:meta", "epoch").Val(); after != before {
		c.t.Errorf("the epoch was %s and is %s", before, after)
	}
}

// A tenant of thousands of users that drops its oldest jobs drops these, and nobody else waits
// meanwhile.
func TestDroppingTheOldestBesideOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const lanes, most = 3000, 250
	policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, time.Hour)}, Capacity: lanes, DropOldest: true}
	beside(t, policy, func(t *testing.T, c *crowd) {
		enqueue(t, c.client, c.one(0, 1)...) // starts
		time.Sleep(time.Second)
		for i := 1; i <= lanes; i += 100 {
			enqueue(t, c.client, c.one(i, 100)...)
		}
		enqueue(t, c.client, c.one(lanes+1, most)...)
		c.bystanders(3 * time.Second)
		drops, err := newInspector(t, c.client, "push").Drops(t.Context(), 1000)
		must(t, err)
		dropped := make(map[string]bool)
		for _, d := range drops {
			dropped[d.ID] = d.Reason == "full"
		}
		for i := 1; i <= most; i++ {
			if !dropped[fmt.Sprint("job", i)] {
				t.Fatalf("of %d drops none is of job %d, one of the %d oldest", len(drops), i, most)
			}
		}
		if len(drops) != most {
			t.Errorf("%d drops, want %d", len(drops), most)
		}
	})
}

// Thousands of jobs come back from a worker that died, and nobody else waits meanwhile.
func TestReapingBesideOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const claims = 3000
	beside(t, queue.Policy{}, func(t *testing.T, c *crowd) {
		pipe := c.client.Pipeline()
		now := time.Now().UnixMicro()
		for i := range claims {
			stamp := fmt.Sprintf("%013x", now-60_000_000+int64(i))
			pipe.HSet(t.Context(), "wc:{push}:running:ghost", fmt.Sprintf("%s %d crowd:u%d:1", stamp, now-5000+int64(i), i), stamp+"\x00\x04pushx")
		}
		pipe.ZAdd(t.Context(), "wc:{push}:workers", redis.Z{Score: float64(now), Member: "ghost"})
		_, err := pipe.Exec(t.Context())
		must(t, err)
		c.bystanders(5 * time.Second)
		n := 0
		for _, s := range c.got.all() {
			if s.Tenant == "crowd" {
				n++
			}
		}
		if left := c.client.Exists(t.Context(), "wc:{push}:running:ghost").Val(); n != claims || left != 0 {
			t.Errorf("%d jobs were started, want %d; left: %d", n, claims, left)
		}
	})
}

// Thousands of jobs fall due at one instant, and nobody else waits meanwhile.
func TestMaturingBesideOthers(t *testing.T) {
	t.Parallel()
	for name, change := range sample.Cases(t, map[string]func(*queue.Job){
		"plain":        func(*queue.Job) {},
		"collapse key": func(j *queue.Job) { j.CollapseKey = "news" },
	}, 0, 1) {
		t.Run(name, func(t *testing.T) {
			const flood = 3000
			beside(t, queue.Policy{Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}}, func(t *testing.T, c *crowd) {
				at := time.Now().Add(time.Second)
				for i := 0; i < flood; i += 100 {
					enqueue(t, c.client, c.one(i, 100, notBefore(at), change)...)
				}
				time.Sleep(time.Until(at))
				c.bystanders(3 * time.Second)
				if s := stats(t, c.client); s.Later != 0 || s.Waiting < flood-40 {
					t.Errorf("after the instant: %+v", s)
				}
			})
		})
	}
}

// A flood without rules keeps all places busy, so that messages and comparisons overtake each other. Nobody else waits for
// long, meanwhile or afterwards.
func TestAFloodWithoutRulesBesideOthers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	const flood, batch, long = 60_000, 500, time.Second
	server := redistest.Start(t)
	client := server.Client(t)
	var mu sync.Mutex
	ran, late := 0, 0
	var longest time.Duration
	handler := asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		now := time.Now()
		mu.Lock()
		defer mu.Unlock()
		if ran++; task.Type() == "flood" {
			return nil
		}
		offered, err := time.Parse(time.RFC3339Nano, string(task.Payload()))
		longest = max(longest, now.Sub(offered))
		if now.Sub(offered) > long {
			late++
		}
		return err
	})
	for range 2 {
		runWorker(t, server.Client(t), handler, queue.WorkerConfig{Concurrency: 50, Lease: time.Second})
	}
	offered := make(chan struct{})
	go func() {
		defer close(offered)
		for at := 0; at < flood; at += batch {
			var all []queue.Job
			for i := range batch {
				all = append(all, queue.Job{Tenant: "crowd", User: fmt.Sprint("u", (at+i)%2000), Type: "flood"})
			}
			enqueue(t, client, all...)
		}
	}()
	bystanders := 0
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for done, after := false, 0; after < 80; <-tick.C {
		enqueue(t, client, queue.Job{Tenant: "bystander", User: "u", Type: "x", Payload: []byte(time.Now().Format(time.RFC3339Nano))})
		bystanders++
		select {
		case <-offered:
			done = true
		default:
		}
		if done {
			after++
		}
	}
	redistest.Eventually(t, 30*time.Second, "all have run", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return ran == flood+bystanders
	})
	if late > 0 {
		t.Errorf("%d of %d jobs of another tenant have waited for more than %v, the longest for %v", late, bystanders, long, longest)
	}
}
