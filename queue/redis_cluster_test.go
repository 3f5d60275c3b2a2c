package queue_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// One worker serves several queues that live on several nodes, through both doors, and
// the inspector finds its way to each.
func TestSeveralQueuesOnACluster(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	client := redistest.StartCluster(t, 3)
	queues := []string{"push-0", "push-1", "push-2", "push-3"}
	policy := leakOf(200)
	for _, name := range queues {
		must(t, newInspector(t, client, name).SetPolicies(t.Context(), policies(policy)))
		must(t, newInspector(t, client, name).Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "paused", Until: time.Now().Add(time.Hour)}))
	}
	var got recorder
	runWorker(t, client, &got, queue.WorkerConfig{Queues: queues, Inbox: true})
	for _, name := range queues {
		batch := append(jobs("school", "teacher", 20), jobs("paused", "teacher", 3)...)
		batch[22].ID = "last"
		if _, err := newClient(t, client, name).Enqueue(t.Context(), batch...); err != nil {
			t.Fatal(err)
		}
	}
	producer := asynq.NewClientFromRedisClient(client)
	for _, name := range queues {
		task, err := queue.NewTask(named("from asynq", "teacher"))
		must(t, err)
		_, err = producer.Enqueue(task, asynq.Queue(name))
		must(t, err)
	}
	for _, name := range queues {
		inspector := newInspector(t, client, name)
		redistest.Eventually(t, 20*time.Second, "all of "+name+" has run", func() bool {
			s, err := inspector.Stats(t.Context())
			must(t, err)
			return s.Done == 21 && s.Waiting == 3
		})
		tenants, _, err := inspector.Tenants(t.Context(), 0, 10)
		must(t, err)
		job, known, err := inspector.ExplainJob(t.Context(), "last")
		must(t, err)
		if len(tenants) != 1 || tenants[0].Tenant != "paused" || !known || job.Place != 3 || job.Binding == nil || job.Binding.Rule != "paused" {
			t.Errorf("%s: tenants %+v, job %+v", name, tenants, job)
		}
		if n, err := inspector.Purge(t.Context(), "paused"); err != nil || n != 3 {
			t.Errorf("%s: purged %d, %v", name, n, err)
		}
	}
	byQueue := map[string][]queue.Info{}
	for _, start := range got.all() {
		byQueue[start.Queue] = append(byQueue[start.Queue], start)
	}
	for _, name := range queues {
		verify(t, byQueue[name], policy)
	}
	if on := nodesOf(t, client, queues); len(on) < 2 {
		t.Errorf("all queues live on one node: %v", on)
	}
}

func nodesOf(t *testing.T, client *redis.ClusterClient, queues []string) map[string]bool {
	t.Helper()
	nodes := map[string]bool{}
	for _, name := range queues {
		node, err := client.MasterForKey(t.Context(), "wc:{"+name+"}:")
		must(t, err)
		nodes[node.Options().Addr] = true
	}
	return nodes
}

// answering is a hook that answers the first scripts with something else.
type answering struct {
	with  string
	times int
}

func (a *answering) DialHook(next redis.DialHook) redis.DialHook { return next }

func (a *answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (a *answering) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if a.times > 0 && strings.HasPrefix(cmd.Name(), "eval") {
			a.times--
			cmd.SetErr(errors.New(a.with))
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

// An offer waits while a Redis, or a cluster, is being changed: also one that looks first
// whether its job can start in time.
func TestOffersWaitForAChangingRedis(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{
		"LOADING Redis is loading", "MASTERDOWN Link with MASTER is down", "READONLY You can't write", "CLUSTERDOWN Hash slot not served",
		"TRYAGAIN Multiple keys", "NOREPLICAS Not enough", "MOVED 297 127.0.0.1:7001", "ASK 297 127.0.0.1:7001",
	} {
		for _, startBy := range []time.Duration{0, time.Hour} {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				client.AddHook(&answering{answer, 3})
				job := named("a", "u")
				if startBy > 0 {
					job.StartBy = time.Now().Add(startBy)
				}
				if receipts := enqueue(t, client, job); receipts[0].Status != queue.Accepted {
					t.Errorf("%s: %+v", answer, receipts[0])
				}
			})
		}
	}
}
