package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
)

// WebhookConfig configures [NewWebhook]. Each request is signed: with Keys, and with the
// secrets of its endpoint.
type WebhookConfig struct {
	// Keys sign the requests to all endpoints: the private halves of ed25519 keys, "whsk_"
	// and base64. Receivers know the public half and can sign nothing with it. With two
	// keys a request has two signatures, so that receivers can change to the next one.
	Keys []string

	// Secrets returns the secrets of an endpoint, "whsec_" and the base64 of 24 to 64
	// bytes, beside that of the target. A receiver can sign with its own secret, so each
	// endpoint needs another. nil means that of the target alone.
	Secrets func(ctx context.Context, to Target) ([]string, error)

	// Endpoint is where messages without targets go, and EndpointSecrets are its secrets.
	Endpoint        string
	EndpointSecrets []string

	// Delays are the waits between the attempts of a message. When they are used up the
	// message is dead. nil means those that Standard Webhooks suggests: 5 s, 5 min,
	// 30 min, 2, 5, 10, 14, 20 and 24 h, about three days.
	Delays []time.Duration

	// Redis remembers since when an endpoint fails. One where nothing has succeeded while
	// a message used up its delays is disabled: the app is told through
	// HandlerConfig.Forget, and messages to it are dead at once, until a target says that
	// it was registered later. nil disables no endpoint.
	Redis redis.UniversalClient

	// AllowPrivate also calls addresses that are not public, and plain http. Without it
	// an endpoint, which users write, reaches only what everybody can reach.
	AllowPrivate bool

	Wire // URL replaces the origin of every endpoint
}

// Webhook posts messages to endpoints, signed as Standard Webhooks (standardwebhooks.com)
// has it.
type Webhook struct {
	hidden
	pool     *pool
	keys     []signer
	own      []signer // of the configured endpoint
	secrets  func(ctx context.Context, to Target) ([]string, error)
	endpoint string
	relay    string
	private  bool
	dryRun   bool
	delays   []time.Duration
	health   endpoints
	routes   *routes // by endpoint
}

// NewWebhook returns a sender to endpoints. Close it in the end.
func NewWebhook(cfg WebhookConfig) (w *Webhook, err error) {
	w = &Webhook{
		secrets: cfg.Secrets, endpoint: cfg.Endpoint, private: cfg.AllowPrivate, dryRun: cfg.DryRun,
		delays: cfg.Delays, health: endpoints{cfg.Redis}, routes: newRoutes(),
	}
	if w.delays == nil {
		w.delays = webhookDelays()
	}
	if w.keys, err = parseSecrets("Keys", cfg.Keys, asymmetric); err != nil {
		return nil, err
	}
	if w.own, err = parseSecrets("EndpointSecrets", cfg.EndpointSecrets, symmetric|asymmetric); err != nil {
		return nil, err
	}
	switch {
	case cfg.Endpoint != "" && !w.callable(cfg.Endpoint):
		return nil, errors.New("notify: webhook: Endpoint: want a https URL")
	case cfg.Endpoint != "" && len(w.keys)+len(w.own) == 0:
		return nil, errors.New("notify: webhook: Endpoint: its requests need EndpointSecrets or Keys (worker --secret-file: whsec_… or whsk_…)")
	case cfg.Endpoint == "" && len(w.own) > 0:
		return nil, errors.New("notify: webhook: EndpointSecrets without Endpoint: a secret belongs to one endpoint; want Keys for all")
	}
	if cfg.URL != "" {
		if w.relay, err = cfg.base(""); err != nil {
			return nil, err
		}
	}
	public := !cfg.AllowPrivate && w.relay == "" // the operator has chosen the relay
	w.pool, err = cfg.open("webhook", reach{public: public, perHost: cmp.Or(cfg.Connections, 8)})
	return w, err
}

