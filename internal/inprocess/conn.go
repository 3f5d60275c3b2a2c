// Package inprocess connects clients to a Redis in the same process.
//
// A connection to it is a pipe without a buffer. A client that writes many commands at
// once and reads the replies then would wait for ever for a server that writes the first
// reply before it reads the rest: what is written here is passed on beside.
package inprocess

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options returns the options of a client with connections to a server in this process, or with
// others that stand between. They suit synctest bubbles, too:
//
//   - A client that waits for a free connection takes a timer out of a pool that go-redis has for the
//     whole process, and a timer that was made in another bubble ends the process. So the client has
//     more connections than it needs.
//   - A client that asks for notices of maintenance holds a lock while it waits for the answer, and
//     time in a bubble does not pass while somebody waits for a lock. So it does not ask.
//   - The address, which is dialed by nobody, is an IP literal: a name would be looked up outside of
//     the bubble.
func Options(dial func() (net.Conn, error)) *redis.Options {
	return &redis.Options{
		Addr: "127.0.0.1:6379", PoolSize: 1000,
		Dialer:                   func(context.Context, string, string) (net.Conn, error) { return dial() },
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// NewClient returns a client of a server in this process.
func NewClient(server *miniredis.Miniredis) *redis.Client {
	return redis.NewClient(Options(func() (net.Conn, error) { return Dial(server) }))
}

// Dial returns a new connection.
func Dial(server *miniredis.Miniredis) (net.Conn, error) {
	pipe, err := server.Dial()
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: pipe}
	c.more.L = &c.mu
	go c.pass()
	return c, nil
}

// conn is a connection whose writes do not wait.
type conn struct {
	net.Conn

	mu     sync.Mutex
	more   sync.Cond
	queued []byte
	err    error
}

// Write takes the bytes in. It fails once the connection has.
func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.queued = append(c.queued, b...)
	c.more.Signal()
	return len(b), nil
}

// pass writes what was taken in until the connection ends.
func (c *conn) pass() {
	for {
		c.mu.Lock()
		for len(c.queued) == 0 && c.err == nil {
			c.more.Wait()
		}
		b, err := c.queued, c.err
		c.queued = nil
		c.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := c.Conn.Write(b); err != nil {
			c.fail(err)
		}
	}
}

func (c *conn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.more.Signal()
}

// Close ends the connection, and what waits to be passed on with it.
func (c *conn) Close() error {
	c.fail(net.ErrClosed)
	return c.Conn.Close()
}

// SetDeadline bounds reads; writes do not wait.
func (c *conn) SetDeadline(t time.Time) error { return c.Conn.SetReadDeadline(t) }

// SetWriteDeadline does nothing: writes do not wait.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }
