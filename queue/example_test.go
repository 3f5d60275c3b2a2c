package queue_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// openExample returns a Redis inside of this process, with a policy of one job a minute for
// each user, and how to close it.
func openExample(ctx context.Context) (rdb *redis.Client, stop func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	inspector, err := queue.NewInspector(rdb, "push")
	if err != nil {
		panic(err)
	}
	err = inspector.SetPolicies(ctx, queue.Policies{
		Default:  "standard",
		Policies: map[string]queue.Policy{"standard": {User: []throttle.Rule{throttle.Window(1, time.Minute)}, Capacity: 4}},
	})
	if err != nil {
		panic(err)
	}
	return rdb, func() {
		rdb.Close()
		server.Close()
	}
}

func ExampleClient_Enqueue() {
	ctx := context.Background()
	rdb, stop := openExample(ctx)
	defer stop()

	weather := queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", CollapseKey: "weather"}
	order := queue.Job{ID: "order-17", Tenant: "school-7", User: "teacher-42", Type: "push"}
	tomorrow := queue.Job{Tenant: "school-7", User: "teacher-43", Type: "push", NotBefore: time.Now().Add(24 * time.Hour)}
	late := queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", StartBy: time.Now().Add(-time.Second)}
	big := queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push", Cost: 2}

	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	receipts, err := client.Enqueue(ctx, weather, order, order, weather, tomorrow, late, big)
	if err != nil {
		fmt.Println(err)
	}
	for _, r := range receipts {
		switch r.Status {
		case queue.Accepted:
			fmt.Println("accepted, place", r.Place)
		case queue.Dropped:
			fmt.Printf("dropped: %s %q\n", r.Reason, r.Rule)
		default:
			fmt.Println(r.Status)
		}
	}
	// Output:
	// accepted, place 1
	// accepted, place 2
	// duplicate
	// replaced
	// accepted, place 0
	// dropped: expired ""
	// dropped: impossible "window 1/1m"
}

func ExampleNewTask() {
	ctx := context.Background()
	rdb, stop := openExample(ctx)
	defer stop()

	task, err := queue.NewTask(queue.Job{
		ID: "order-17", Tenant: "school-7", User: "teacher-42", Type: "push", Priority: queue.High, Timeout: 30 * time.Second,
	})
	if err != nil {
		fmt.Println(err)
	}
	info, err := asynq.NewClientFromRedisClient(rdb).EnqueueContext(ctx, task, asynq.Queue("push"))
	if err != nil {
		fmt.Println(err)
	}
	fmt.Println(info.ID, info.Headers)
	// Output:
	// order-17 map[waterclock-priority:high waterclock-tenant:school-7 waterclock-timeout:30s waterclock-user:teacher-42]
}

func ExampleInspector() {
	ctx := context.Background()
	rdb, stop := openExample(ctx)
	defer stop()
	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	inspector, err := queue.NewInspector(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.Enqueue(ctx,
		queue.Job{ID: "a", Tenant: "school-7", User: "teacher-42", Type: "push"},
		queue.Job{ID: "b", Tenant: "school-7", User: "teacher-42", Type: "push"},
	); err != nil {
		fmt.Println(err)
	}

	if err := inspector.Pause(ctx, queue.Pause{Scope: queue.ScopeUser, Tenant: "school-7", User: "teacher-42", Until: time.Now().Add(time.Hour)}); err != nil {
		fmt.Println(err)
	}
	why, err := inspector.Explain(ctx, "school-7", "teacher-42")
	fmt.Println(why.Waiting, "wait:", why.Binding.Scope, why.Binding.Rule, err)

	job, known, err := inspector.ExplainJob(ctx, "b")
	fmt.Println(job.State, job.Place, known, err)

	found, err := inspector.Cancel(ctx, "b")
	fmt.Println("cancelled:", found, err)

	tenants, _, err := inspector.Tenants(ctx, 0, 10)
	fmt.Println(tenants[0].Tenant, tenants[0].Waiting, err)

	purged, err := inspector.Purge(ctx, "school-7")
	fmt.Println("purged:", purged, err)

	drops, err := inspector.Drops(ctx, 10)
	for _, d := range drops {
		fmt.Println(d.ID, d.Reason, err)
	}
	// Output:
	// 2 wait: user paused <nil>
	// waiting 2 true <nil>
	// cancelled: true <nil>
	// school-7 2 <nil>
	// purged: 2 <nil>
	// b purged <nil>
	// a purged <nil>
}

// A provider that is overloaded says when to come back: nothing of the tenant is tried
// before, and the attempt does not count.
func ExamplePause() {
	handler := func(context.Context, *asynq.Task) error {
		const retryAfter = 30 * time.Second // from the provider's answer
		return queue.Pause{Scope: queue.ScopeTenant, For: retryAfter, Cause: errors.New("429 Too Many Requests")}
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("push", handler)
}

func ExampleInspector_Revive() {
	ctx := context.Background()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	inspector, err := queue.NewInspector(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	dead, err := inspector.Dead(ctx, "", 100)
	if err != nil {
		fmt.Println(err)
	}
	for _, job := range dead {
		fmt.Println(job.ID, "failed for good:", job.Error)
		if _, err := inspector.Revive(ctx, job.Entry); err != nil {
			fmt.Println(err)
		}
	}
}
