package queue_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A worker waits for its jobs on connections of its own: its queues may be many, and the
// client's pool small.
func TestManyQueuesOnASmallPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	for _, tt := range []struct {
		queues, pool int
		inbox        bool
	}{{queues: 12}, {queues: 40}, {queues: 12, pool: 1}, {queues: 12, pool: 2, inbox: true}} {
		t.Run(fmt.Sprintf("%d queues, pool %d", tt.queues, tt.pool), func(t *testing.T) {
			small := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: tt.pool})
			t.Cleanup(func() { small.Close() })
			runQueues(t, server.Client(t), small, tt.queues, tt.inbox)
		})
	}
	t.Run("wrapped", func(t *testing.T) {
		small := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 2})
		t.Cleanup(func() { small.Close() })
		runQueues(t, server.Client(t), wrapped{small}, 12, false)
	})
}

// wrapped hides what kind of client it is, and says so.
type wrapped struct{ redis.UniversalClient }

func (w wrapped) Unwrap() redis.UniversalClient { return w.UniversalClient }

func TestManyQueuesOfAClusterOnASmallPool(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	nodes := redistest.StartNodes(t, 3)
	small := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{nodes.Nodes[0].Addr}, PoolSize: 1})
	t.Cleanup(func() { small.Close() })
	runQueues(t, nodes.Client(t), small, 12, false)
}

func TestManyQueuesOfARingOnASmallPool(t *testing.T) {
	t.Parallel()
	shards := map[string]string{"a": redistest.Start(t).Addr, "b": redistest.Start(t).Addr}
	ring := func(pool int) *redis.Ring {
		client := redis.NewRing(&redis.RingOptions{Addrs: shards, PoolSize: pool})
		t.Cleanup(func() { client.Close() })
		return client
	}
	runQueues(t, ring(0), ring(1), 12, false)
}

// runQueues runs a worker in that many queues and offers a job to each. All of them start.
func runQueues(t *testing.T, client, workers redis.UniversalClient, n int, inbox bool) {
	t.Helper()
	var queues []string
	for i := range n {
		queues = append(queues, fmt.Sprintf("%d-of-%d", i, n))
	}
	var got recorder
	stop := runWorker(t, workers, &got, queue.WorkerConfig{Queues: queues, Inbox: inbox})
	for _, name := range queues {
		_, err := newClient(t, client, name).Enqueue(t.Context(), jobs("t", "u", 1)...)
		must(t, err)
	}
	redistest.Eventually(t, 20*time.Second, "each queue's job has started", func() bool { return got.count() == n })
	stop()
}

// Tails wait on connections of their own: some of them leave the client's pool to others.
func TestTailsOnASmallPool(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, PoolSize: 1})
	t.Cleanup(func() { client.Close() })
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const tails = 4
	var told [tails]atomic.Bool
	ended := make(chan error, tails)
	for i := range tails {
		go func() {
			ended <- newWatcher(t, client, "push").Tail(ctx, func(watch.Event) error { told[i].Store(true); return nil })
		}()
	}
	var got recorder
	runWorker(t, client, &got, queue.WorkerConfig{Lease: time.Second})
	redistest.Eventually(t, 30*time.Second, "each tail has told of a start", func() bool {
		asked := time.Now()
		enqueue(t, client, named("", "u"))
		if took := time.Since(asked); took > 400*time.Millisecond { // a tail waits for 500 ms at a time
			t.Fatalf("an offer took %v: it waited for a tail's connection", took)
		}
		all := true
		for i := range told {
			all = all && told[i].Load()
		}
		return all
	})
	cancel()
	for range tails {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
