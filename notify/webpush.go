package notify

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/mail"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

// WebPushConfig configures [NewWebPush]. Key and Subject are required.
type WebPushConfig struct {
	// Key is the VAPID private key, a secret: PEM, or the 32 bytes in URL-safe base64.
	Key string

	// Subject is how push services can reach you: mailto:you@example.com or a https URL.
	Subject string

	// Padding rounds the length of messages up to a multiple of so many bytes, which
	// hides it. Defaults to 128.
	Padding int

	// AllowPrivate also sends to push services at addresses that are not public. Without
	// it a subscription, which users write, reaches only what everybody can reach.
	AllowPrivate bool

	Wire // URL replaces the origin of every subscription
}

// WebPush sends to browsers: encrypted for the subscription alone (RFC 8291), with a
// signature that says who sends (VAPID, RFC 8292).
type WebPush struct {
	hidden
	pool    *pool
	relay   string // replaces the origins of subscriptions, or ""
	key     *ecdsa.PrivateKey
	public  string
	subject string
	padding int
	dryRun  bool

	mu     sync.Mutex
	tokens map[string]mintedToken // by origin
}

const (
	vapidLife   = 12 * time.Hour // at most 24
	vapidUse    = 6 * time.Hour
	maxOrigins  = 1000
	maxWebPlain = 3993 // bytes of a message that fits the 4096 which push services take
)

// NewWebPush returns a sender to browsers. Close it in the end.
func NewWebPush(cfg WebPushConfig) (*WebPush, error) {
	key, err := parseVAPIDKey(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("notify: webpush: Key: %w", err)
	}
	if err := checkSubject(cfg.Subject); err != nil {
		return nil, err
	}
	point, err := key.PublicKey.Bytes()
	if err != nil {
		return nil, fmt.Errorf("notify: webpush: Key: %w", err)
	}
	relay := ""
	if cfg.URL != "" {
		if relay, err = cfg.base(""); err != nil {
			return nil, err
		}
	}
	if cfg.Padding < 0 || cfg.Padding > maxWebPlain {
		return nil, fmt.Errorf("notify: webpush: Padding %d; 0 to %d", cfg.Padding, maxWebPlain)
	}
	if cfg.Padding == 0 {
		cfg.Padding = 128
	}
	public := !cfg.AllowPrivate && relay == "" // the operator has chosen the relay
	pool, err := cfg.open("webpush", reach{public: public, clients: cfg.Connections})
	if err != nil {
		return nil, err
	}
	return &WebPush{
		pool: pool, relay: relay, key: key, public: b64.EncodeToString(point), subject: cfg.Subject,
		padding: cfg.Padding, dryRun: cfg.DryRun, tokens: make(map[string]mintedToken),
	}, nil
}

func parseVAPIDKey(text string) (*ecdsa.PrivateKey, error) {
	if raw, err := b64.DecodeString(strings.TrimRight(strings.TrimSpace(text), "=")); err == nil && len(raw) == 32 {
		return ecdsa.ParseRawPrivateKey(elliptic.P256(), raw)
	}
	key, err := parseKey([]byte(text))
	if err != nil {
		return nil, errors.New("want PEM, or 32 bytes in URL-safe base64")
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errors.New("want an ECDSA key on P-256")
	}
	return ec, nil
}

// checkSubject refuses what Apple's push service refuses.
func checkSubject(subject string) error {
	u, err := url.Parse(subject)
	good := err == nil
	switch {
	case good && u.Scheme == "mailto":
		address, err := mail.ParseAddress(u.Opaque)
		good = err == nil && address.Address == u.Opaque && !strings.HasSuffix(u.Opaque, "@localhost")
	case good:
		good = u.Scheme == "https" && u.Host != "" && u.Hostname() != "localhost"
	}
	if !good {
		return fmt.Errorf("notify: webpush: Subject %q: want mailto:you@example.com or a https URL, not of localhost", subject)
	}
	return nil
}

// Close closes idle connections.
func (w *WebPush) Close() error { w.pool.close(); return nil }

