package notify

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// APNsConfig configures [NewAPNs]. Key, KeyID, TeamID and Topic are required.
type APNsConfig struct {
	Key    []byte // the .p8 file with the private key, a secret
	KeyID  string
	TeamID string

	// Topic is the app's bundle ID: of targets that name no App.
	Topic string

	// Topics are further apps of the team. A target chooses one as its App.
	Topics []string

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
	maxTTL         = 28 * 24 * time.Hour
)

// APNs sends to Apple's devices, over HTTP/2, with a provider token.
type APNs struct {
	hidden
	pool       *pool
	base       string
	topics     []string // the first is that of targets without an app
	credential *credential
	dryRun     bool
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
	pool, err := cfg.open("apns", reach{onlyHTTP2: true, clients: cfg.Connections})
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(ec) // of the parsed key: two copies of the file may differ in a line break
	if err != nil {
		return nil, fmt.Errorf("notify: apns: Key: %w", err)
	}
	a := &APNs{pool: pool, base: base, topics: append([]string{cfg.Topic}, cfg.Topics...), dryRun: cfg.DryRun}
	a.credential = newCredential(func(ctx context.Context) (string, time.Duration, error) {
		claims := map[string]any{"iss": cfg.TeamID, "iat": clockNow(ctx).Unix()}
		token, err := signJWT(ec, cfg.KeyID, claims)
		return token, apnsTokenLife, err
	}, pool.timeout)
	a.credential.young = apnsTokenWait
	return a, a.credential.share(cfg.Redis, "apns", append([]byte(cfg.TeamID+" "+cfg.KeyID+" "), der...))
}

// Close closes idle connections.
func (a *APNs) Close() error { a.pool.close(); return nil }

// Send makes one attempt. The target's token is the device's, in hexadecimal.
func (a *APNs) Send(ctx context.Context, m Message, to Target) Outcome {
	if to.Token == "" {
		return unsendable("the message has no target")
	}
	if _, err := hex.DecodeString(to.Token); err != nil || to.P256dh != "" {
		return unsendable("the target is not a device token of APNs: want hexadecimal digits")
	}
	header, err := a.header(m, to)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	payload, err := apnsPayload(m)
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	return a.request(ctx, to.Token, header, payload)
}

func (a *APNs) request(ctx context.Context, device string, header http.Header, payload []byte) Outcome {
	token, err := a.credential.get(ctx)
	if err != nil {
		return Outcome{Action: Defer, Err: err, After: tokenWait}
	}
	if a.dryRun {
		return Outcome{Action: Done}
	}
	header.Set("authorization", "bearer "+token)
	r, failed := a.pool.post(ctx, a.base+"/3/device/"+device, header, payload)
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

// Check tells whether Apple accepts the key, for each topic: it sends to a device that
// does not exist, which Apple says only to those whose key is right. It returns a
// [ProviderError] if Apple refuses the key or a topic.
func (a *APNs) Check(ctx context.Context) error {
	for _, topic := range a.topics {
		header, err := a.header(Message{Title: "check"}, Target{App: topic})
		if err != nil {
			return err
		}
		o := a.request(ctx, strings.Repeat("f", 64), header, []byte(`{"aps":{"alert":"check"}}`))
		var e *ProviderError
		unknown := errors.As(o.Err, &e) && (e.Code == "BadDeviceToken" || e.Code == "Unregistered" || e.Code == "DeviceTokenNotForTopic")
		if o.Action != Done && !unknown {
			return fmt.Errorf("notify: apns: checking the key for %s: %w", topic, o.Err)
		}
	}
	return nil
}

// header is what Apple is told about the message, with the message's own headers over it.
func (a *APNs) header(m Message, to Target) (http.Header, error) {
	h := apnsHeader(m, to)
	h.Set("apns-topic", withSuffix(cmp.Or(to.App, a.topics[0]), topicSuffix(h.Get("apns-push-type"))))
	for name, value := range object(m.APNs, "headers") {
		text, _ := value.(string)
		if !strings.HasPrefix(strings.ToLower(name), "apns-") {
			return nil, fmt.Errorf("%w: apns.headers: %q is not one of Apple's, which begin with apns-", errLocal, name)
		}
		h.Set(name, text)
	}
	topic := h.Get("apns-topic")
	app := strings.TrimSuffix(topic, topicSuffix(h.Get("apns-push-type")))
	if !slices.Contains(a.topics, topic) && !slices.Contains(a.topics, app) {
		return nil, fmt.Errorf("%w: the topic %q is not one of this sender's", errLocal, topic)
	}
	return h, nil
}

// topicSuffix is what follows the app's bundle ID in the topic of messages of a push type. The
// topic of alerts and background updates is the bundle ID.
// https://developer.apple.com/documentation/usernotifications/sending-notification-requests-to-apns
func topicSuffix(pushType string) string {
	switch pushType {
	case "complication", "voip":
		return "." + pushType
	case "controls", "liveactivity", "widgets":
		return ".push-type." + pushType
	case "fileprovider":
		return ".pushkit.fileprovider"
	case "location":
		return ".location-query"
	case "pushtotalk":
		return ".voip-ptt"
	}
	return ""
}

func withSuffix(topic, suffix string) string { return strings.TrimSuffix(topic, suffix) + suffix }

// apnsHeader is what Apple is told about the message, but for the topic.
func apnsHeader(m Message, to Target) http.Header {
	h := http.Header{}
	h.Set("content-type", "application/json")
	h.Set("apns-id", uuidOf(m.ID, to.Token))
	h.Set("apns-push-type", pushType(m))
	h.Set("apns-priority", "5")
	switch m.Priority {
	case High:
		h.Set("apns-priority", "10")
	case Low:
		h.Set("apns-priority", "1")
	}
	if pushType(m) == background {
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

const background = "background"

// pushType is the message's own apns-push-type, or the one that its content has.
func pushType(m Message) string {
	for name, value := range object(m.APNs, "headers") {
		if own, _ := value.(string); strings.EqualFold(name, "apns-push-type") && own != "" {
			return own
		}
	}
	if m.silent() && m.Badge == nil {
		return background
	}
	return "alert"
}

// apnsPayload is the message as the device gets it: the data beside Apple's own field.
func apnsPayload(m Message) ([]byte, error) {
	aps := appleEffects(m)
	if !m.silent() {
		aps["alert"] = map[string]any{"title": m.Title, "body": m.Body}
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
	return bounded(merge(payload, object(m.APNs, "payload")))
}

// appleEffects is what a device of Apple's does with a message beside showing its text.
func appleEffects(m Message) map[string]any {
	aps := fields(map[string]any{
		"sound": m.Sound, "category": m.Category, "thread-id": m.ThreadID, "interruption-level": m.InterruptionLevel,
	})
	if m.Badge != nil {
		aps["badge"] = *m.Badge
	}
	if m.Image != "" {
		aps["mutable-content"] = 1 // the app's extension may fetch it
	}
	if kind := pushType(m); m.silent() && len(m.Data) > 0 && (kind == "alert" || kind == background) {
		aps["content-available"] = 1 // wakes the app
	}
	return aps
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
