package notify

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// A Wire is how a sender reaches its provider. The zero value is right for the real one.
type Wire struct {
	// URL replaces the scheme and host of the provider, for a stand-in or a relay.
	URL string

	// RootCAs are who vouches for the provider. nil means the system's.
	RootCAs *x509.CertPool

	// Dial makes a connection. nil means a [net.Dialer].
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Connections is the most connections to one host at a time. Providers take a burst
	// of new ones for an attack, and one of HTTP/2 carries thousands of messages a second.
	// Defaults to 1; for webhooks, whose endpoints may know nothing but HTTP/1, to 8.
	Connections int

	// Timeout bounds one attempt. Defaults to 15 seconds.
	Timeout time.Duration
}

const (
	defaultTimeout = 15 * time.Second
	maxStreams     = 100 // requests on one connection: what every server of HTTP/2 allows
)

// A line is the connections of one sender: several clients, each with one to a host.
// (A client that may have two opens more than that when many requests come at once.)
type line struct {
	provider string
	clients  []*http.Client
	streams  []chan struct{} // full when a client has all the requests that it may
	next     atomic.Uint32
	timeout  time.Duration
}

// open checks the wire and returns a line.
func (w Wire) open(provider string, onlyHTTP2 bool) (*line, error) {
	if w.Connections < 0 || w.Timeout < 0 {
		return nil, fmt.Errorf("notify: %s: Connections %d, Timeout %v; not negative", provider, w.Connections, w.Timeout)
	}
	l := &line{provider: provider, timeout: cmp.Or(w.Timeout, defaultTimeout)}
	for range cmp.Or(w.Connections, 1) {
		l.clients = append(l.clients, w.client(onlyHTTP2))
		l.streams = append(l.streams, make(chan struct{}, maxStreams))
	}
	return l, nil
}

// client returns a client that has one connection to a host at a time.
func (w Wire) client(onlyHTTP2 bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetHTTP1(!onlyHTTP2)
	dial := w.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	transport := &http.Transport{
		DialContext:         dial,
		TLSClientConfig:     &tls.Config{RootCAs: w.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: 10 * time.Second,
		MaxConnsPerHost:     1,
		MaxIdleConnsPerHost: 1,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		Protocols:           protocols,
		// A connection that died without a word is found out by a ping.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 10 * time.Second},
	}
	if w.Dial == nil {
		transport.Proxy = http.ProxyFromEnvironment
	}
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// base is the URL to use in place of the provider's own.
func (w Wire) base(own string) (string, error) {
	text := strings.TrimSuffix(cmp.Or(w.URL, own), "/")
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
		return "", errors.New("notify: URL: want one such as https://relay.example")
	}
	return text, nil
}

// post makes the one request of an attempt. The outcome is set if there was no answer.
//
// The connection may send it again if the provider said that it has not looked at it (a
// GOAWAY that arrives at the wrong moment); that is no second attempt.
func (l *line) post(ctx context.Context, address string, header http.Header, body []byte) (reply, *Outcome) {
	ctx, cancel := context.WithTimeout(ctx, l.timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		o := unsendable("the target is no address")
		return reply{}, &o
	}
	req.Header = header
	var written atomic.Bool // by then the provider may have acted on it
	req.Body = &notingBody{Reader: bytes.NewReader(body), done: &written}
	req.GetBody = func() (io.ReadCloser, error) {
		return &notingBody{Reader: bytes.NewReader(body), done: &written}, nil
	}
	client, free, err := l.take(ctx)
	if err != nil {
		return reply{}, &Outcome{Action: Retry, Err: l.trouble(err)}
	}
	defer free()
	resp, err := client.Do(req)
	if err != nil {
		o := Outcome{Action: Retry, Err: l.trouble(err), Reached: written.Load()}
		return reply{}, &o
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil && resp.StatusCode >= 300 {
		text = nil // the status will do
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: text, now: clockNow(ctx)}, nil
}

// trouble is an error of the connection without the address that was called: that of a
// device is a secret.
func (l *line) trouble(err error) error {
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("notify: reaching %s: %w", l.provider, err)
}

// take returns the client whose turn it is, when it has room for a request.
func (l *line) take(ctx context.Context) (client *http.Client, free func(), err error) {
	i := int(l.next.Add(1)) % len(l.clients)
	select {
	case l.streams[i] <- struct{}{}:
		return l.clients[i], func() { <-l.streams[i] }, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}

func (l *line) close() {
	for _, c := range l.clients {
		c.CloseIdleConnections()
	}
}

// A notingBody notes when all of it was read, which is about when it was sent.
type notingBody struct {
	*bytes.Reader
	done *atomic.Bool
}

func (b *notingBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Len() == 0 {
		b.done.Store(true)
	}
	return n, err
}

func (*notingBody) Close() error { return nil }
