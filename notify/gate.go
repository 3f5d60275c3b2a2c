package notify

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// A gate lets the requests of a client to one host start one after the other: each waits
// until the one before has its stream of HTTP/2, or its connection of HTTP/1.
//
// It is needed because net/http, told to respect the server's bound of streams, reserves one
// for each request that waits for a stream. Once as many wait as the server allows, none of
// them gets one, and the connection is stuck until they give up. One that waits is never too
// many.
//
// On a new connection the next request also waits for the first answer, because the server's
// bound comes with it, and Apple's is 1 until then.
type gate struct {
	mu    sync.Mutex
	hosts map[string]*queued // of hosts that somebody sends to
}

// firstPatience is how long the first answer of a connection is waited for. A request that
// starts earlier finds the bound of 1, and is the one that may wait for its stream.
const firstPatience = time.Second

// queued are the requests to one host.
type queued struct {
	starting chan struct{} // holds the one that starts
	users    int           // that start, wait for that or are under way
	answered atomic.Int64  // how many of them were
}

// A start is a request's turn at the gate.
type start struct {
	gate  *gate
	host  string
	queue *queued
	came  int64 // how many requests were answered before it came

	ctx      context.Context
	cancel   context.CancelCauseFunc
	patience time.Duration
	deadline *time.Timer // ends ctx

	mu      sync.Mutex
	holds   bool        // it is the one that starts
	sent    bool        // it has its stream or its connection
	isNew   bool        // it is the first of a connection of HTTP/2
	waiting *time.Timer // for the first answer
}

// come notes a request, which waits no longer than patience for its stream or connection, and
// then no longer than that for its answer: what waits behind others has as long for its answer as
// they have. Whoever calls come calls leave at the request's end.
func (g *gate) come(req *http.Request, patience time.Duration) *start {
	q := g.join(req.URL.Host)
	s := &start{gate: g, host: req.URL.Host, queue: q, came: q.answered.Load(), patience: patience}
	s.ctx, s.cancel = context.WithCancelCause(req.Context())
	s.deadline = time.AfterFunc(patience, func() { s.cancel(context.DeadlineExceeded) })
	return s
}

// leave lets the next request start, if this one has not yet.
func (s *start) leave() {
	s.end()
	s.deadline.Stop()
	s.cancel(nil)
	s.gate.quit(s.host, s.queue)
}

// reason is why the request was given up, if it was, and else the error that it ended with.
func (s *start) reason(err error) error {
	switch {
	case s.isCrowdedOut():
		return errCrowded
	case s.isOverdue():
		return context.DeadlineExceeded
	case s.ctx.Err() != nil:
		return s.ctx.Err()
	}
	return reasonOf(err)
}

// answered notes that the host has answered.
func (s *start) answered() { s.queue.answered.Add(1) }

// isCrowdedOut reports whether the request was given up before it had its stream or its
// connection, and the host has answered others meanwhile. Then there are more requests than the
// host takes, and none of it is the host's failure.
func (s *start) isCrowdedOut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.sent && s.queue.answered.Load() > s.came && s.isOverdue()
}

// isOverdue reports whether the request has run out of time, its own or that of whoever makes it.
func (s *start) isOverdue() bool { return errors.Is(context.Cause(s.ctx), context.DeadlineExceeded) }

// enter waits for the turn of the request, and returns the request to make.
func (s *start) enter(req *http.Request) (turned *http.Request, err error) {
	if err := s.begin(); err != nil {
		return nil, err
	}
	turned = req.WithContext(httptrace.WithClientTrace(s.ctx, &httptrace.ClientTrace{
		GotConn:              s.connected,
		WroteHeaders:         s.opened,
		GotFirstResponseByte: s.end,
	}))
	if body := req.GetBody; body != nil {
		// net/http asks for the body again where it sends a request again.
		turned.GetBody = func() (io.ReadCloser, error) {
			if err := s.begin(); err != nil {
				return nil, err
			}
			return body()
		}
	}
	return turned, nil
}

// begin waits until no other request starts.
func (s *start) begin() error {
	s.mu.Lock()
	holds := s.holds
	s.mu.Unlock()
	if holds {
		return nil
	}
	select {
	case s.queue.starting <- struct{}{}:
		s.mu.Lock()
		s.holds = true
		s.mu.Unlock()
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *start) connected(info httptrace.GotConnInfo) {
	c, secure := info.Conn.(*tls.Conn)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.isNew = !info.Reused && secure && c.ConnectionState().NegotiatedProtocol == "h2"
}

// opened is called when the request has its stream or its connection.
func (s *start) opened() {
	s.mu.Lock()
	isNew := s.isNew
	if !s.sent {
		s.sent = true
		s.deadline.Reset(s.patience)
	}
	if isNew {
		s.waiting = time.AfterFunc(firstPatience, s.end)
	}
	s.mu.Unlock()
	if !isNew {
		s.end()
	}
}

// end lets the next request start.
func (s *start) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting != nil {
		s.waiting.Stop()
	}
	if s.holds {
		s.holds = false
		<-s.queue.starting
	}
}

func (g *gate) join(host string) *queued {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.hosts[host]
	if q == nil {
		q = &queued{starting: make(chan struct{}, 1)}
		if g.hosts == nil {
			g.hosts = make(map[string]*queued)
		}
		g.hosts[host] = q
	}
	q.users++
	return q
}

func (g *gate) quit(host string, q *queued) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if q.users--; q.users == 0 {
		delete(g.hosts, host)
	}
}
