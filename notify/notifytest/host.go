package notifytest

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Options are those of all providers. The zero value works.
type Options struct {
	// TCP listens on a port of the loopback. By default the network is in memory.
	TCP bool

	// Streams bounds the requests at once on a connection of HTTP/2. Defaults to 1000.
	// APNs allows one until it has seen a valid provider token.
	Streams int
}

// A Received is a request that arrived.
type Received struct {
	At     time.Time
	Conn   int    // the number of its connection, from 1
	Device string // the token, or the path of the endpoint
	ID     string // of the message, where the protocol has one

	Title, Body  string
	Data         map[string]string
	Sound, Image string
	Badge        *int // nil if the message leaves it alone
	Collapse     string
	Expires      time.Time // the zero time if it never does

	// How the device is to be disturbed, in the provider's own words: of APNs the headers
	// apns-priority, apns-push-type and apns-topic; of Web Push TTL, Urgency and Topic.
	// Of FCM Priority and TTL are Android's, Urgency and Topic are for browsers, and
	// PushType is for Apple's devices.
	Priority, PushType, Urgency, Topic, TTL string

	Header  http.Header    // without what is secret
	Content map[string]any // the body, decrypted; nil if it was not JSON

	ValidateOnly bool // FCM checks the message and delivers nothing

	Status  int    // what was answered; 0 for no answer
	Refused string // what was wrong with the request; empty if nothing

	trusted  bool   // its credentials were right
	tokenFor string // asks for an access token; empty if it is a message
}

// An Answer is one that a provider gives in place of its success. The zero value of
// Status means success.
type Answer struct {
	Status     int
	Body       string
	RetryAfter string        // the header
	Location   string        // the header
	Delay      time.Duration // before the answer
	Hang       bool          // never answer: until the client goes away
	Cut        bool          // break the connection in place of an answer
	GoAway     bool          // answer, then ask the client for a new connection
	OneStream  bool          // answer, and allow one request at once until a later one has succeeded; APNs only
}

// TooMany is a 429 that asks to wait.
func TooMany(wait time.Duration) *Answer {
	return &Answer{Status: http.StatusTooManyRequests, RetryAfter: seconds(wait)}
}

// Unavailable is a 503; it asks to wait if wait is not 0.
func Unavailable(wait time.Duration) *Answer {
	a := &Answer{Status: http.StatusServiceUnavailable}
	if wait > 0 {
		a.RetryAfter = seconds(wait)
	}
	return a
}

// HTML is what a proxy in between says.
func HTML(status int) *Answer {
	return &Answer{Status: status, Body: "<html><body><h1>" + http.StatusText(status) + "</h1></body></html>"}
}

func seconds(d time.Duration) string { return strconv.Itoa(int((d + time.Second - 1) / time.Second)) }

// A Host is what all providers have in common: a server that keeps what it receives.
type Host struct {
	URL     string
	RootCAs *x509.CertPool // verify the host's certificate
	CA      []byte         // the same in PEM
	Dial    func(ctx context.Context, network, address string) (net.Conn, error)

	server   *http.Server
	verify   func(r *http.Request, body []byte) (Received, *Answer)
	success  func(w http.ResponseWriter, got Received)
	served   sync.WaitGroup
	closing  chan struct{}
	closeOne sync.Once

	mu       sync.Mutex
	answer   func(Received) *Answer
	received []Received
	conns    int
	open     int
	mostOpen int
}

type connKey struct{}

type connInfo struct {
	number int
	conn   net.Conn
}

// start serves. onlyHTTP2 refuses clients of HTTP/1, and begins with one stream for each
// connection, as Apple does.
func (h *Host) start(o Options, onlyHTTP2 bool) error {
	cert, err := h.certify()
	if err != nil {
		return fmt.Errorf("notifytest: %w", err)
	}
	mem := newMemory()
	var listener net.Listener = mem
	h.URL, h.Dial = "https://127.0.0.1", mem.dial
	if o.TCP {
		if listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return fmt.Errorf("notifytest: %w", err)
		}
		h.URL, h.Dial = "https://"+listener.Addr().String(), (&net.Dialer{}).DialContext
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	protocols.SetHTTP1(!onlyHTTP2)
	secure := &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
	h.closing = make(chan struct{})
	h.server = &http.Server{
		Handler:   http.HandlerFunc(h.serve),
		TLSConfig: secure,
		Protocols: protocols,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: cmp.Or(o.Streams, mostStreams)},
		ConnState: h.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, connInfo{h.count(), c})
		},
		ErrorLog: log.New(io.Discard, "", 0),
	}
	if !onlyHTTP2 {
		h.served.Go(func() { _ = h.server.ServeTLS(listener, "", "") })
		return nil
	}
	// TLS ends before the server, which sees HTTP/2 alone.
	protocols.SetUnencryptedHTTP2(true)
	secure.NextProtos = []string{"h2"}
	h.served.Go(func() { _ = h.server.Serve(limitedListener{listener, secure, uint32(cmp.Or(o.Streams, mostStreams))}) })
	return nil
}

