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
	// URL replaces the scheme and host of the provider, for a relay or a test.
	URL string

	// RootCAs verify the provider's certificate. nil means the system's roots.
	RootCAs *x509.CertPool

	// Proxy is the URL of a proxy for all requests, http://egress.internal:4750 for
	// example. Empty means the environment: HTTPS_PROXY and NO_PROXY.
	Proxy string

	// Dial makes the connections. nil means a [net.Dialer], which for Web Push and
	// webhooks refuses addresses that are not public. A Dial has to do that itself, and
	// without a Proxy it gets the connections to all hosts, whatever the environment says.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Connections bounds the connections to one host. Providers take a burst of new ones
	// for an attack, and one of HTTP/2 carries a hundred requests at once. Defaults to 1;
	// for webhooks, whose endpoints may only know HTTP/1, to 8.
	Connections int

	// IdleConnections bounds the connections to all hosts together on which nothing is under
	// way. When there are so many, they are closed, and made again when they are needed. One on
	// which nothing was under way for 90 seconds, with APNs for an hour, is closed anyway.
	// Defaults to 500.
	IdleConnections int

	// Timeout bounds how long a request waits for a connection, and then for its answer. Defaults to 15 seconds.
	Timeout time.Duration

	// DryRun does everything but the delivery: messages are built and checked, tokens are
	// obtained, and FCM validates each message without delivering it. Nothing is sent to
	// the other providers.
	DryRun bool

	hidden // a Proxy may have a password, and the senders' configurations have keys
}

const (
	defaultTimeout         = 15 * time.Second
	defaultIdleConnections = 500
)

// A pool is the connections of one sender.
type pool struct {
	provider string
	clients  []*client // used in turn
	next     atomic.Uint32
	timeout  time.Duration
}

// A client is one with connections of its own.
type client struct {
	http.Client
	gate gate
}

// A reach says what a sender asks of its connections.
type reach struct {
	onlyHTTP2 bool
	public    bool // addresses come from users: connect to public ones alone
	clients   int  // with connections of their own; 0 means one
	perHost   int  // connections of each client to a host; 0 means one
}

// open checks the wire and returns a pool.
func (w Wire) open(provider string, r reach) (*pool, error) {
	if w.Connections < 0 || w.IdleConnections < 0 || w.Timeout < 0 {
		return nil, fmt.Errorf("notify: %s: Connections %d, IdleConnections %d, Timeout %v: want 0 or more",
			provider, w.Connections, w.IdleConnections, w.Timeout)
	}
	proxy := http.ProxyFromEnvironment
	switch u, err := url.Parse(w.Proxy); {
	case w.Proxy == "" && w.Dial != nil:
		proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	case w.Proxy == "":
	case err != nil || u.Host == "":
		return nil, fmt.Errorf("notify: %s: Proxy: want a URL such as http://egress.internal:4750", provider)
	default:
		proxy = http.ProxyURL(u)
	}
	p := &pool{provider: provider, timeout: cmp.Or(w.Timeout, defaultTimeout)}
	for range cmp.Or(r.clients, 1) {
		p.clients = append(p.clients, w.client(r, proxy))
	}
	return p, nil
}

// client returns a client that does not follow redirects: they would take a message, and
// perhaps a token, to a third party.
func (w Wire) client(r reach, proxy func(*http.Request) (*url.URL, error)) *client {
	anywhere, direct := dialAnywhere(), dialAnywhere()
	if r.public {
		direct = dialPublic()
	}
	if w.Dial != nil {
		anywhere = containedDial(w.Dial)
		direct = anywhere
	}
	proxied := w.transport(r, anywhere)
	proxied.Proxy = proxy
	proxied.OnProxyConnectResponse = func(_ context.Context, _ *url.URL, _ *http.Request, resp *http.Response) error {
		if resp.StatusCode != http.StatusOK {
			return errProxy
		}
		return nil
	}
	out := &outbound{proxy: proxy, direct: w.transport(r, direct), proxied: proxied, public: r.public}
	return &client{Client: http.Client{
		Transport:     out,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (w Wire) transport(r reach, dial dialFunc) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetHTTP1(!r.onlyHTTP2)
	idle := 90 * time.Second
	if r.onlyHTTP2 {
		idle = time.Hour // Apple asks for connections that stay
	}
	t := &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: w.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost:     cmp.Or(r.perHost, 1),
		MaxIdleConnsPerHost: cmp.Or(r.perHost, 1),
		IdleConnTimeout:     idle,
		DisableCompression:  true,
		// Whoever writes endpoints chooses the answers, too. The default is 10 MB.
		MaxResponseHeaderBytes: maxReplyHeader,
		Protocols:              protocols,
		HTTP2: &http.HTTP2Config{
			// Requests beyond what the server allows at once wait. Without it they would
			// open connections beyond MaxConnsPerHost.
			StrictMaxConcurrentRequests: true,
			// A ping finds a connection that died silently.
			SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second, WriteByteTimeout: 10 * time.Second,
		},
	}
	most := max(1, cmp.Or(w.IdleConnections, defaultIdleConnections)/cmp.Or(r.clients, 1))
	t.DialContext = closingIdle(t, most, dial)
	return t
}

// closingIdle closes the idle connections before every so manyth new one: then there are never
// more. MaxIdleConns of [http.Transport] does not do that, since it closes no connection of HTTP/2.
func closingIdle(t *http.Transport, most int, dial dialFunc) dialFunc {
	var made atomic.Int64
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		if made.Add(1)%int64(most) == 0 {
			t.CloseIdleConnections()
		}
		return dial(ctx, network, address)
	}
}

