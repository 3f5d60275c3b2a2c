package queue_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// Everybody who asks is told the limit, what runs, and that nobody knows when it ends.
func TestConcurrencyIsExplained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 2}}))
		got := newBlocking()
		runWorker(t, client, got, queue.WorkerConfig{})
		first := enqueue(t, client, named("a", "ann"))[0]
		if first.Start.IsZero() || first.Limit != "" {
			t.Errorf("%+v, want the start of a job with room", first)
		}
		time.Sleep(10 * time.Second)
		enqueue(t, client, named("b", "bob"))
		time.Sleep(21 * time.Second)
		receipt := enqueue(t, client, named("c", "ann"))[0]
		if want := "tenant concurrency 2: 2 running, the oldest for 31s"; !receipt.Start.IsZero() || receipt.Limit != want {
			t.Errorf("receipt with start %v and limit %q, want %q and no start", receipt.Start, receipt.Limit, want)
		}
		inspector := newInspector(t, client, "push")
		e, err := inspector.Explain(t.Context(), "school", "ann")
		must(t, err)
		if b := e.Binding; b == nil || b.Scope != queue.ScopeTenant || b.Rule != "concurrency 2" || b.Running != 2 || b.Remaining != 0 ||
			!b.When.IsZero() || e.Now.Sub(b.Oldest).Round(time.Second) != 31*time.Second || !e.Start.IsZero() {
			t.Errorf("explained by %+v, start %v", e.Binding, e.Start)
		}
		state, found, err := inspector.ExplainJob(t.Context(), "c")
		must(t, err)
		if !found || state.Place != 1 || !state.Start.IsZero() || state.Binding == nil {
			t.Errorf("%+v", state)
		}
		running, err := inspector.Running(t.Context())
		must(t, err)
		if len(running) != 2 || running[0].ID != "a" || running[0].User != "ann" || running[1].ID != "b" || running[0].Type != "push" ||
			running[0].Worker == "" || running[0].Attempt != 1 || time.Since(running[0].Since).Round(time.Second) != 31*time.Second {
			t.Errorf("%+v runs", running)
		}
		got.end <- struct{}{}
		time.Sleep(time.Second)
		if blocked := stats(t, client).Blocked; blocked["concurrency 2"] > time.Millisecond {
			t.Errorf("%v, want what it waited, which was nothing yet", blocked)
		}
		enqueue(t, client, named("d", "ann"))
		time.Sleep(30 * time.Second)
		close(got.end)
		time.Sleep(time.Second)
		if blocked := stats(t, client).Blocked["concurrency 2"].Round(time.Second); blocked != 30*time.Second {
			t.Errorf("blocked for %v, want 30 s", blocked)
		}
	})
}

// mute is a hook that answers scripts and the first words of a connection, and nothing else.
type mute struct{}

func (mute) answers(cmd redis.Cmder) bool {
	return slices.Contains([]string{"evalsha", "eval", "hello", "client"}, cmd.Name())
}

func (mute) DialHook(next redis.DialHook) redis.DialHook { return next }

func (m mute) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if m.answers(cmds[0]) {
			return next(ctx, cmds)
		}
		return m.wait(ctx)
	}
}

func (m mute) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if m.answers(cmd) {
			return next(ctx, cmd)
		}
		return m.wait(ctx)
	}
}

// wait gives up as a client does whose Redis says nothing.
func (mute) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Minute):
		return context.DeadlineExceeded
	}
}

// An offer that has arrived is not held up by the count of what runs: without it a receipt has
// no estimate.
func TestReceiptsDoNotWaitForTheCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 1}}))
		offers := newClient(t, client, "push")
		if _, err := offers.Enqueue(t.Context(), named("", "first")); err != nil { // reads the policies
			t.Fatal(err)
		}
		client.AddHook(mute{})
		time.Sleep(time.Minute) // what was counted is out of date
		begin := time.Now()
		var offering sync.WaitGroup
		for range 10 {
			offering.Go(func() {
				receipts, err := offers.Enqueue(t.Context(), named("", "second"))
				if err != nil || receipts[0].Status != queue.Accepted {
					t.Errorf("%+v, %v", receipts, err)
				} else if !receipts[0].Start.IsZero() {
					t.Errorf("an estimate from nothing: %v", receipts[0].Start)
				}
			})
		}
		offering.Wait()
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("receipts after %v", took)
		}
	})
}
