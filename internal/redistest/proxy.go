package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between clients and a server as a bad network does: it can cut all
// connections, refuse new ones, and deliver everything late. What a client sent before
// it hung up still arrives, as it would on a real network.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener

	mu    sync.Mutex
	open  map[net.Conn]bool
	there time.Duration // for what clients send
	back  time.Duration // for what the server sends
	down  bool
}

// StartProxy starts a proxy in front of the address, and ends it with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: listener.Addr().String(), target: target, listener: listener, open: make(map[net.Conn]bool),
	}
	var serving sync.WaitGroup
	serving.Go(p.serve)
	t.Cleanup(func() {
		listener.Close()
		p.Down()
		serving.Wait()
	})
	return p
}

// Cut breaks all connections. New ones are let through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.open {
		conn.Close()
	}
}

// Down breaks all connections and lets no new ones through, until [Proxy.Up].
func (p *Proxy) Down() {
	p.mu.Lock()
	p.down = true
	p.mu.Unlock()
	p.Cut()
}

// Up lets connections through again.
func (p *Proxy) Up() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = false
}

// Delay lets everything that is sent from now on arrive so much later, in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.DelayEach(d, d)
}

// DelayEach is [Proxy.Delay] with a delay of its own for what clients send, and for what
// the server answers.
func (p *Proxy) DelayEach(there, back time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.there, p.back = there, back
}

func (p *Proxy) serve() {
	var pipes sync.WaitGroup
	defer pipes.Wait()
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			client.Close()
			continue
		}
		if !p.admit(client, server) {
			continue
		}
		pipes.Go(func() { p.carry(client, server, &p.there) })
		pipes.Go(func() { p.carry(server, client, &p.back) })
	}
}

// admit notes a new pair of connections, or closes it while the proxy is down.
func (p *Proxy) admit(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range conns {
		if p.down {
			conn.Close()
		} else {
			p.open[conn] = true
		}
	}
	return !p.down
}

// A parcel is something that was sent, and when it is to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry takes what one side sends to the other, after a delay, until there is no more.
func (p *Proxy) carry(from, to net.Conn, delay *time.Duration) {
	parcels := make(chan parcel, 1024)
	go func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				p.mu.Lock()
				due := time.Now().Add(*delay)
				p.mu.Unlock()
				parcels <- parcel{b[:n], due}
			}
			if err != nil {
				return
			}
		}
	}()
	for next := range parcels {
		<-time.After(time.Until(next.due))
		if _, err := to.Write(next.bytes); err != nil {
			from.Close() // and what it has sent already is lost
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	to.Close()
	delete(p.open, to)
}
