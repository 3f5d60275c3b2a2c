package api

import (
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// clients keeps a client of each queue that somebody offers to. Requests share it: offers that wait for replicas wait together.
type clients struct {
	redis   redis.UniversalClient
	config  queue.ClientConfig
	mu      sync.Mutex
	byQueue map[string]*queue.Client
}

// mostClients bounds how many are kept, since callers name the queues.
const mostClients = 1024

func newClients(rdb redis.UniversalClient, config queue.ClientConfig) *clients {
	return &clients{redis: rdb, config: config, byQueue: make(map[string]*queue.Client)}
}

// of returns the client of a queue.
func (c *clients) of(name string) (*queue.Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byQueue[name]; known != nil {
		return known, nil
	}
	client, err := queue.NewClient(c.redis, name, c.config)
	if err != nil {
		return nil, err
	}
	if len(c.byQueue) >= mostClients {
		clear(c.byQueue) // a queue that is still offered to gets another one
	}
	c.byQueue[name] = client
	return client, nil
}
