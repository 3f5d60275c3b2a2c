package redistest

import (
	"bytes"
	"context"
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Buffer collects what a program writes, and can be read at the same time. The zero value is
// empty.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what has been written.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// A Counter is a hook that counts the commands of a client, those of a pipeline one by one. The
// zero value is at 0.
type Counter struct{ n atomic.Int64 }

// Count returns how many commands there were.
func (c *Counter) Count() int { return int(c.n.Load()) }

// Take returns how many commands there were since the last call of Take.
func (c *Counter) Take() int { return int(c.n.Swap(0)) }

// DialHook implements [redis.Hook].
func (c *Counter) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (c *Counter) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (c *Counter) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		c.n.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}
