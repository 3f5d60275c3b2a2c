package queue_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// What an operator does with jobs that wait for a shared limit, or for the rule of a queue that has partitions, stops nobody else: the limit
// starts a job whenever it may, as long as there are others.
func TestActsOnJobsThatWaitForASharedLimit(t *testing.T) {
	t.Parallel()
	const every, users, each = 2 * time.Second, 6, 3
	rule := throttle.Spacing(every)
	for name, act := range map[string]func(context.Context, *queue.Inspector, int) error{
		"purge a tenant": func(ctx context.Context, i *queue.Inspector, _ int) error {
			_, err := i.Purge(ctx, "school")
			return err
		},
		"cancel": func(ctx context.Context, i *queue.Inspector, k int) error {
			_, err := i.Cancel(ctx, fmt.Sprintf("job-%d-%d", k%users, k/users%each))
			return err
		},
		"pause a user": func(ctx context.Context, i *queue.Inspector, k int) error {
			p := queue.Pause{Scope: "user", Tenant: "school", User: fmt.Sprint("teacher-", k/2%users), For: time.Hour}
			if k%2 == 0 {
				return i.Pause(ctx, p)
			}
			return i.Resume(ctx, p)
		},
		"give the queue other policies": func(ctx context.Context, i *queue.Inspector, k int) error {
			now, err := i.Policies(ctx)
			if err != nil {
				return err
			}
			now.Policies.Default = "usual"
			now.Policies.Policies = map[string]queue.Policy{"usual": {Tenant: []throttle.Rule{throttle.Leak(100+k, time.Second)}}}
			return i.SetPolicies(ctx, now.Policies)
		},
		"pause a tenant": func(ctx context.Context, i *queue.Inspector, k int) error {
			p := queue.Pause{Scope: "tenant", Tenant: "school", For: time.Hour}
			if k%2 == 0 {
				return i.Pause(ctx, p)
			}
			return i.Resume(ctx, p)
		},
	} {
		for kind, p := range map[string]queue.Policies{"a shared limit": account(rule), "partitions": {Partitions: 4, Queue: []throttle.Rule{rule}}} {
			t.Run(name+", "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client := redistest.Mini(t)
					var started starts
					started.under(t, client, p, "push", queue.WorkerConfig{})
					for k := range users {
						all := jobs("school", fmt.Sprint("teacher-", k), each)
						for j := range all {
							all[j].ID = fmt.Sprintf("job-%d-%d", k, j)
						}
						enqueue(t, client, all...)
					}
					enqueue(t, client, jobs("home", "parent", 60)...)
					time.Sleep(500 * time.Millisecond)
					begin, before := time.Now(), started.of("push")
					inspector := newInspector(t, client, "push")
					for k := range 24 {
						must(t, act(t.Context(), inspector, k))
						time.Sleep(777 * time.Millisecond)
					}
					time.Sleep(every)
					if n, want := started.of("push")-before, int(time.Since(begin)/every); n < want-1 {
						t.Errorf("%d jobs have started in %v, want %d", n, time.Since(begin), want)
					}
				})
			})
		}
	}
}
