package queue_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A handler's pause holds for its scope; the job that asked for it is the first of its
// lane then, and its attempt does not count.
func TestPauseErrors(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	// Jobs of a:1, a:2 and b:1; the first job of a:1 asks for the pause.
	tests := map[string]struct {
		pause queue.Pause
		waits string // whose jobs wait
	}{
		"user":      {queue.Pause{Scope: queue.ScopeUser}, "a:1"},
		"tenant":    {queue.Pause{Scope: queue.ScopeTenant}, "a:1 a:2"},
		"queue":     {queue.Pause{Scope: queue.ScopeQueue}, "a:1 a:2 b:1"},
		"no scope":  {queue.Pause{}, "a:1"},
		"of others": {queue.Pause{Scope: queue.ScopeTenant, Tenant: "b", User: "1"}, "a:1 a:2"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				until := time.Now().Add(s.units(15)).Truncate(time.Microsecond)
				var asked atomic.Bool
				got := recorder{then: func(_ context.Context, info queue.Info) error {
					if info.Attempt != 1 {
						t.Errorf("%s: attempt %d; a pause is no attempt", info.ID, info.Attempt)
					}
					if asked.CompareAndSwap(false, true) {
						pause := test.pause
						pause.Until, pause.Cause = until, errors.New("429")
						return fmt.Errorf("sending: %w", pause)
					}
					return nil
				}}
				runWorker(t, s.client, &got, queue.WorkerConfig{Concurrency: 1}) // what is due at once starts in its order
				first := enqueue(t, s.client, jobs("a", "1", 1)...)[0]
				s.eventually(t, "it waits again", func() bool { return asked.Load() && stats(t, s.client).Running == 0 })
				enqueue(t, s.client, append(jobs("a", "2", 1), jobs("b", "1", 1)...)...)
				enqueue(t, s.client, jobs("a", "1", 1)...)
				inTime := time.Now().Before(until.Add(-s.units(10))) // a busy machine may offer them when the pause is nearly over
				s.eventually(t, "all has ended", ended(t, s.client, 4))
				again := ""
				for _, start := range got.all()[1:] {
					lane := start.Tenant + ":" + start.User
					if lane == "a:1" && again == "" {
						again = start.ID
					}
					if waits := strings.Contains(test.waits, lane); waits && s.wrong(start.Started, until) || !waits && inTime && !start.Started.Before(until) {
						t.Errorf("a job of %s started %v after the end of the pause", lane, start.Started.Sub(until))
					}
				}
				if again != first.ID {
					t.Errorf("the job that asked is not the first of its lane")
				}
				checkOutcome(t, s.client, queue.Counters{Done: 4}, "")
			})
		})
	}
}

func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		pause queue.Pause
		goes  int64 // how many of school:teacher, school:parent, other:teacher go on
	}{
		"queue":  {queue.Pause{Scope: queue.ScopeQueue}, 0},
		"tenant": {queue.Pause{Scope: queue.ScopeTenant, Tenant: "school"}, 1},
		"user":   {queue.Pause{Scope: queue.ScopeUser, Tenant: "school", User: "teacher"}, 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			onStages(t, func(t *testing.T, s stage) {
				inspector := newInspector(t, s.client, "push")
				var got recorder
				runWorker(t, s.client, &got, queue.WorkerConfig{})
				until := time.Now().Add(24 * time.Hour).Truncate(time.Microsecond)
				test.pause.Until = until
				must(t, inspector.Pause(t.Context(), test.pause))
				for _, who := range [][2]string{{"school", "teacher"}, {"school", "parent"}, {"other", "teacher"}} {
					enqueue(t, s.client, jobs(who[0], who[1], 1)...)
				}
				s.eventually(t, "the others are done", func() bool { return stats(t, s.client).Done == test.goes })
				if s.virtual {
					time.Sleep(5 * time.Minute)
				}
				e, err := inspector.Explain(t.Context(), "school", "teacher")
				must(t, err)
				if e.Binding == nil || e.Binding.Rule != "paused" || string(e.Binding.Scope) != name || !e.Start.Equal(until) || e.Waiting != 1 {
					t.Errorf("explained as %+v, binding %+v", e, e.Binding)
				}
				if all := stats(t, s.client); all.Done != test.goes || all.Waiting != 3-test.goes {
					t.Errorf("during the pause: %+v", all)
				}
				must(t, inspector.Resume(t.Context(), test.pause))
				resumed := time.Now()
				s.eventually(t, "all are done", func() bool { return stats(t, s.client).Done == 3 })
				for _, start := range got.all()[test.goes:] {
					if late := start.Started.Sub(resumed); s.virtual && late > time.Millisecond {
						t.Errorf("started %v after the pause was lifted", late)
					}
				}
			})
		})
	}
}