// certify makes an authority that lives as long as the host, and its certificate.
func (h *Host) certify() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "notifytest"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(365 * 24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"localhost", "stand-in.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, err
	}
	h.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	h.RootCAs = x509.NewCertPool()
	h.RootCAs.AppendCertsFromPEM(h.CA)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}

// Client returns a client for tests that do not use our senders.
func (h *Host) Client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		DialContext: h.Dial, TLSClientConfig: &tls.Config{RootCAs: h.RootCAs}, Protocols: protocols,
	}}
}

// Close ends the provider and all connections to it.
func (h *Host) Close() {
	h.closeOne.Do(func() { close(h.closing) })
	h.server.Close()
	h.served.Wait()
}

// Answer sets what decides about the answers from now on. It is called with each
// request that is right; nil is success.
func (h *Host) Answer(answer func(Received) *Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer = answer
}

// Received returns the requests so far, in the order in which they were answered.
func (h *Host) Received() []Received {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.received)
}

// Refusals returns what was wrong with requests.
func (h *Host) Refusals() (all []string) {
	for _, r := range h.Received() {
		if r.Refused != "" {
			all = append(all, r.Refused)
		}
	}
	return all
}

// Connections returns how many connections were made, and how many there were at once.
func (h *Host) Connections() (made, atOnce int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns, h.mostOpen
}

func (h *Host) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns++
	return h.conns
}

func (h *Host) connState(_ net.Conn, state http.ConnState) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch state {
	case http.StateNew:
		h.open++
		h.mostOpen = max(h.mostOpen, h.open)
	case http.StateClosed, http.StateHijacked:
		h.open--
	}
}

// serve verifies a request, keeps it and answers.
func (h *Host) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 64<<10))
	if err != nil {
		return
	}
	at := time.Now()
	info, _ := r.Context().Value(connKey{}).(connInfo)
	streams, limited := info.conn.(*streamLimiter)
	lowered := 0
	if limited {
		lowered = streams.bounds()
	}
	got, refusal := h.verify(r, body)
	got.Header = r.Header.Clone()
	got.Header.Del("Authorization")
	if got.Content == nil {
		_ = json.Unmarshal(body, &got.Content)
	}
	if got.At.IsZero() {
		got.At = at
	}
	got.Conn = info.number
	answer := refusal
	if refusal == nil {
		answer = h.decide(got)
	}
	if answer == nil {
		answer = &Answer{}
	}
	if answer.Status != 0 {
		got.Status = answer.Status
	} else if !answer.Hang && !answer.Cut {
		got.Status = http.StatusOK
	}
	if got.Device != "" || got.Refused != "" {
		h.keep(got)
	}
	if !h.await(r.Context(), answer) {
		panic(http.ErrAbortHandler)
	}
	if answer.Cut {
		info.conn.Close()
		panic(http.ErrAbortHandler)
	}
	if limited && answer.OneStream {
		streams.allowOne()
	} else if limited && got.trusted {
		streams.allowMany(lowered)
	}
	h.write(w, got, answer)
}

func (h *Host) decide(got Received) *Answer {
	h.mu.Lock()
	answer := h.answer
	h.mu.Unlock()
	if answer == nil || got.Device == "" {
		return nil
	}
	return answer(got)
}

func (h *Host) keep(got Received) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.received = append(h.received, got)
}

// await waits as long as the answer says. It returns false if nobody is there any more.
func (h *Host) await(ctx context.Context, a *Answer) bool {
	if a.Hang {
		select {
		case <-ctx.Done():
		case <-h.closing:
		}
		return false
	}
	if a.Delay == 0 {
		return true
	}
	timer := time.NewTimer(a.Delay)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-h.closing:
		return false
	case <-timer.C:
		return true
	}
}

func (h *Host) write(w http.ResponseWriter, got Received, a *Answer) {
	if a.RetryAfter != "" {
		w.Header().Set("Retry-After", a.RetryAfter)
	}
	if a.Location != "" {
		w.Header().Set("Location", a.Location)
	}
	if a.GoAway {
		w.Header().Set("Connection", "close") // HTTP/2: GOAWAY when all streams have ended
	}
	if a.Status == 0 {
		h.success(w, got)
		return
	}
	w.WriteHeader(a.Status)
	_, _ = io.WriteString(w, a.Body)
}
