package notifytest

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
)

// Apple allows one stream on a new connection, and many once a request has shown a valid
// provider token. The server of net/http cannot change its settings on an open connection,
// so [streamLimiter] sits between it and TLS and edits the SETTINGS frames that pass.

const (
	firstStreams = 1    // before a provider token was verified
	mostStreams  = 1000 // after it, by default

	frameHeader   = 9
	frameSettings = 4
	flagAck       = 1
	maxStreamsID  = 3 // of the setting SETTINGS_MAX_CONCURRENT_STREAMS
	clientPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// limitedListener accepts connections of TLS whose streams are limited at first.
type limitedListener struct {
	net.Listener
	config *tls.Config
	most   uint32 // streams of a connection after its first request
}

func (l limitedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &streamLimiter{Conn: tls.Server(c, l.config), most: l.most}, nil
}

// A streamLimiter is a connection of HTTP/2 as the server sees it, without TLS.
type streamLimiter struct {
	net.Conn // of TLS
	most     uint32

	writing sync.Mutex
	raised  bool
	lowered int    // so often, since the connection began
	out     []byte // the beginning of a frame to the client

	prefaced bool
	acks     int
	in       []byte // what came and is not whole
	ready    []byte // whole frames for the server
}

// bounds tells how often the client's bound of streams was lowered.
func (c *streamLimiter) bounds() int {
	c.writing.Lock()
	defer c.writing.Unlock()
	return c.lowered
}

// allowMany tells the client that it may open many streams now, after a request that came
// when the bound had been lowered so often: what came before it was lowered proves nothing.
func (c *streamLimiter) allowMany(lowered int) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if c.raised || c.lowered != lowered {
		return
	}
	c.raised = true
	c.bound(c.most)
}

// allowOne tells the client that it may only open one stream at a time.
func (c *streamLimiter) allowOne() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.raised = false
	c.lowered++
	c.bound(firstStreams)
}

// bound writes a frame of SETTINGS. Only whole frames went before.
func (c *streamLimiter) bound(streams uint32) {
	frame := []byte{0, 0, 6, frameSettings, 0, 0, 0, 0, 0}
	frame = binary.BigEndian.AppendUint16(frame, maxStreamsID)
	_, _ = c.Conn.Write(binary.BigEndian.AppendUint32(frame, streams))
}

// Write passes whole frames on, and tells the client of one stream where the server's
// first SETTINGS allow more.
func (c *streamLimiter) Write(p []byte) (int, error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.out = append(c.out, p...)
	whole := 0
	for {
		frame := firstFrame(c.out[whole:])
		if frame == nil {
			break
		}
		if frame[3] == frameSettings && frame[4]&flagAck == 0 && !c.raised {
			limitStreams(frame[frameHeader:])
		}
		whole += len(frame)
	}
	if _, err := c.Conn.Write(c.out[:whole]); err != nil {
		return 0, err
	}
	c.out = append(c.out[:0], c.out[whole:]...)
	return len(p), nil
}

func limitStreams(settings []byte) {
	for ; len(settings) >= 6; settings = settings[6:] {
		if binary.BigEndian.Uint16(settings) == maxStreamsID {
			binary.BigEndian.PutUint32(settings[2:], firstStreams)
		}
	}
}

// firstFrame returns the frame that text begins with, or nil if it is not whole.
func firstFrame(text []byte) []byte {
	if len(text) < frameHeader {
		return nil
	}
	size := frameHeader + int(text[0])<<16 + int(text[1])<<8 + int(text[2])
	if len(text) < size {
		return nil
	}
	return text[:size]
}

// Read passes whole frames to the server, without the acknowledgement of settings that it
// has not sent.
func (c *streamLimiter) Read(p []byte) (int, error) {
	for len(c.ready) == 0 {
		buf := make([]byte, 16<<10)
		n, err := c.Conn.Read(buf)
		if n == 0 && err != nil {
			return 0, err
		}
		c.in = append(c.in, buf[:n]...)
		c.sort()
	}
	n := copy(p, c.ready)
	c.ready = c.ready[n:]
	return n, nil
}

func (c *streamLimiter) sort() {
	if !c.prefaced {
		if n := min(len(c.in), len(clientPreface)); !bytes.Equal(c.in[:n], []byte(clientPreface)[:n]) {
			c.ready, c.in = append(c.ready, c.in...), nil // no HTTP/2: the server will say so
			return
		}
		if len(c.in) < len(clientPreface) {
			return
		}
		c.prefaced = true
		c.ready, c.in = append(c.ready, clientPreface...), c.in[len(clientPreface):]
	}
	for {
		frame := firstFrame(c.in)
		if frame == nil {
			return
		}
		ack := frame[3] == frameSettings && frame[4]&flagAck != 0
		if ack {
			c.acks++
		}
		if !ack || c.acks == 1 {
			c.ready = append(c.ready, frame...)
		}
		c.in = c.in[len(frame):]
	}
}