// A pause without an end, of an unknown scope or without the names of its scope is refused, and
// pauses nothing.
func TestInvalidPauses(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		inspector := newInspector(t, client, "push")
		for want, p := range map[string]queue.Pause{
			`without an end; want Until`:                                        {Scope: queue.ScopeQueue},
			`want Until, or For above 0`:                                        {Scope: queue.ScopeQueue, For: -time.Second},
			`scope "", tenant "" and user ""`:                                   {For: time.Hour},
			`scope "shop", tenant "school" and user ""`:                         {For: time.Hour, Scope: "shop", Tenant: "school"},
			`scope "tenant", tenant "" and user ""; want "queue" without names`: {For: time.Hour, Scope: queue.ScopeTenant},
			`scope "user", tenant "school" and user ""`:                         {For: time.Hour, Scope: queue.ScopeUser, Tenant: "school"},
			`scope "queue", tenant "school" and user ""`:                        {For: time.Hour, Scope: queue.ScopeQueue, Tenant: "school"},
			`scope "tenant", tenant "school" and user "teacher"`:                {For: time.Hour, Scope: queue.ScopeTenant, Tenant: "school", User: "teacher"},
		} {
			if err := inspector.Pause(t.Context(), p); !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want an error with %q", err, want)
			}
		}
		if all, err := inspector.Pauses(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("pauses %+v, %v; want none", all, err)
		}
		if err := inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant}); !errors.Is(err, queue.ErrInvalidArgument) {
			t.Errorf("resuming a tenant without a name: %v", err)
		}
	})
}

// A pause for a time ends that time after the call, on Redis's clock. Its own note counts before
// that of the inspector.
func TestPauseFor(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, client redis.UniversalClient) {
		inspector := newInspector(t, client, "push").As(queue.Note{Author: "eve"})
		before := client.Time(t.Context()).Val()
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "a", For: time.Hour}))
		must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "b", For: 2 * time.Hour, Note: queue.Note{Reason: "down"}}))
		after := client.Time(t.Context()).Val()
		all, err := inspector.Pauses(t.Context())
		if err != nil || len(all) != 2 || all[0].Note != (queue.Note{Author: "eve"}) || all[1].Note != (queue.Note{Reason: "down"}) {
			t.Fatalf("pauses %+v, %v", all, err)
		}
		if until := all[0].Until.Add(-time.Hour); until.Before(before.Truncate(time.Millisecond)) || until.After(after) {
			t.Errorf("begins at %v, want from %v to %v", until, before, after)
		}
	})
}

// Whoever asks why a job waits is told how many workers live: without one the rules alone let nothing start.
func TestExplainCountsTheWorkers(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		inspector := newInspector(t, s.client, "push")
		enqueue(t, s.client, queue.Job{ID: "a", Tenant: "school", User: "ann", Type: "push"})
		workers := func() int {
			e, err := inspector.Explain(t.Context(), "school", "ann")
			must(t, err)
			return e.Workers
		}
		if n := workers(); n != 0 {
			t.Errorf("%d workers, want none", n)
		}
		if job, _, err := inspector.ExplainJob(t.Context(), "a"); err != nil || job.Workers != 0 {
			t.Errorf("of the job: %d workers, %v", job.Workers, err)
		}
		// One whose lease has ended lives no more, though its jobs may not have come back.
		must(t, s.client.ZAdd(t.Context(), "wc:{push}:workers", redis.Z{Score: 1, Member: "dead"}).Err())
		if n := workers(); n != 0 {
			t.Errorf("%d workers beside a dead one, want none", n)
		}
		var got recorder
		stop := runWorker(t, s.client, &got, queue.WorkerConfig{})
		s.eventually(t, "a worker lives", func() bool { return workers() == 1 })
		stop()
		s.eventually(t, "it has left", func() bool { return workers() == 0 })
	})
}

