package watch_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// A queue without a worker stands still; one that is paused does what it was told.
func Example() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		fmt.Println(err)
		return
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	ctx := context.Background()

	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	if _, err := client.Enqueue(ctx, queue.Job{Tenant: "school-7", User: "teacher-42", Type: "push"}); err != nil {
		fmt.Println(err)
		return
	}
	w, err := watch.New(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	h, err := w.Health(ctx)
	fmt.Println(h.Condition, h.Detail, err)

	err = w.Pause(ctx, queue.Pause{Scope: queue.ScopeQueue, For: time.Hour})
	h, _ = w.Health(ctx)
	fmt.Println(h.Condition, err)
	// Output:
	// stalled 1 job waits, and no worker lives <nil>
	// paused <nil>
}
