package doctor_test

import (
	"context"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/doctor"
)

// Another program has written a key of the queue: it is found, and nothing else.
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
	d, err := doctor.New(rdb, "push")
	if err != nil {
		fmt.Println(err)
		return
	}
	found, err := d.Examine(ctx)
	fmt.Println(len(found), err)

	rdb.Set(ctx, "wc:{push}:later", "not ours", 0)
	found, err = d.Examine(ctx)
	for _, damage := range found {
		fmt.Println(damage.Kind, damage.Key, err)
	}
	// Output:
	// 0 <nil>
	// type wc:{push}:later <nil>
}