// Send makes one attempt. The target is a browser's subscription. The browser's service
// worker gets the message in JSON: title, body, data, sound, badge, image, tag,
// click_action, and the fields of the message's own webpush.notification.
func (w *WebPush) Send(ctx context.Context, m Message, to Target) Outcome {
	endpoint, err := url.Parse(to.Token)
	if err != nil || endpoint.Host == "" || endpoint.Scheme != "https" || to.P256dh == "" {
		return unsendable("the target is not a push subscription: want {endpoint, keys: {p256dh, auth}}")
	}
	origin := originOf(endpoint)
	body, err := w.content(m, to)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	header, err := w.header(ctx, m, origin)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	if w.dryRun {
		return Outcome{Action: Done}
	}
	address := to.Token
	if w.relay != "" {
		address = w.relay + endpoint.RequestURI()
	}
	r, failed := w.pool.post(ctx, address, header, body)
	if failed != nil {
		return unreached(failed)
	}
	o := classifyWebPush(r)
	if o.Action == Forget && w.relay != "" {
		o.Doubtful = true // a relay that has lost its way says so of every subscription
	}
	return o
}

// unreached is what to do without an answer from an address that a user wrote: one that
// is not public never becomes right.
func unreached(o *Outcome) Outcome {
	if errors.Is(o.Err, errPrivate) {
		o.Action = Drop
	}
	return *o
}

// originOf is what a VAPID token is made for: in lower case, without the default port.
func originOf(u *url.URL) string {
	host := strings.ToLower(u.Host)
	return strings.ToLower(u.Scheme) + "://" + strings.TrimSuffix(host, ":443")
}

// content is the encrypted message.
func (w *WebPush) content(m Message, to Target) ([]byte, error) {
	seen := fields(map[string]any{
		"title": m.Title, "body": m.Body, "sound": m.Sound, "image": m.Image,
		"tag": cmp.Or(m.Tag, m.CollapseKey), "click_action": m.ClickAction,
	})
	if len(m.Data) > 0 {
		data := make(map[string]any, len(m.Data))
		for name, value := range m.Data {
			data[name] = value
		}
		seen["data"] = data
	}
	if m.Badge != nil {
		seen["badge"] = *m.Badge
	}
	seen = merge(seen, object(m.WebPush, "notification"))
	if data := object(m.WebPush, "data"); data != nil {
		seen = merge(seen, map[string]any{"data": data})
	}
	plain, err := toJSON(seen)
	if err != nil {
		return nil, err
	}
	return encrypt(to, plain, w.padding)
}

// header is what the push service is told, with the message's own headers over it.
func (w *WebPush) header(ctx context.Context, m Message, origin string) (http.Header, error) {
	token, err := w.vapid(ctx, origin)
	if err != nil {
		return nil, err
	}
	header := http.Header{}
	header.Set("TTL", strconv.FormatInt(m.ttl(clockNow(ctx), maxTTL), 10))
	header.Set("Urgency", urgencyOf(m.Priority))
	if m.CollapseKey != "" {
		header.Set("Topic", topicOf(m.CollapseKey))
	}
	for name, value := range object(m.WebPush, "headers") {
		text, _ := value.(string)
		header.Set(name, text)
	}
	// After the message's own: it must not take away who sends and how to decrypt.
	maps.Copy(header, http.Header{
		"Authorization":    {"vapid t=" + token + ", k=" + w.public},
		"Content-Encoding": {"aes128gcm"},
		"Content-Type":     {"application/octet-stream"},
	})
	return header, nil
}

// vapid returns the token for a push service. One is used for hours: signing each time
// would be the larger part of the work.
func (w *WebPush) vapid(ctx context.Context, origin string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := clockNow(ctx)
	if t, ok := w.tokens[origin]; ok && now.Before(t.usable) {
		return t.text, nil
	}
	token, err := signJWT(w.key, "", map[string]any{
		"aud": origin, "exp": now.Add(vapidLife).Unix(), "sub": w.subject,
	})
	if err != nil {
		return "", err
	}
	if len(w.tokens) >= maxOrigins {
		clear(w.tokens) // endpoints come from users: do not let them fill the memory
	}
	w.tokens[origin] = mintedToken{token, now, now.Add(vapidUse)}
	return token, nil
}

// urgencyOf is a priority in the words of RFC 8030.
func urgencyOf(p Priority) string {
	switch p {
	case High:
		return "high"
	case Low:
		return "very-low"
	}
	return "normal"
}

// topicOf is a collapse key as a Topic: 32 characters that every push service takes.
func topicOf(key string) string {
	sum := sha256.Sum256([]byte(key))
	return b64.EncodeToString(sum[:24])
}