// outbound sends a request to its host, or through a proxy. The two have connections of
// their own, because a proxy may have a private address and a user's endpoint may not.
type outbound struct {
	proxy           func(*http.Request) (*url.URL, error)
	direct, proxied *http.Transport
	public          bool
}

// RoundTrip is that of an [http.RoundTripper].
func (o *outbound) RoundTrip(req *http.Request) (*http.Response, error) {
	proxy, err := o.proxy(req)
	if err != nil {
		return nil, errProxy // its text may hold the proxy's password
	}
	if proxy == nil {
		return o.direct.RoundTrip(req)
	}
	if o.public && !isPublicHost(req.URL.Hostname()) {
		return nil, errPrivate // the proxy resolves and judges only what can be public
	}
	return o.proxied.RoundTrip(req)
}

// CloseIdleConnections is for [http.Client.CloseIdleConnections].
func (o *outbound) CloseIdleConnections() {
	o.direct.CloseIdleConnections()
	o.proxied.CloseIdleConnections()
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
func (p *pool) post(ctx context.Context, address string, header http.Header, body []byte) (reply, *Outcome) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		o := unsendable("the target is not a URL")
		return reply{}, &o
	}
	req.Header = header
	var written atomic.Bool // from then on the provider may have acted on it
	req.GetBody = func() (io.ReadCloser, error) {
		return &trackedBody{Reader: bytes.NewReader(body), written: &written}, nil
	}
	req.Body, _ = req.GetBody() // never fails
	req.ContentLength = int64(len(body))
	r, err := p.do(req)
	if errors.Is(err, errCrowded) {
		return reply{}, &Outcome{Action: Defer, Err: err, After: shareWait}
	}
	if err != nil {
		return reply{}, &Outcome{Action: Retry, Err: err, Reached: written.Load()}
	}
	return r, nil
}

// get fetches what a token is made of.
func (p *pool) get(ctx context.Context, address string, header http.Header) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return reply{}, &connectionError{p.provider, errConnection}
	}
	req.Header = header
	return p.do(req)
}

// do makes a request and reads its answer. Its errors name neither host nor address.
func (p *pool) do(req *http.Request) (reply, error) {
	c := p.clients[int(p.next.Add(1)%uint32(len(p.clients)))]
	turn := c.gate.come(req, p.timeout)
	defer turn.leave()
	var resp *http.Response
	req, err := turn.enter(req)
	if err == nil {
		resp, err = c.Do(req)
	}
	if err != nil {
		return reply{}, &connectionError{p.provider, turn.reason(err)}
	}
	turn.answered()
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil && resp.StatusCode >= 300 {
		text = nil // the status will do
	}
	return reply{status: resp.StatusCode, header: resp.Header, body: text, now: clockNow(req.Context())}, nil
}

func (p *pool) close() {
	for _, c := range p.clients {
		c.CloseIdleConnections()
	}
}

// A trackedBody notes when all of it was read, which is about when it was sent.
type trackedBody struct {
	*bytes.Reader
	written *atomic.Bool
}

func (b *trackedBody) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.Len() == 0 {
		b.written.Store(true)
	}
	return n, err
}

func (*trackedBody) Close() error { return nil }
