package queue_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// scriptCount counts scripts. After too many it lets them fail: on virtual time a loop that waits for nothing never ends.
type scriptCount struct{ n, most atomic.Int64 }

func (c *scriptCount) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *scriptCount) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c *scriptCount) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" && c.n.Add(1) > c.most.Load() {
			err := errors.New("too many scripts")
			cmd.SetErr(err)
			return err
		}
		return next(ctx, cmd)
	}
}

// A worker that does not take its messages is looked at with commits that there are, and is no reason for more of them: also where
// the other places of a small fleet are all taken.
func TestAStalledWorkerCostsNoCommits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, scripts := newMini(t), new(scriptCount)
		scripts.most.Store(2000)
		client := redistest.MiniClient(t, server)
		client.AddHook(scripts)
		handler := asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
			time.Sleep(300 * time.Millisecond)
			return nil
		})
		runWorker(t, client, handler, queue.WorkerConfig{Concurrency: 1, Lease: time.Minute})
		time.Sleep(time.Second)
		lost := make(chan struct{})
		runWorker(t, clientUntil(t, server, lost), handler, queue.WorkerConfig{Concurrency: 2, Lease: time.Minute})
		time.Sleep(time.Second)
		close(lost)
		offers := redistest.MiniClient(t, server)
		offer := func(from, to int) {
			for n := from; n < to; n++ {
				enqueue(t, offers, queue.Job{Tenant: "school", User: fmt.Sprint("user", n), Type: "x"})
			}
		}
		offer(0, 2) // one for each
		time.Sleep(150 * time.Millisecond)
		offer(2, 30) // the other worker gets one more, and is seen to stall
		before := scripts.n.Load()
		time.Sleep(5 * time.Second)
		if n := scripts.n.Load() - before; n > 500 {
			t.Errorf("%d scripts in 5 s, of a worker that runs 17 jobs", n)
		}
	})
}
