package notify

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"

	"github.com/waterclock/waterclock/queue"
)

// WebhookConfig configures [NewWebhook]. Secrets is required.
type WebhookConfig struct {
	// Secrets sign the requests, each with a signature of its own, so that a receiver
	// can change from one to the next. They are written as Standard Webhooks has it: one
	// that the receiver has too as "whsec_" and the base64 of 24 to 64 bytes, the private
	// half of an ed25519 key as "whsk_" and its base64.
	Secrets []string

	// Endpoint is where messages without targets go.
	Endpoint string

	// AllowPrivate also calls addresses of private networks and of this machine, and
	// plain http. Endpoints are often written by users: without it they reach only what
	// everybody can.
	AllowPrivate bool

	Wire // URL replaces the origin of every endpoint
}

// Webhook posts messages to endpoints, signed as Standard Webhooks (standardwebhooks.com)
// has it.
type Webhook struct {
	line     *line
	signers  []signer
	endpoint string
	relay    string
	private  bool
	routes   *routes // by endpoint
}

// NewWebhook returns a sender to endpoints. Close it in the end.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	w := &Webhook{endpoint: cfg.Endpoint, private: cfg.AllowPrivate, routes: newRoutes()}
	for i, text := range cfg.Secrets {
		s, err := parseSecret(text)
		if err != nil {
			return nil, fmt.Errorf("notify: webhook: Secrets[%d]: %w", i, err)
		}
		w.signers = append(w.signers, s)
	}
	if len(w.signers) == 0 {
		return nil, errors.New("notify: webhook: Secrets is empty; want at least one")
	}
	var err error
	if cfg.Endpoint != "" && !w.callable(cfg.Endpoint) {
		return nil, errors.New("notify: webhook: Endpoint: want a https URL")
	}
	if cfg.URL != "" {
		if w.relay, err = cfg.base(""); err != nil {
			return nil, err
		}
	}
	if cfg.Dial == nil && !cfg.AllowPrivate {
		cfg.Dial = (&net.Dialer{Timeout: 10 * time.Second, Control: refusePrivate}).DialContext
	}
	cfg.Connections = cmp.Or(cfg.Connections, 8)
	w.line, err = cfg.open("webhook", false)
	return w, err
}

// callable tells whether an endpoint is one.
func (w *Webhook) callable(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || w.private && u.Scheme == "http")
}

var errPrivate = errors.New("an address of a private network")

// refusePrivate stops a connection to what is not public, after names were resolved.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return err
	}
	ip := at.Addr().Unmap()
	// Carrier-grade NAT and the translations of IPv4 are not the world either.
	for _, inside := range []string{"100.64.0.0/10", "0.0.0.0/8", "192.0.0.0/24", "198.18.0.0/15", "240.0.0.0/4", "64:ff9b::/96", "2002::/16"} {
		if netip.MustParsePrefix(inside).Contains(ip) {
			return errPrivate
		}
	}
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return errPrivate
	}
	return nil
}

// Close closes idle connections.
func (w *Webhook) Close() error { w.line.close(); return nil }

// A webhookBody is what an endpoint gets.
type webhookBody struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"`
	Data      webhookData `json:"data"`
}

type webhookData struct {
	Tenant      string            `json:"tenant,omitempty"`
	User        string            `json:"user,omitempty"`
	Title       string            `json:"title,omitempty"`
	Body        string            `json:"body,omitempty"`
	Data        map[string]string `json:"data,omitempty"`
	Sound       string            `json:"sound,omitempty"`
	Badge       *int              `json:"badge,omitempty"`
	Image       string            `json:"image,omitempty"`
	CollapseKey string            `json:"collapse_key,omitempty"`
	Expires     time.Time         `json:"expires,omitzero"`
}

// Send makes one attempt. The target's token is the endpoint's URL.
func (w *Webhook) Send(ctx context.Context, m Message, to Target) Outcome {
	endpoint := cmp.Or(to.Token, w.endpoint)
	if !w.callable(endpoint) {
		return unsendable("the target is no https URL")
	}
	now := clockNow(ctx)
	if until := w.routes.closed(endpoint, now); !until.IsZero() {
		return Outcome{Action: Defer, Err: errClosed, After: until.Sub(now)}
	}
	info, _ := queue.FromContext(ctx)
	body, err := json.Marshal(webhookBody{cmp.Or(info.Type, "push"), now.UTC(), webhookData{
		info.Tenant, info.User, m.Title, m.Body, m.Data, m.Sound, m.Badge, m.Image, m.CollapseKey, m.Expires,
	}})
	if err != nil {
		return Outcome{Action: Drop, Err: fmt.Errorf("%w: %w", errLocal, err)}
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	w.sign(header, m.ID, now, body)
	address := endpoint
	if u, err := url.Parse(endpoint); err == nil && w.relay != "" {
		address = w.relay + u.RequestURI()
	}
	r, failed := w.line.post(ctx, address, header, body)
	if failed != nil {
		if errors.Is(failed.Err, errPrivate) {
			failed.Action = Drop
		}
		return *failed
	}
	o := classifyWebhook(r)
	if o.Action == Defer {
		o.After = w.routes.close(endpoint, now, o.After).Sub(now)
	}
	return o
}
