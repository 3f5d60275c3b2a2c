package redistest

import (
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between clients and a server as a bad network does: it can cut all
// connections, also in the middle of a message, refuse new ones, deliver everything late, hold one
// direction up, and let connections die without a word. What a client sent before it hung up still arrives, as it would on a
// real network.
type Proxy struct {
	Addr string

	target   string
	listener net.Listener

	mu    sync.Mutex
	links map[*link]bool
	there way // for what clients send
	back  way // for what the server sends
	down  bool
}

// A way is one direction.
type way struct {
	delay time.Duration
	held  chan struct{} // closed when what was sent goes on; nil while nothing is held
}

// A link is one direction of one connection.
type link struct {
	way      *way
	from, to net.Conn
	left     int // the connection breaks when so many bytes more have arrived; below 0 it does not
	silent   bool
}

// StartProxy starts a proxy in front of the address, and ends it with the test.
func StartProxy(t testing.TB, target string) *Proxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{
		Addr: listener.Addr().String(), target: target, listener: listener, links: make(map[*link]bool),
	}
	var serving sync.WaitGroup
	serving.Go(p.serve)
	t.Cleanup(func() {
		listener.Close()
		p.Down()
		p.Release()
		serving.Wait()
	})
	return p
}

// Cut breaks all connections. New ones are let through.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.cut()
	}
}

// CutAfter breaks each connection when so many bytes more have arrived by it, of what its client
// sends or of what the server sends; a number below 0 is for never.
func (p *Proxy) CutAfter(there, back int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.left = back; l.way == &p.there {
			l.left = there
		}
	}
}

// Silence lets nothing arrive any more by the connections that there are, of what their clients
// send, or of what the server sends; neither side is told. New ones are let through. So it is
// where something on the way forgets its connections.
func (p *Proxy) Silence(there, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.silent = l.silent || there && l.way == &p.there || back && l.way == &p.back
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
	p.there.delay, p.back.delay = there, back
}

// Hold lets nothing arrive until [Proxy.Release], of what clients send, or of what the server
// sends. Then everything does.
func (p *Proxy) Hold(there, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if there && p.there.held == nil {
		p.there.held = make(chan struct{})
	}
	if back && p.back.held == nil {
		p.back.held = make(chan struct{})
	}
}

// Release lets everything that was held arrive.
func (p *Proxy) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range []*way{&p.there, &p.back} {
		if w.held != nil {
			close(w.held)
			w.held = nil
		}
	}
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
		links := []*link{{way: &p.there, from: client, to: server, left: -1}, {way: &p.back, from: server, to: client, left: -1}}
		if !p.admit(links) {
			continue
		}
		for _, l := range links {
			pipes.Go(func() { p.carry(l) })
		}
	}
}

// admit notes a new connection, or closes it while the proxy is down.
func (p *Proxy) admit(links []*link) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range links {
		if p.down {
			l.cut()
		} else {
			p.links[l] = true
		}
	}
	return !p.down
}

func (l *link) cut() {
	l.from.Close()
	l.to.Close()
}

// A parcel is something that was sent, and when it is to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// carry takes what one side sends to the other, after a delay, until there is no more.
func (p *Proxy) carry(l *link) {
	parcels := make(chan parcel, 1024)
	go func() {
		defer close(parcels)
		for {
			b := make([]byte, 16<<10)
			n, err := l.from.Read(b)
			if n > 0 {
				p.mu.Lock()
				due := time.Now().Add(l.way.delay)
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
		part, breaks := p.pass(l, next.bytes)
		if _, err := l.to.Write(part); err != nil || breaks {
			l.cut() // and what was sent already is lost
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	l.to.Close()
	delete(p.links, l)
}

// pass waits while the way is held, and returns what arrives. It reports whether the connection
// breaks after that.
func (p *Proxy) pass(l *link, bytes []byte) (part []byte, breaks bool) {
	for {
		p.mu.Lock()
		held := l.way.held
		if held == nil {
			break
		}
		p.mu.Unlock()
		<-held
	}
	defer p.mu.Unlock()
	if l.silent {
		return nil, false
	}
	if l.left < 0 {
		return bytes, false
	}
	part = bytes[:min(len(bytes), l.left)]
	l.left -= len(part)
	return part, l.left == 0
}