func TestExplain(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		setPolicies(t, client, queue.Policies{
			Queue:   []throttle.Rule{throttle.Leak(1000, time.Second)},
			Default: "standard",
			Policies: map[string]queue.Policy{"standard": {
				Tenant: []throttle.Rule{throttle.Leak(100, time.Second)},
				User:   []throttle.Rule{throttle.Window(2, time.Hour), throttle.Spacing(10 * time.Millisecond), throttle.Window(5, 24*time.Hour).OrDrop()},
			}},
		})
		inspector := newInspector(t, client, "push")
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		batch := jobs("school", "teacher", 4)
		for i := range batch {
			batch[i].ID = fmt.Sprint("job-", i)
		}
		enqueue(t, client, batch...)
		s.eventually(t, "two are done", func() bool { return stats(t, client).Done == 2 })
		e, err := inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		want := got.all()[0].Slot.Add(time.Hour + grace)
		if e.Binding == nil || e.Binding.Rule != "window 2/1h" || !e.Binding.When.Equal(want) || !e.Start.Equal(want) {
			t.Errorf("binding %+v, start %v; want the window, until %v", e.Binding, e.Start, want)
		}
		if e.Policy != "standard" || e.Waiting != 2 || e.TenantWaiting != 2 || len(e.Rules) != 5 {
			t.Errorf("explained as %+v", e)
		}
		job, known, err := inspector.ExplainJob(t.Context(), "job-3")
		must(t, err)
		if !known || job.State != "waiting" || job.Place != 2 || job.User != "teacher" || job.Binding == nil {
			t.Errorf("job: %+v, %v; want it second in line", job, known)
		}
		if job, _, err = inspector.ExplainJob(t.Context(), "job-0"); err != nil || job.State != "started" {
			t.Errorf("a job that has run: %+v, %v", job, err)
		}
		if _, known, err = inspector.ExplainJob(t.Context(), "nobody"); err != nil || known {
			t.Errorf("an unknown job is known: %v, %v", known, err)
		}
		lane, err := inspector.Lane(t.Context(), "school", "teacher", 0, 10)
		must(t, err)
		if len(lane) != 2 || lane[0].ID != "job-2" || string(lane[1].Payload) != "school teacher 3" || lane[1].Place != 2 {
			t.Errorf("lane %+v", lane)
		}
		if all := stats(t, client); all.Blocked["spacing 10ms"] < 10*time.Millisecond || len(all.Blocked) != 1 {
			t.Errorf("blocked: %v, want the distance between the two that have started", all.Blocked)
		}
		tenants, _, err := inspector.Tenants(t.Context(), 0, 10)
		must(t, err)
		if len(tenants) != 1 || tenants[0].Tenant != "school" || tenants[0].Waiting != 2 || tenants[0].Started != 2 {
			t.Errorf("tenants %+v", tenants)
		}
	})
}

func TestCancel(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		setPolicies(t, client, policies(leakOf(100)))
		inspector := newInspector(t, client, "push")
		batch := jobs("school", "teacher", 3)
		batch[1].ID = "second"
		enqueue(t, client, batch...)
		for range 2 { // again is as good as once
			if ok, err := inspector.Cancel(t.Context(), "second"); err != nil || !ok {
				t.Errorf("cancel: %v, %v", ok, err)
			}
		}
		checkState(t, inspector, "second", "cancelled")
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		s.eventually(t, "drained", drained(t, client))
		drops, err := inspector.Drops(t.Context(), 10)
		if err != nil || len(drops) != 1 || drops[0].ID != "second" || drops[0].Reason != queue.ReasonCancelled {
			t.Errorf("drops %+v, %v", drops, err)
		}
		if got.count() != 2 {
			t.Errorf("%d starts, want 2", got.count())
		}
		checkState(t, inspector, "second", "dropped")
		for _, id := range []string{"second", "never"} {
			if ok, err := inspector.Cancel(t.Context(), id); err != nil || ok {
				t.Errorf("cancel %s: %v, %v, want it refused", id, ok, err)
			}
		}
	})
}

func checkState(t *testing.T, inspector *queue.Inspector, id, want string) {
	t.Helper()
	if job, known, err := inspector.ExplainJob(t.Context(), id); err != nil || !known || job.State != want {
		t.Errorf("%s is %+v, %v, %v; want it %s", id, job, known, err, want)
	}
}

func TestPurge(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		inspector := newInspector(t, client, "push")
		for user := range 5 {
			enqueue(t, client, jobs("school", fmt.Sprint(user), 100)...)
		}
		enqueue(t, client, jobs("other", "one", 1)...)
		n, err := inspector.Purge(t.Context(), "school")
		if err != nil || n != 500 {
			t.Errorf("purged %d, %v; want 500", n, err)
		}
		if all := stats(t, client); all.Waiting != 1 || all.Dropped != 500 {
			t.Errorf("%+v", all)
		}
		drops, err := inspector.Drops(t.Context(), 1)
		if err != nil || len(drops) != 1 || drops[0].Reason != queue.ReasonPurged || drops[0].Tenant != "school" {
			t.Errorf("the newest drop: %+v, %v", drops, err)
		}
		if left, err := client.Keys(t.Context(), "wc:{push}:lane*school*").Result(); err != nil || len(left) != 0 {
			t.Errorf("left: %q, %v", left, err)
		}
	})
}

