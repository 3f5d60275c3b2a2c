package queue_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// atMost counts commands, and lets those fail that are too many: on virtual time a loop that waits for nothing never ends.
type atMost struct {
	redistest.Counter
	commands int
}

// ProcessHook implements [redis.Hook].
func (a *atMost) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	counted := a.Counter.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.Count() >= a.commands {
			return errors.New("too many commands")
		}
		return counted(ctx, cmd)
	}
}

// A worker that does not take its messages is looked at with the commits that there are anyway, also where the other
// places of a small fleet are all taken.
func TestAStalledWorkerCostsNoCommits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server, sent := newMini(t), &atMost{commands: 2000}
		client := redistest.MiniClient(t, server)
		client.AddHook(sent)
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
		before := sent.Count()
		time.Sleep(5 * time.Second)
		if n := sent.Count() - before; n > 500 {
			t.Errorf("%d commands in 5 s, of a worker that runs 17 jobs", n)
		}
	})
}
