package notifytest

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// A network in memory. Unlike net.Pipe it buffers, as the kernel does: TLS and HTTP/2 may
// write on both sides at once.
type memory struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newMemory() *memory {
	return &memory{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (m *memory) Accept() (net.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

func (m *memory) Close() error {
	m.once.Do(func() { close(m.closed) })
	return nil
}

func (m *memory) Addr() net.Addr { return memoryAddr{} }

func (m *memory) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	there, back := newStream(), newStream()
	select {
	case m.conns <- &memoryConn{in: there, out: back}:
		return &memoryConn{in: back, out: there}, nil
	case <-m.closed:
		return nil, &net.OpError{Op: "dial", Net: "memory", Err: errors.New("connection refused")}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

type memoryAddr struct{}

func (memoryAddr) Network() string { return "memory" }
func (memoryAddr) String() string  { return "127.0.0.1:443" }

// A stream is one direction of a connection.
type stream struct {
	mu      sync.Mutex
	arrived *sync.Cond
	buf     []byte
	ended   bool // by the writer
	dead    bool // by the reader
	late    bool // the read deadline has passed
	timer   *time.Timer
}

func newStream() *stream {
	s := &stream{}
	s.arrived = sync.NewCond(&s.mu)
	return s
}

func (s *stream) read(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.buf) == 0 && !s.ended && !s.dead && !s.late {
		s.arrived.Wait()
	}
	switch {
	case s.dead:
		return 0, net.ErrClosed
	case s.late:
		return 0, os.ErrDeadlineExceeded
	case len(s.buf) == 0:
		return 0, io.EOF
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

func (s *stream) write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.dead {
		return 0, io.ErrClosedPipe
	}
	s.buf = append(s.buf, p...)
	s.arrived.Broadcast()
	return len(p), nil
}

func (s *stream) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.arrived.Broadcast()
}

func (s *stream) setDeadline(t time.Time) {
	s.set(func() {
		if s.timer != nil {
			s.timer.Stop()
			s.timer = nil
		}
		s.late = false
		if t.IsZero() {
			return
		}
		if d := time.Until(t); d > 0 {
			var mine *time.Timer
			mine = time.AfterFunc(d, func() {
				s.set(func() { s.late = s.late || s.timer == mine })
			})
			s.timer = mine
			return
		}
		s.late = true
	})
}

type memoryConn struct{ in, out *stream }

func (c *memoryConn) Read(p []byte) (int, error)  { return c.in.read(p) }
func (c *memoryConn) Write(p []byte) (int, error) { return c.out.write(p) }

func (c *memoryConn) Close() error {
	c.in.setDeadline(time.Time{})
	c.in.set(func() { c.in.dead = true })
	c.out.set(func() { c.out.ended = true })
	return nil
}

func (*memoryConn) LocalAddr() net.Addr  { return memoryAddr{} }
func (*memoryConn) RemoteAddr() net.Addr { return memoryAddr{} }

func (c *memoryConn) SetDeadline(t time.Time) error     { c.in.setDeadline(t); return nil }
func (c *memoryConn) SetReadDeadline(t time.Time) error { c.in.setDeadline(t); return nil }

// SetWriteDeadline does nothing: a write never waits.
func (*memoryConn) SetWriteDeadline(time.Time) error { return nil }
