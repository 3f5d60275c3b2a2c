package notify

import (
	"context"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
)

// FCMConfig configures [NewFCM]. ServiceAccount is required.
type FCMConfig struct {
	// ServiceAccount is the JSON file of a service account that may send messages, a
	// secret.
	ServiceAccount []byte

	// Redis shares the access token in the fleet.
	Redis redis.UniversalClient

	Wire
}

// A serviceAccount is what of the file matters.
type serviceAccount struct {
	ProjectID   string `json:"project_id"`
	PrivateKey  string `json:"private_key"`
	KeyID       string `json:"private_key_id"`
	ClientEmail string `json:"client_email"`
	TokenURI    string `json:"token_uri"`
}

const (
	fcmBase   = "https://fcm.googleapis.com"
	fcmScope  = "https://www.googleapis.com/auth/firebase.messaging"
	fcmMargin = 5 * time.Minute // how long before its end an access token is not used
)

// FCM sends through Firebase Cloud Messaging, HTTP v1.
type FCM struct {
	line       *line
	address    string
	credential *credential
}

// NewFCM returns a sender through Firebase Cloud Messaging. Close it in the end.
func NewFCM(cfg FCMConfig) (*FCM, error) {
	var account serviceAccount
	if json.Unmarshal(cfg.ServiceAccount, &account) != nil {
		return nil, errors.New("notify: fcm: ServiceAccount: not the JSON of a service account")
	}
	if account.ProjectID == "" || account.ClientEmail == "" || account.TokenURI == "" {
		return nil, errors.New("notify: fcm: ServiceAccount: project_id, client_email or token_uri is missing")
	}
	key, err := parseKey([]byte(account.PrivateKey))
	if err != nil {
		return nil, fmt.Errorf("notify: fcm: ServiceAccount: private_key: %w", err)
	}
	rsaKey, ok := key.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("notify: fcm: ServiceAccount: private_key: want an RSA key")
	}
	base, err := cfg.base(fcmBase)
	if err != nil {
		return nil, err
	}
	line, err := cfg.open("fcm", false)
	if err != nil {
		return nil, err
	}
	c, err := newCredential(cfg.Redis, "fcm", []byte(account.ClientEmail+" "+account.PrivateKey))
	if err != nil {
		return nil, err
	}
	c.young = time.Minute
	c.mint = func(ctx context.Context) (string, time.Duration, error) {
		return accessToken(ctx, line, account, rsaKey)
	}
	address := base + "/v1/projects/" + url.PathEscape(account.ProjectID) + "/messages:send"
	return &FCM{line: line, address: address, credential: c}, nil
}

// Close closes idle connections.
func (f *FCM) Close() error { f.line.close(); return nil }

// Send makes one attempt. The target's token is the device's registration token.
func (f *FCM) Send(ctx context.Context, m Message, to Target) Outcome {
	if to.Token == "" {
		return unsendable("the message has no target")
	}
	body, err := bounded(fcmMessage(m, to, clockNow(ctx)))
	if err != nil {
		return Outcome{Action: Drop, Err: err}
	}
	token, err := f.credential.get(ctx)
	if err != nil {
		return mintTrouble(err)
	}
	header := http.Header{}
	header.Set("Authorization", "Bearer "+token)
	header.Set("Content-Type", "application/json")
	r, failed := f.line.post(ctx, f.address, header, body)
	if failed != nil {
		failed.After = max(failed.After, fcmErrorWait)
		return *failed
	}
	o := classifyFCM(r)
	var e *ProviderError
	thirdParty := errors.As(o.Err, &e) && e.Code == "THIRD_PARTY_AUTH_ERROR"
	if r.status == http.StatusUnauthorized && !thirdParty && f.credential.refused(ctx, token) {
		o.Action, o.After = Defer, time.Second // with a new one
	}
	return o
}

// fcmMessage is the body of a request: the message, and what each platform is told of it.
func fcmMessage(m Message, to Target, now time.Time) any {
	ttl := strconv.FormatInt(m.ttl(now, maxTTL), 10)
	message := map[string]any{
		"token": to.Token, "android": fcmAndroid(m, ttl), "apns": fcmApple(m), "webpush": fcmWeb(m, ttl),
	}
	if len(m.Data) > 0 {
		message["data"] = m.Data
	}
	if !m.silent() {
		message["notification"] = filled(map[string]string{"title": m.Title, "body": m.Body, "image": m.Image})
	}
	return map[string]any{"message": message}
}

