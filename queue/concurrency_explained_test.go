package queue_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/human"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Everybody who asks is told the limit, what runs, and that nobody knows when it ends.
func TestConcurrencyIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 2}}))
		got := newBlocking()
		runWorker(t, client, got, queue.WorkerConfig{})
		first := enqueue(t, client, named("a", "ann"))[0]
		if first.Start.IsZero() || first.AtEarliest || first.Limit != "" {
			t.Errorf("%+v, want the start of a job with room", first)
		}
		time.Sleep(10 * time.Second)
		enqueue(t, client, named("b", "bob"))
		time.Sleep(21 * time.Second)
		receipt := enqueue(t, client, named("c", "ann"))[0]
		if want := "tenant concurrency 2: 2 running, the oldest for 31s"; !receipt.Start.Equal(time.Now()) || !receipt.AtEarliest || receipt.Limit != want {
			t.Errorf("receipt with %+v, want now at the earliest, and %q", receipt.Estimate, want)
		}
		inspector := newWatcher(t, client, "push")
		e, err := inspector.Explain(t.Context(), "school", "ann")
		must(t, err)
		if b := e.Binding; b == nil || b.Scope != queue.ScopeTenant || b.Rule != "concurrency 2" || b.Running != 2 || b.Remaining != 0 ||
			!b.When.IsZero() || e.Now.Sub(b.Oldest).Round(time.Second) != 31*time.Second || !e.Start.Equal(e.Now) || !e.AtEarliest || e.Limit != receipt.Limit {
			t.Errorf("explained by %+v, %+v", e.Binding, e.Estimate)
		}
		state, found, err := inspector.ExplainJob(t.Context(), "c")
		must(t, err)
		if !found || state.Place != 1 || state.Estimate != e.Estimate || state.Binding == nil {
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

// A concurrency limit changes nothing in when the rules let a job start. Where the jobs before it
// may take all places of the limit, that is only the earliest.
func TestEstimatesBehindConcurrency(t *testing.T) {
	t.Parallel()
	offered := jobs("school", "ann", 40)
	for i := range offered {
		offered[i].ID = fmt.Sprint("job-", i)
		if i%2 == 1 {
			offered[i].User = "bob"
		}
	}
	starts := func(t *testing.T, tenant, user queue.Concurrency) ([]queue.Receipt, queue.JobState) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(10, time.Second)}, User: []throttle.Rule{throttle.Window(10, time.Minute)},
			TenantConcurrency: tenant, UserConcurrency: user,
		}))
		receipts := enqueue(t, client, offered...)
		state, _, err := newWatcher(t, client, "push").ExplainJob(t.Context(), "job-39")
		must(t, err)
		return receipts, state
	}
	synctest.Test(t, func(t *testing.T) {
		free, last := starts(t, queue.Concurrency{}, queue.Concurrency{})
		limited, lastLimited := starts(t, queue.Concurrency{Jobs: 25}, queue.Concurrency{Jobs: 15})
		for i, r := range limited {
			want, limit := free[i].Estimate, ""
			if ann := i / 2; ann >= 15 {
				limit = fmt.Sprintf("user concurrency 15: 0 running, %d jobs come first", ann)
			}
			if i >= 25 { // the tenant's is named before its users'
				limit = fmt.Sprintf("tenant concurrency 25: 0 running, %d jobs come first", i)
			}
			want.AtEarliest, want.Limit = limit != "", limit
			if free[i].AtEarliest || want.Start.IsZero() || r.Estimate != want {
				t.Errorf("job %d: %+v, want %+v", i, r.Estimate, want)
			}
		}
		if lastLimited.Start.IsZero() || !lastLimited.Start.Equal(last.Start) || last.AtEarliest || !lastLimited.AtEarliest ||
			lastLimited.Limit != "user concurrency 15: 0 running, 19 jobs come first" {
			t.Errorf("%+v, without limits %+v", lastLimited.Estimate, last.Estimate)
		}
	})
}

// A job's own start is not its user's next one's.
func TestTheNextStartBesideTheJobsOwn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Spacing(time.Minute)}}))
		runWorker(t, client, &recorder{}, queue.WorkerConfig{})
		enqueue(t, client, named("a", "ann"))
		time.Sleep(10 * time.Second)
		enqueue(t, client, named("b", "ann"), named("c", "ann"), named("d", "ann"))
		inspector := newWatcher(t, client, "push")
		next, err := inspector.Explain(t.Context(), "school", "ann")
		must(t, err)
		state, _, err := inspector.ExplainJob(t.Context(), "d")
		must(t, err)
		between := 2 * (time.Minute + grace)
		if state.Place != 3 || state.Explanation.Estimate != next.Estimate || state.Start.Sub(next.Start).Round(time.Second) != between.Round(time.Second) {
			t.Errorf("the job starts at %v, the next one at %v; want %v and %v", state.Start, state.Explanation.Start, next.Start.Add(between), next.Start)
		}
		if text := human.Why(state.Explanation, "school", "ann"); !strings.Contains(text, "The next one starts in 50") {
			t.Errorf("%s", text)
		}
		if text := human.WhyJob(state, "It"); !strings.Contains(text, "It waits at place 3 of its lane. It starts in 2m50s, if no other job comes before it.") {
			t.Errorf("%s", text)
		}
	})
}

// A job with a latest start says so, and when that has passed, whatever keeps it.
func TestTooLateIsSaid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{MaxWait: time.Hour, UserConcurrency: queue.Concurrency{Jobs: 1}}))
		begin := time.Now()
		urgent := named("urgent", "ann")
		urgent.StartBy = begin.Add(5 * time.Second)
		receipts := enqueue(t, client, urgent, named("patient", "ann"))
		if !receipts[0].StartBy.Equal(urgent.StartBy) || !receipts[1].StartBy.Equal(begin.Add(time.Hour)) {
			t.Errorf("to start by %v and %v", receipts[0].StartBy, receipts[1].StartBy)
		}
		inspector := newWatcher(t, client, "push")
		says := func(id string) string {
			state, _, err := inspector.ExplainJob(t.Context(), id)
			must(t, err)
			return human.WhyJob(state, "It") + " " + human.Why(state.Explanation, "school", "ann")
		}
		for id, want := range map[string]string{"urgent": ", in 5s: it is dropped unless it has started by then.", "patient": ", in 1h0m: it is dropped unless"} {
			if text := says(id); !strings.Contains(text, want) || strings.Count(text, "too late at") > 2 {
				t.Errorf("%s: %s; want %q", id, text, want)
			}
		}
		time.Sleep(time.Minute)
		want := "It was too late at " + urgent.StartBy.UTC().Format(time.RFC3339) + ", 55s ago: it is dropped and never starts."
		if text := says("urgent"); strings.Count(text, want) != 1 {
			t.Errorf("%s; want once %q", text, want)
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
// the estimate of the rules, and says so.
func TestReceiptsDoNotWaitForTheCount(t *testing.T) {
	t.Parallel()
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
				} else if receipts[0].Start.IsZero() || !receipts[0].AtEarliest || receipts[0].Limit != "what runs could not be counted" {
					t.Errorf("%+v, want what the rules alone say", receipts[0].Estimate)
				}
			})
		}
		offering.Wait()
		if took := time.Since(begin); took > 500*time.Millisecond {
			t.Errorf("receipts after %v", took)
		}
	})
}
