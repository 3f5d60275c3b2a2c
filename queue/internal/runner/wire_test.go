package runner

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// A wire is a worker's way to Redis, which a test can cut, hold up and make deaf.
type wire struct {
	server *miniredis.Miniredis
	mu     sync.Mutex
	open   map[net.Conn]bool
	down   bool
	held   chan struct{} // closed when traffic goes on; nil while it does
	deaf   int           // every n-th script's reply is lost; 0 for none
	calls  int
	loses  int           // the replies of so many scripts more are lost
	drops  int           // so many scripts more never arrive
	stuck  chan struct{} // closed when scripts go on; nil while they do

	around func(cmd redis.Cmder, do func() error) error // instead of each command
}

func newWire(server *miniredis.Miniredis) *wire {
	return &wire{server: server, open: map[net.Conn]bool{}}
}

// cut breaks all connections; down lets no new ones through.
func (w *wire) cut(down bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = down
	for conn := range w.open {
		conn.Close()
	}
	clear(w.open)
}

// hold stops all traffic, until the returned function is called.
func (w *wire) hold() (goOn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	w.held = held
	return func() {
		w.mu.Lock()
		w.held = nil
		w.mu.Unlock()
		close(held)
	}
}

func (w *wire) await() {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
}

// A heldConn does nothing while its wire is held. It takes what is written at once, as a socket
// does: a server that answers the first of many commands is not in the way of the others.
type heldConn struct {
	net.Conn
	w      *wire
	out    chan []byte
	closed chan struct{}
	once   *sync.Once
}

func (w *wire) conn(inner net.Conn) heldConn {
	c := heldConn{inner, w, make(chan []byte, 1000), make(chan struct{}), new(sync.Once)}
	go func() {
		for {
			select {
			case b := <-c.out:
				if _, err := inner.Write(b); err != nil {
					c.Close()
					return
				}
			case <-c.closed:
				return
			}
		}
	}()
	return c
}

func (c heldConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c heldConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.w.await()
	return n, err
}

func (c heldConn) Write(b []byte) (int, error) {
	c.w.await()
	select {
	case c.out <- slices.Clone(b):
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

func (w *wire) client(t *testing.T) *redis.Client {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379", Dialer: func(context.Context, string, string) (net.Conn, error) {
		w.await()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down {
			return nil, &net.OpError{Op: "dial", Err: errors.New("cut off")}
		}
		inner, err := w.server.Dial()
		if err != nil {
			return nil, err
		}
		conn := w.conn(inner)
		w.open[conn] = true
		return conn, nil
	}})
	client.AddHook(w)
	return client
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	lossy := w.lossy(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.mu.Lock()
		around := w.around
		w.mu.Unlock()
		if around != nil {
			return around(cmd, func() error { return lossy(context.WithoutCancel(ctx), cmd) }) // what was sent arrives
		}
		return lossy(ctx, cmd)
	}
}

// intercept lets a function run instead of each command.
func (w *wire) intercept(around func(cmd redis.Cmder, do func() error) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.around = around
}

// lossy loses scripts, and replies of scripts that have run.
func (w *wire) lossy(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if !strings.HasPrefix(cmd.Name(), "eval") {
			return next(ctx, cmd)
		}
		w.mu.Lock()
		stuck := w.stuck
		w.mu.Unlock()
		if stuck != nil {
			<-stuck
		}
		reset := &net.OpError{Op: "read", Err: errors.New("connection reset")}
		if w.counts(func() bool { w.drops--; return w.drops >= 0 }) {
			cmd.SetErr(reset)
			return reset
		}
		err := next(ctx, cmd)
		if err == nil && w.counts(func() bool {
			w.calls++
			w.loses--
			return w.deaf > 0 && w.calls%w.deaf == 0 || w.loses >= 0
		}) {
			cmd.SetErr(reset)
			return reset
		}
		return err
	}
}

// counts counts a script, and reports whether something is to be lost.
func (w *wire) counts(lost func() bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return lost()
}
