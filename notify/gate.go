package notify

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
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
}

// A start is a request's turn at the gate.
type start struct {
	queue *queued
	ctx   context.Context

	mu      sync.Mutex
	holds   bool        // it is the one that starts
	isNew   bool        // it is the first of a connection of HTTP/2
	waiting *time.Timer // for the first answer
}

// enter waits for the turn of a request. It returns the request to make, and what is to be
// called at its end.
func (g *gate) enter(req *http.Request) (turned *http.Request, leave func(), err error) {
	host := req.URL.Host
	s := &start{queue: g.join(host), ctx: req.Context()}
	if err := s.begin(); err != nil {
		g.quit(host, s.queue)
		return nil, nil, err
	}
	turned = req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
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
	return turned, func() {
		s.end()
		g.quit(host, s.queue)
	}, nil
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
