package notify

import (
	"context"
	"sync"
)

// A gate bounds the requests of a client that are under way to one host. It is needed
// because net/http, told to respect the server's bound of streams, lets requests wait for
// ever once as many of them wait as the server allows streams.
type gate struct {
	mu    sync.Mutex
	hosts map[string]*places // of hosts that somebody sends to
}

// mostRequests is how many streams every server of HTTP/2 should allow (RFC 9113, 5.1.2).
const mostRequests = 100

// places are those of one host.
type places struct {
	taken chan struct{}
	users int // that have a place or wait for one
}

// enter waits for a place. The function that it returns gives it back.
func (g *gate) enter(ctx context.Context, host string) (leave func(), err error) {
	p := g.join(host)
	select {
	case p.taken <- struct{}{}:
		return func() {
			<-p.taken
			g.quit(host, p)
		}, nil
	case <-ctx.Done():
		g.quit(host, p)
		return nil, ctx.Err()
	}
}

func (g *gate) join(host string) *places {
	g.mu.Lock()
	defer g.mu.Unlock()
	p := g.hosts[host]
	if p == nil {
		p = &places{taken: make(chan struct{}, mostRequests)}
		if g.hosts == nil {
			g.hosts = make(map[string]*places)
		}
		g.hosts[host] = p
	}
	p.users++
	return p
}

func (g *gate) quit(host string, p *places) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p.users--; p.users == 0 {
		delete(g.hosts, host)
	}
}
