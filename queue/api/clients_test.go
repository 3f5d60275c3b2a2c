package api

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// Callers name the queues: the clients of any number of them take a bounded memory.
func TestClientsAreFew(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{})
	defer rdb.Close()
	c := newClients(rdb, queue.ClientConfig{})
	for k := range 5 * mostClients {
		name := fmt.Sprint("queue", k)
		first, err := c.of(name)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := c.of(name); err != nil || again != first {
			t.Fatalf("%s: another client for the same queue, %v", name, err)
		}
		if len(c.byQueue) > mostClients {
			t.Fatalf("after %d queues there are %d clients", k+1, len(c.byQueue))
		}
	}
}
