package notify

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// APNsConfig configures [NewAPNs]. Key, KeyID, TeamID and Topic are required.
type APNsConfig struct {
	Key    []byte // the .p8 file with the private key, a secret
	KeyID  string
	TeamID string
	Topic  string // the app's bundle ID

	// Sandbox sends to the apps that developers run. Its device tokens are others.
	Sandbox bool

	// Redis shares the provider token in the fleet: required when more than one process
	// uses the key, since Apple refuses a second token within twenty minutes.
	Redis redis.UniversalClient

	Wire
}

const (
	apnsProduction = "https://api.push.apple.com"
	apnsSandbox    = "https://api.sandbox.push.apple.com"
	apnsTokenLife  = 45 * time.Minute // Apple: renew after 20 minutes, before 60
	maxPayload     = 4096             // bytes: Apple's bound, FCM's, and that of the push services
	maxTTL         = 28 * 24 * time.Hour
)

// APNs sends to Apple's devices, over HTTP/2, with a provider token.
type APNs struct {
	line       *line
	base       string
	topic      string
	credential *credential
}

// NewAPNs returns a sender to Apple's devices. Close it in the end.
func NewAPNs(cfg APNsConfig) (*APNs, error) {
	key, err := parseKey(cfg.Key)
	if err != nil {
		return nil, fmt.Errorf("notify: apns: Key: %w", err)
	}
	ec, ok := key.(*ecdsa.PrivateKey)
	if !ok || ec.Curve != elliptic.P256() {
		return nil, errors.New("notify: apns: Key: want an ECDSA key on P-256, as in Apple's .p8 files")
	}
	if cfg.KeyID == "" || cfg.TeamID == "" || cfg.Topic == "" {
		return nil, errors.New("notify: apns: KeyID, TeamID and Topic are required")
	}
	own := apnsProduction
	if cfg.Sandbox {
		own = apnsSandbox
	}
	base, err := cfg.base(own)
	if err != nil {
		return nil, err
	}
	line, err := cfg.open("apns", true)
	if err != nil {
		return nil, err
	}
	c, err := newCredential(cfg.Redis, "apns", append([]byte(cfg.TeamID+" "+cfg.KeyID+" "), cfg.Key...))
	if err != nil {
		return nil, err
	}
	c.young = apnsTokenWait
	c.mint = func(ctx context.Context) (string, time.Duration, error) {
		claims := map[string]any{"iss": cfg.TeamID, "iat": clockNow(ctx).Unix()}
		token, err := signJWT(ec, cfg.KeyID, claims)
		return token, apnsTokenLife, err
	}
	return &APNs{line: line, base: base, topic: cfg.Topic, credential: c}, nil
}

// Close closes idle connections.
func (a *APNs) Close() error { a.line.close(); return nil }

// Send makes one attempt. The target's token is the device's, in hexadecimal.
func (a *APNs) Send(ctx context.Context, m Message, to Target) Outcome {
	if to.Token == "" {
		return unsendable("the message has no target")
	}
	payload, err := apnsPayload(m)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	token, err := a.credential.get(ctx)
	if err != nil {
		return Outcome{Action: Retry, Err: err}
	}
	header := apnsHeader(m, to)
	header.Set("authorization", "bearer "+token)
	header.Set("apns-topic", a.topic)
	r, failed := a.line.post(ctx, a.base+"/3/device/"+url.PathEscape(to.Token), header, payload)
	if failed != nil {
		return *failed
	}
	o := classifyAPNs(r)
	var e *ProviderError
	if errors.As(o.Err, &e) && e.Code == "ExpiredProviderToken" && a.credential.refused(ctx, token) {
		o.Action, o.After = Defer, time.Second // with a new one
	}
	return o
}

// apnsHeader is what Apple is told about the message.
func apnsHeader(m Message, to Target) http.Header {
	h := http.Header{}
	h.Set("content-type", "application/json")
	h.Set("apns-id", uuidOf(m.ID, to.Token))
	h.Set("apns-push-type", "alert")
	h.Set("apns-priority", map[Priority]string{High: "10", Low: "1"}[m.Priority])
	if h.Get("apns-priority") == "" {
		h.Set("apns-priority", "5")
	}
	if m.silent() && m.Badge == nil {
		h.Set("apns-push-type", "background")
		h.Set("apns-priority", "5") // no other is allowed
	}
	if !m.Expires.IsZero() {
		h.Set("apns-expiration", strconv.FormatInt(m.Expires.Unix(), 10))
	}
	if m.CollapseKey != "" {
		h.Set("apns-collapse-id", collapseID(m.CollapseKey, 64))
	}
	return h
}

// apnsPayload is the message as the device gets it: the data beside Apple's own field.
func apnsPayload(m Message) ([]byte, error) {
	aps := appleEffects(m)
	if !m.silent() {
		aps["alert"] = map[string]string{"title": m.Title, "body": m.Body}
	}
	payload := map[string]any{"aps": aps}
	if m.Image != "" {
		payload["image"] = m.Image
	}
	for name, value := range m.Data {
		if _, taken := payload[name]; taken {
			return nil, fmt.Errorf("%w: data may not have a field %q: the payload for Apple has one already", errLocal, name)
		}
		payload[name] = value
	}
	return bounded(payload)
}

// appleEffects is what a device of Apple's does with a message beside showing its text.
func appleEffects(m Message) map[string]any {
	aps := map[string]any{}
	if m.Sound != "" {
		aps["sound"] = m.Sound
	}
	if m.Badge != nil {
		aps["badge"] = *m.Badge
	}
	if m.Image != "" {
		aps["mutable-content"] = 1 // the app's extension may fetch it
	}
	if m.silent() && len(m.Data) > 0 {
		aps["content-available"] = 1 // wakes the app
	}
	return aps
}

// bounded is the JSON of a payload, if providers take that much.
func bounded(payload any) ([]byte, error) {
	text, err := json.Marshal(payload)
	if err == nil && len(text) > maxPayload {
		err = fmt.Errorf("%w: the message has %d bytes; at most %d", errLocal, len(text), maxPayload)
	}
	return text, err
}

// uuidOf names an attempt's message on its device: the same in every attempt.
func uuidOf(id, token string) string {
	sum := sha256.Sum256([]byte(id + "\x00" + token))
	sum[6], sum[8] = sum[6]&0x0f|0x80, sum[8]&0x3f|0x80 // version 8, of one's own making
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// collapseID is a collapse key in at most so many bytes, and without what a header
// cannot carry.
func collapseID(key string, most int) string {
	fits := len(key) <= most
	for _, c := range []byte(key) {
		fits = fits && c > ' ' && c < 0x7f
	}
	if fits {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return b64.EncodeToString(sum[:24])
}
