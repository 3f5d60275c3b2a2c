package runner

import (
	"context"
	"errors"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/inprocess"
)

// A wire is a worker's way to Redis, which a test can cut, hold up and make deaf.
type wire struct {
	server *miniredis.Miniredis
	mu     sync.Mutex
	open   map[heldConn]bool
	down   bool
	dark   bool          // new connections are silent, too
	held   chan struct{} // closed when traffic goes on; nil while it does
	deaf   int           // every n-th script's reply is lost; 0 for none
	calls  int
	loses  int           // the replies of so many scripts more are lost
	drops  int           // so many scripts more never arrive
	stuck  chan struct{} // closed when scripts go on; nil while they do

	around func(cmd redis.Cmder, do func() error) error // instead of each command
	before func(cmds []redis.Cmder) error               // before each pipeline, which it may let fail

	streams bool        // commits go by one connection, as they do outside tests
	fate    func() fate // what becomes of commits of "w" that are written there
	unread  int         // commits written since something was read
	most    int
	commits int // written altogether
}

// A fate is what happens to commits that were written to a connection.
type fate int

const (
	arrives fate = iota
	breaks       // the connection breaks before they arrive
	mute         // it breaks before their replies arrive
)

// parted is a client that sends each command on its own, so that a test can do something to one.
type parted struct{ redis.UniversalClient }

func (parted) AsyncAutoPipelineWithOptions(*redis.AutoPipelineOptions) (*redis.AutoPipeliner, error) {
	return nil, errors.New("each command goes its own way")
}

func newWire(server *miniredis.Miniredis) *wire {
	return &wire{server: server, open: map[heldConn]bool{}}
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

// silence lets nothing arrive any more by the connections that there are. New ones work.
func (w *wire) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for conn := range w.open {
		conn.silent.Store(true)
	}
}

// darken lets nothing arrive any more, not by new connections either, until the returned function is called.
// Nothing arrives later by those that were opened before.
func (w *wire) darken() (lighten func()) {
	w.silence()
	set := func(dark bool) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.dark = dark
	}
	set(true)
	return func() { set(false) }
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
	mute   *atomic.Bool
	silent *atomic.Bool // nothing that is written arrives, and nobody is told
	in     net.Conn     // what the server sends, half a millisecond later; nil for no delay
}

func (w *wire) conn(inner net.Conn) heldConn {
	c := heldConn{inner, w, make(chan []byte, 1000), make(chan struct{}), new(sync.Once), new(atomic.Bool), new(atomic.Bool), nil}
	if w.streams {
		c.in = c.later()
	}
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
	c.once.Do(func() {
		close(c.closed)
		if c.in != nil {
			c.in.Close()
		}
	})
	return c.Conn.Close()
}

func (c heldConn) SetReadDeadline(t time.Time) error {
	if c.in != nil {
		return c.in.SetReadDeadline(t)
	}
	return c.Conn.SetReadDeadline(t)
}

func (c heldConn) Read(b []byte) (int, error) {
	from := c.in
	if from == nil {
		from = c.Conn
	}
	n, err := from.Read(b)
	c.w.await()
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	c.w.unread = 0
	return n, err
}

// later returns what comes from the server half a millisecond later, as over a distance: the
// server never waits until somebody reads.
func (c heldConn) later() net.Conn {
	near, far := net.Pipe()
	sent := make(chan []byte, 1000)
	go func() {
		defer close(sent)
		for b := make([]byte, 64<<10); ; {
			n, err := c.Conn.Read(b)
			if err != nil {
				return
			}
			sent <- slices.Clone(b[:n])
		}
	}()
	go func() {
		defer far.Close()
		for b := range sent {
			time.Sleep(500 * time.Microsecond)
			if c.mute.Load() {
				continue
			}
			if _, err := far.Write(b); err != nil {
				return
			}
		}
	}()
	return near
}

func (c heldConn) Write(b []byte) (int, error) {
	c.w.await()
	if c.silent.Load() {
		return len(b), nil
	}
	switch c.w.fateOf(b) {
	case breaks:
		c.Close()
		return len(b), nil
	case mute:
		c.mute.Store(true)
		time.AfterFunc(time.Millisecond, func() { c.Close() })
	}
	select {
	case c.out <- slices.Clone(b):
		return len(b), nil
	case <-c.closed:
		return 0, net.ErrClosed
	}
}

// tokenOfW is the first argument of each commit of "w".
var tokenOfW = regexp.MustCompile(`\r\n\d+:w\r\n`)

// fateOf decides what becomes of what is written.
func (w *wire) fateOf(b []byte) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	commits := len(tokenOfW.FindAll(b, -1))
	w.unread += commits
	w.commits += commits
	w.most = max(w.most, w.unread)
	if w.fate == nil || commits == 0 {
		return arrives
	}
	return w.fate()
}

func (w *wire) client(t *testing.T) redis.UniversalClient {
	options := inprocess.Options(func() (net.Conn, error) {
		w.await()
		// The server may be held up by a reply that is read only with the lock of the wire.
		inner, err := w.server.Dial()
		if err != nil {
			return nil, err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.down {
			inner.Close()
			return nil, &net.OpError{Op: "dial", Err: errors.New("cut off")}
		}
		conn := w.conn(inner)
		conn.silent.Store(w.dark)
		w.open[conn] = true
		return conn, nil
	})
	// A connection that is silent looks alive: a leader whose pool has a hundred of them would be held up for seconds.
	options.MaxIdleConns = 4
	client := redis.NewClient(options)
	if w.streams {
		return client
	}
	client.AddHook(w)
	return parted{client}
}

func (w *wire) DialHook(next redis.DialHook) redis.DialHook { return next }

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.mu.Lock()
		before := w.before
		w.mu.Unlock()
		if before != nil {
			if err := before(cmds); err != nil {
				for _, cmd := range cmds {
					cmd.SetErr(err)
				}
				return err
			}
		}
		return next(ctx, cmds)
	}
}

// interceptPipelines lets a function run before each pipeline, which fails with its error.
func (w *wire) interceptPipelines(before func(cmds []redis.Cmder) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = before
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