// callable tells whether an endpoint is a URL that may be called.
func (w *Webhook) callable(endpoint string) bool {
	u, err := url.Parse(endpoint)
	return err == nil && u.Host != "" && u.User == nil && (u.Scheme == "https" || w.private && u.Scheme == "http")
}

// Close closes idle connections.
func (w *Webhook) Close() error { w.pool.close(); return nil }

// Send makes one attempt. The target's token is the endpoint's URL.
func (w *Webhook) Send(ctx context.Context, m Message, to Target) Outcome {
	endpoint := cmp.Or(to.Token, w.endpoint)
	if !w.callable(endpoint) || to.P256dh != "" {
		return unsendable("the target is not a https URL of a webhook")
	}
	now := clockNow(ctx)
	if until := w.routes.closed(endpoint, now); !until.IsZero() {
		return Outcome{Action: Defer, Err: errClosed, After: until.Sub(now)}
	}
	signers, err := w.signersOf(ctx, to)
	if errors.Is(err, errLookup) {
		return Outcome{Action: Retry, Err: err}
	}
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	state, err := w.health.read(ctx, to)
	if err != nil {
		return Outcome{Action: Defer, Err: err, After: tokenWait}
	}
	if state.disabledFor(to) {
		return Outcome{Action: Drop, Err: errDisabled}
	}
	info, _ := queue.FromContext(ctx)
	body, err := toJSON(webhookContent(m, info, now))
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	if w.dryRun {
		return Outcome{Action: Done}
	}
	header := http.Header{}
	header.Set("Content-Type", "application/json")
	sign(header, signers, signedRequest{m.ID, now, body})
	address := endpoint
	if u, err := url.Parse(endpoint); err == nil && w.relay != "" {
		address = w.relay + u.RequestURI()
	}
	o := w.post(ctx, address, header, body)
	if errors.Is(o.Err, errCrowded) {
		return o
	}
	if o.Action == Defer {
		w.routes.close(endpoint, now, o.After)
	}
	return w.consequence(ctx, o, webhookAttempt{to, attemptFrom(ctx), state})
}

func (w *Webhook) post(ctx context.Context, address string, header http.Header, body []byte) Outcome {
	r, failed := w.pool.post(ctx, address, header, body)
	if failed != nil {
		return unreached(failed)
	}
	return classifyWebhook(r)
}

var errLookup = errors.New("notify: webhook: looking up the secrets of an endpoint")

// signersOf returns what signs the requests to a target.
func (w *Webhook) signersOf(ctx context.Context, to Target) ([]signer, error) {
	if to.Token == "" {
		return slices.Concat(w.keys, w.own), nil
	}
	secrets := strings.Fields(to.Secret)
	if w.secrets != nil {
		var more []string
		err := contain("WebhookConfig.Secrets", func() (err error) {
			more, err = w.secrets(ctx, to)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("%w: %w", errLookup, err)
		}
		secrets = append(secrets, more...)
	}
	own, err := parseSecrets("the target's secret", secrets, symmetric|asymmetric)
	if err == nil && len(own)+len(w.keys) == 0 {
		err = fmt.Errorf("%w: the endpoint has no secret: want one in the target, or Keys", errLocal)
	}
	return slices.Concat(w.keys, own), err
}

// A webhookBody is what an endpoint gets.
type webhookBody struct {
	Type      string      `json:"type"`
	Timestamp time.Time   `json:"timestamp"` // of the event: the same in every attempt
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
	ClickAction string            `json:"click_action,omitempty"`
	Expires     time.Time         `json:"expires,omitzero"`
}

func webhookContent(m Message, info queue.Info, now time.Time) webhookBody {
	at := info.Offered
	if at.IsZero() {
		at = now
	}
	return webhookBody{cmp.Or(info.Type, "push"), at.UTC(), webhookData{
		info.Tenant, info.User, m.Title, m.Body, m.Data, m.Sound, m.Badge, m.Image, m.CollapseKey, m.ClickAction, m.Expires,
	}}
}