func fcmAndroid(m Message, ttl string) any {
	android := map[string]any{"ttl": ttl + "s", "priority": "NORMAL"}
	shown := map[string]any{}
	if m.Priority == High {
		android["priority"] = "HIGH"
	}
	if m.CollapseKey != "" {
		android["collapse_key"] = collapseID(m.CollapseKey, 64)
		shown["tag"] = android["collapse_key"] // replaces what is shown already
	}
	if m.Sound != "" {
		shown["sound"] = m.Sound
	}
	if m.Badge != nil && *m.Badge > 0 {
		shown["notification_count"] = *m.Badge
	}
	if !m.silent() && len(shown) > 0 {
		android["notification"] = shown
	}
	return android
}

func fcmApple(m Message) any {
	own := apnsHeader(m, Target{})
	headers := filled(map[string]string{
		"apns-priority": own.Get("apns-priority"), "apns-expiration": own.Get("apns-expiration"),
		"apns-collapse-id": own.Get("apns-collapse-id"),
	})
	if m.silent() {
		headers["apns-push-type"] = own.Get("apns-push-type")
	}
	apple := map[string]any{"headers": headers}
	if effects := appleEffects(m); len(effects) > 0 {
		apple["payload"] = map[string]any{"aps": effects} // FCM adds the alert
	}
	if m.Image != "" {
		apple["fcm_options"] = map[string]string{"image": m.Image}
	}
	return apple
}

func fcmWeb(m Message, ttl string) any {
	headers := map[string]string{"TTL": ttl, "Urgency": urgencyOf(m.Priority)}
	if m.CollapseKey != "" {
		headers["Topic"] = topicOf(m.CollapseKey)
	}
	return map[string]any{"headers": headers}
}

// filled leaves out what is empty.
func filled(fields map[string]string) map[string]string {
	maps.DeleteFunc(fields, func(_, value string) bool { return value == "" })
	return fields
}

// accessToken asks Google for an access token, with a signed request of the account.
func accessToken(ctx context.Context, l *line, a serviceAccount, key *rsa.PrivateKey) (string, time.Duration, error) {
	now := clockNow(ctx).Unix()
	assertion, err := signJWT(key, a.KeyID, map[string]any{
		"iss": a.ClientEmail, "scope": fcmScope, "aud": a.TokenURI, "iat": now, "exp": now + 3600,
	})
	if err != nil {
		return "", 0, err
	}
	form := url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {assertion}}
	header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
	r, failed := l.post(ctx, a.TokenURI, header, []byte(form.Encode()))
	if failed != nil {
		return "", 0, fmt.Errorf("asking for an access token: %w", failed.Err)
	}
	return readAccessToken(r)
}

// readAccessToken returns the token in Google's answer, and for how long to use it.
func readAccessToken(r reply) (token string, life time.Duration, err error) {
	var answer struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int64  `json:"expires_in"`
		Error       string `json:"error"`
	}
	err = json.Unmarshal(r.body, &answer)
	if r.status != http.StatusOK || err != nil || answer.AccessToken == "" || answer.ExpiresIn <= 0 {
		return "", 0, &ProviderError{Provider: "google-oauth", Status: r.status, Code: word(answer.Error)}
	}
	life = time.Duration(min(answer.ExpiresIn, 3600)) * time.Second
	return answer.AccessToken, max(life-fcmMargin, life/2), nil
}

// mintTrouble is what to do when there is no access token: an account that Google does
// not know is a wrong configuration, everything else passes.
func mintTrouble(err error) Outcome {
	var e *ProviderError
	if !errors.As(err, &e) {
		return Outcome{Action: Retry, Err: err, After: fcmErrorWait}
	}
	err = fmt.Errorf("asking for an access token: %w", err)
	if e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests {
		return Outcome{Action: Halt, Err: err}
	}
	return Outcome{Action: Pause, Err: err}
}
