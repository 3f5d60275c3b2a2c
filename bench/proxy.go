package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"sync"
	"time"
)

// oneWay is how much later everything arrives, in each direction.
const oneWay = 500 * time.Microsecond

// playProxy is a proxy as a process of its own: its timing must not depend on how busy
// the scenario is. It says its address.
func playProxy(ctx context.Context, r role) error {
	runtime.GOMAXPROCS(64) // sleeping precisely takes a thread
	p, err := startProxy(r.Redis, oneWay)
	if err != nil {
		return err
	}
	defer p.Close()
	fmt.Println(p.Addr)
	<-ctx.Done()
	return nil
}

// A proxy stands between clients and Redis as a network does: everything arrives later,
// in each direction, and nothing is slowed down.
type proxy struct {
	Addr string

	target   string
	delay    time.Duration
	listener net.Listener
	pipes    sync.WaitGroup

	mu   sync.Mutex
	open map[net.Conn]bool
}

func startProxy(target string, delay time.Duration) (*proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting a proxy: %w", err)
	}
	p := &proxy{
		Addr: listener.Addr().String(), target: target, delay: delay,
		listener: listener, open: make(map[net.Conn]bool),
	}
	p.pipes.Go(p.serve)
	return p, nil
}

// Close breaks all connections.
func (p *proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	for conn := range p.open {
		conn.Close()
	}
	p.open = nil
	p.mu.Unlock()
	p.pipes.Wait()
}

func (p *proxy) serve() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil || !p.admit(client, server) {
			client.Close()
			continue
		}
		p.pipes.Go(func() { p.carry(client, server) })
		p.pipes.Go(func() { p.carry(server, client) })
	}
}

// admit notes a pair of connections, or closes it if the proxy was closed meanwhile.
func (p *proxy) admit(client, server net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open == nil {
		server.Close()
		return false
	}
	p.open[client], p.open[server] = true, true
	return true
}

// A parcel is something that was sent, and when it is to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry takes what one side sends to the other, until there is no more.
func (p *proxy) carry(from, to net.Conn) {
	parcels := make(chan parcel, 1024)
	p.pipes.Go(func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				parcels <- parcel{b[:n], time.Now().Add(p.delay)}
			}
			if err != nil {
				return
			}
		}
	})
	var failed error
	for next := range parcels {
		preciseSleep(time.Until(next.due))
		if _, err := to.Write(next.bytes); err != nil && failed == nil {
			failed = errors.Join(err, from.Close()) // so that nobody waits for an answer
		}
	}
	to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, to)
}
