package queue_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// Attempts that follow a Yield take no slot that another job of the tenant waits for: not
// another user's, and not the next one of their own user, before which a retry comes
// otherwise. Nor do they count another way than without it.
func TestYield(t *testing.T) {
	t.Parallel()
	failing := errors.New("half done")
	tests := map[string]struct {
		answer error
		want   []string // the order of the starts, as job and attempt
	}{
		"a retry":         {failing, []string{"a1", "c1", "a2", "b1", "d1"}},
		"yielding":        {queue.Retry{Yield: true, Cause: failing}, []string{"a1", "c1", "b1", "d1", "a2"}},
		"with a delay":    {queue.Retry{After: time.Millisecond, Yield: true, Cause: failing}, []string{"a1", "c1", "b1", "d1", "a2"}},
		"with a refund":   {queue.RefundUser{Err: queue.Retry{Yield: true, Cause: failing}}, []string{"a1", "c1", "b1", "d1", "a2"}},
		"without a cause": {queue.Retry{Yield: true}, []string{"a1", "c1", "b1", "d1", "a2"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStages(t, func(t *testing.T, s stage) {
				order := s.onTime(t, func(metrics prometheus.Registerer) (order []string) {
					setPolicies(t, s.client, policies(queue.Policy{Tenant: []throttle.Rule{throttle.Leak(1, 5*s.unit)}}))
					begin := time.Now().Add(5 * s.unit)
					must(t, newInspector(t, s.client, "push").Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: begin}))
					got := recorder{then: func(_ context.Context, info queue.Info) error {
						if info.ID == "a" && info.Attempt == 1 {
							return test.answer
						}
						return nil
					}}
					for _, job := range []queue.Job{named("a", "u"), named("b", "u"), named("c", "v"), named("d", "u")} {
						straight(t, s, job)
					}
					stop := runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(time.Millisecond), Registerer: metrics})
					s.eventually(t, "all jobs have ended", ended(t, s.client, 4))
					stop()
					for _, start := range got.all() {
						order = append(order, fmt.Sprint(start.ID, start.Attempt))
					}
					return order
				})
				if !slices.Equal(order, test.want) {
					t.Errorf("started %v, want %v", order, test.want)
				}
				checkOutcome(t, s.client, queue.Counters{Done: 4, Failed: 1}, "")
			})
		})
	}
}

// What has yielded waits in its user's lane of low priority, under its ID.
func TestYieldedJobWaitsAtLowPriority(t *testing.T) {
	t.Parallel()
	for name, of := range map[string]struct {
		change func(*queue.Job)
		want   queue.Priority
	}{
		"high":         {high, queue.Low},
		"normal":       {func(*queue.Job) {}, queue.Low},
		"collapse key": {news, queue.Normal}, // a newer job may take its place, and has not yielded
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onStages(t, func(t *testing.T, s stage) {
				inspector := newInspector(t, s.client, "push")
				got := recorder{then: func(_ context.Context, info queue.Info) error {
					if info.Attempt == 1 {
						must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school", Until: time.Now().Add(time.Hour)}))
						return queue.Retry{Yield: true, Cause: errors.New("half done")}
					}
					return nil
				}}
				runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(s.unit)})
				straight(t, s, named("a", "u", of.change))
				s.eventually(t, "it waits again", func() bool { return got.count() == 1 && stats(t, s.client).Waiting == 1 })
				waiting, err := inspector.Lane(t.Context(), "school", "u", 0, 10)
				must(t, err)
				if len(waiting) != 1 || waiting[0].Priority != of.want || waiting[0].Attempt != 2 {
					t.Fatalf("waiting: %+v, want priority %v", waiting, of.want)
				}
				cancelled, err := inspector.Cancel(t.Context(), "a")
				must(t, err)
				must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "school"}))
				s.eventually(t, "it is dropped", func() bool { return stats(t, s.client).Dropped == 1 })
				if !cancelled || got.count() != 1 {
					t.Errorf("cancelled: %v; %d starts", cancelled, got.count())
				}
			})
		})
	}
}

// Where a rule drops what comes when it is full, a job that yields keeps its place: at the
// end of the line it would be dropped, though its user has it in part.
func TestYieldBesideARuleThatDrops(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{
			User: []throttle.Rule{throttle.Window(3, time.Hour).OrDrop(), throttle.Spacing(s.units(10))},
		}))
		got := recorder{then: func(_ context.Context, info queue.Info) error {
			switch {
			case info.ID == "a" && info.Attempt == 1:
				return queue.Retry{Yield: true, Cause: errors.New("half done")}
			case info.ID == "a":
				return queue.RefundUser{} // it has its place already
			}
			return nil
		}}
		runWorker(t, s.client, &got, queue.WorkerConfig{RetryDelay: after(s.unit)})
		for _, id := range []string{"a", "b", "c"} {
			straight(t, s, named(id, "u"))
		}
		s.eventually(t, "all are over", ended(t, s.client, 3))
		if st := stats(t, s.client); st.Done != 3 || st.Dropped != 0 {
			t.Errorf("%+v, want all three done", st.Counters)
		}
	})
}