func TestRevive(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		inspector := newInspector(t, client, "push")
		broken := true
		got := recorder{then: func(context.Context, queue.Info) error {
			if broken {
				return errors.New("no")
			}
			return nil
		}}
		stop := runWorker(t, client, &got, queue.WorkerConfig{})
		job := jobs("school", "teacher", 1)[0]
		job.ID, job.MaxAttempts = "mortal", 1
		receipt := enqueue(t, client, job)[0]
		s.eventually(t, "it is dead", func() bool { return stats(t, client).Dead == 1 && stats(t, client).DeadNow == 1 })
		stop()
		checkState(t, inspector, "mortal", "dead")
		dead, err := inspector.Dead(t.Context(), "", 10)
		must(t, err)
		if len(dead) != 1 || dead[0].ID != "mortal" || dead[0].User != "teacher" || dead[0].Error != "no" || time.Since(dead[0].At).Abs() > time.Minute {
			t.Fatalf("dead: %+v", dead)
		}
		n, err := inspector.Revive(t.Context(), dead[0].Entry, "1-1")
		if err != nil || n != 1 {
			t.Errorf("revived %d, %v; want 1", n, err)
		}
		broken = false
		runWorker(t, client, &got, queue.WorkerConfig{})
		s.eventually(t, "it is done", func() bool { return stats(t, client).Done == 1 })
		if again := got.all()[1]; again.ID != receipt.ID || again.Attempt != 1 {
			t.Errorf("started %+v", again)
		}
		if dead, err = inspector.Dead(t.Context(), "", 10); err != nil || len(dead) != 0 {
			t.Errorf("dead %+v, %v", dead, err)
		}
		if s := stats(t, client); s.DeadNow != 0 || s.Dead != 1 {
			t.Errorf("%d are dead of %d that have died, want 0 of 1", s.DeadNow, s.Dead)
		}
	})
}

// A cancelled job that makes room in a full backlog was cancelled, and not dropped for lack of room.
func TestACancelledJobMakesRoom(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {
			Tenant: []throttle.Rule{throttle.Leak(1, time.Hour)}, Capacity: 2, DropOldest: true,
		}}})
		var got runs
		runWorker(t, s.client, got.handle(func(queue.Info) time.Duration { return 0 }), queue.WorkerConfig{})
		inspector := newInspector(t, s.client, "push")
		job := func(id string) queue.Job { return queue.Job{ID: id, Tenant: "t", User: id, Type: "push"} }
		enqueue(t, s.client, job("first"))
		s.eventually(t, "the slot of this hour is taken", func() bool { return stats(t, s.client).Done == 1 })
		enqueue(t, s.client, job("cancelled"))
		if cancelled, err := inspector.Cancel(t.Context(), "cancelled"); err != nil || !cancelled {
			t.Fatal(cancelled, err)
		}
		enqueue(t, s.client, job("a"))
		enqueue(t, s.client, job("b"))
		s.eventually(t, "there is room", func() bool { return stats(t, s.client).Waiting == 2 })
		drops, err := inspector.Drops(t.Context(), 10)
		must(t, err)
		if len(drops) != 1 || drops[0].Reason != "cancelled" {
			t.Errorf("dropped: %+v; want one as cancelled", drops)
		}
	})
}

func TestPoliciesRoundTrip(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		want := queue.Policies{
			Queue:   []throttle.Rule{throttle.Leak(5000, time.Second)},
			Default: "standard",
			Policies: map[string]queue.Policy{
				"standard": {
					Tenant: []throttle.Rule{throttle.Leak(50, time.Second)}, Capacity: 1000, DropOldest: true,
					User: []throttle.Rule{throttle.Window(10, time.Minute), throttle.Spacing(3 * time.Second), throttle.Window(50, 24*time.Hour).OrDrop()},
				},
				"free": {MaxWait: 15 * time.Minute},
			},
			Tenants: map[string]string{"school 7: {x}": "free"},
		}
		inspector := newInspector(t, client, "push")
		if none, err := inspector.Policies(t.Context()); err != nil || none.Version != 0 || none.Policies.Policies != nil {
			t.Errorf("before any were set: %+v, %v", none, err)
		}
		must(t, inspector.SetPolicies(t.Context(), want))
		got, err := inspector.Policies(t.Context())
		must(t, err)
		if diff := cmp.Diff(want, got.Policies, cmp.Comparer(func(a, b throttle.Rule) bool { return a == b })); diff != "" {
			t.Error(diff)
		}
		bad := queue.Policies{Default: "nobody"}
		if err := inspector.SetPolicies(t.Context(), bad); !errors.Is(err, queue.ErrInvalidPolicies) {
			t.Errorf("got %v, want it refused", err)
		}
		if again, err := inspector.Policies(t.Context()); err != nil || again.Policies.Default != "standard" {
			t.Errorf("after a refusal: %+v, %v", again, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
