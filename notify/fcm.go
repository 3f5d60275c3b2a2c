package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// FCMConfig configures [NewFCM]. On Google's machines Project is enough.
type FCMConfig struct {
	// Project is the ID of the Firebase project. Defaults to that of a service account.
	Project string

	// Credentials is one of Google's JSON files: of a service account (a secret), of
	// workload identity federation, or of a user. Empty asks the metadata server of the
	// machine, as on Compute Engine, GKE and Cloud Run.
	Credentials []byte

	// Token replaces Credentials: it returns an access token for the scope
	// https://www.googleapis.com/auth/firebase.messaging and when that ends. It is called
	// some minutes before the end of the last one.
	Token func(ctx context.Context) (token string, expires time.Time, err error)

	// Redis shares the access token of a service account or user in the fleet.
	Redis redis.UniversalClient

	Wire
}

const fcmBase = "https://fcm.googleapis.com"

// FCM sends through Firebase Cloud Messaging, HTTP v1.
type FCM struct {
	hidden
	pool       *pool
	address    string
	credential *credential
	payer      string // the project that pays for a user's requests, or ""
	dryRun     bool
}

// NewFCM returns a sender through Firebase Cloud Messaging. Close it in the end.
func NewFCM(cfg FCMConfig) (*FCM, error) {
	base, err := cfg.base(fcmBase)
	if err != nil {
		return nil, err
	}
	if strings.HasPrefix(base, "http://") {
		return nil, errors.New("notify: fcm: URL: want https: requests carry an access token")
	}
	pool, err := cfg.open("fcm", reach{clients: cfg.Connections})
	if err != nil {
		return nil, err
	}
	source, project, err := cfg.source(pool)
	if err != nil {
		return nil, fmt.Errorf("notify: fcm: Credentials: %w", err)
	}
	if project == "" {
		return nil, errors.New("notify: fcm: Project is required (worker --fcm-project): only a service account's file names it")
	}
	f := &FCM{
		pool: pool, dryRun: cfg.DryRun, credential: newCredential(source.mint, pool.timeout),
		address: base + "/v1/projects/" + url.PathEscape(project) + "/messages:send",
	}
	if source.user {
		f.payer = project
	}
	f.credential.young = time.Minute
	if len(source.secret) > 0 {
		err = f.credential.share(cfg.Redis, "fcm", source.secret)
	}
	return f, err
}

// source returns where access tokens come from, and the project's ID.
func (cfg FCMConfig) source(p *pool) (s googleSource, project string, err error) {
	switch {
	case cfg.Token != nil:
		return googleSource{mint: func(ctx context.Context) (string, time.Duration, error) {
			var token string
			var expires time.Time
			err := contain("FCMConfig.Token", func() (err error) {
				token, expires, err = cfg.Token(ctx)
				return err
			})
			if err == nil && token == "" {
				err = errors.New("notify: fcm: Token returned an empty token")
			}
			return token, usableFor(expires.Sub(clockNow(ctx))), err
		}}, cfg.Project, nil
	case len(cfg.Credentials) == 0:
		return metadataSource(p.timeout), cfg.Project, nil
	}
	file, err := readGoogleFile(cfg.Credentials)
	if err != nil {
		return s, "", err
	}
	s, err = file.source(p)
	return s, cmp.Or(cfg.Project, file.ProjectID), err
}

// Close closes idle connections.
func (f *FCM) Close() error { f.pool.close(); return nil }

// Send makes one attempt. The target's token is the device's registration token.
func (f *FCM) Send(ctx context.Context, m Message, to Target) Outcome {
	switch {
	case to.Token == "":
		return unsendable("the message has no target")
	case to.P256dh != "" || strings.Contains(to.Token, "://"):
		return unsendable("the target is not a registration token of FCM")
	}
	if size := fcmSize(m); size > maxPayload {
		return Outcome{Action: Drop, Err: errTooLong(size)}
	}
	return f.request(ctx, f.body(fcmMessage(m, to, clockNow(ctx)), f.dryRun))
}

// Check tells whether Google accepts the credentials for the project: it has a message
// validated that is not delivered. It returns a [ProviderError] if Google refuses them.
func (f *FCM) Check(ctx context.Context) error {
	probe := map[string]any{"topic": "waterclock-check", "data": map[string]string{"check": "1"}}
	o := f.request(ctx, f.body(probe, true))
	if o.Action == Done {
		return nil
	}
	return fmt.Errorf("notify: fcm: checking the credentials: %w", o.Err)
}

func (f *FCM) body(message map[string]any, validateOnly bool) map[string]any {
	body := map[string]any{"message": message}
	if validateOnly {
		body["validate_only"] = true
	}
	return body
}

func (f *FCM) request(ctx context.Context, content map[string]any) Outcome {
	body, err := toJSON(content)
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
	if f.payer != "" {
		header.Set("X-Goog-User-Project", f.payer)
	}
	r, failed := f.pool.post(ctx, f.address, header, body)
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

// errToken is wrapped by the errors of whoever gives access tokens: they say nothing about FCM.
var errToken = errors.New("asking for an access token")

// mintTrouble is what to do when there is no access token. Credentials that Google does
// not know are a wrong configuration. Everything else passes, and is no failed attempt of
// the message: nothing was sent.
func mintTrouble(err error) Outcome {
	var e *ProviderError
	if errors.As(err, &e) {
		err = fmt.Errorf("%w: %w", errToken, err)
		if e.Status >= 400 && e.Status < 500 && e.Status != http.StatusTooManyRequests {
			return Outcome{Action: Halt, Err: err}
		}
	}
	return Outcome{Action: Defer, Err: err, After: tokenWait}
}

// tokenWait is how long a message waits when there is no token for it.
const tokenWait = 10 * time.Second

// fcmMessage is the message, and what each platform is told of it.
func fcmMessage(m Message, to Target, now time.Time) map[string]any {
	ttl := strconv.FormatInt(m.ttl(now, maxTTL), 10)
	message := map[string]any{
		"token":   to.Token,
		"android": merge(fcmAndroid(m, ttl), m.Android),
		"apns":    merge(fcmApple(m), m.APNs),
		"webpush": merge(fcmWeb(m, ttl), m.WebPush),
	}
	if len(m.Data) > 0 {
		message["data"] = m.Data
	}
	if !m.silent() {
		message["notification"] = fcmNotification(m)
	}
	return message
}

func fcmNotification(m Message) map[string]any {
	return fields(map[string]any{"title": m.Title, "body": m.Body, "image": m.Image})
}

// fcmSize is what FCM counts: the notification and the data, not what is around them.
func fcmSize(m Message) (size int) {
	parts := []any{m.Data}
	if !m.silent() {
		parts = append(parts, fcmNotification(m))
	}
	for _, part := range parts {
		text, _ := toJSON(part) // strings can always be written
		size += len(text)
	}
	return size
}

func fcmAndroid(m Message, ttl string) map[string]any {
	android := map[string]any{"ttl": ttl + "s", "priority": "NORMAL"}
	if m.Priority == High {
		android["priority"] = "HIGH"
	}
	collapse := ""
	if m.CollapseKey != "" {
		collapse = collapseID(m.CollapseKey, 64)
		android["collapse_key"] = collapse
	}
	if m.silent() {
		return android
	}
	shown := fields(map[string]any{
		"tag": cmp.Or(m.Tag, collapse), "sound": m.Sound, "channel_id": m.ChannelID, "click_action": m.ClickAction,
	})
	if m.Badge != nil && *m.Badge > 0 {
		shown["notification_count"] = *m.Badge
	}
	if len(shown) > 0 {
		android["notification"] = shown
	}
	return android
}

func fcmApple(m Message) map[string]any {
	own := apnsHeader(m, Target{})
	headers := fields(map[string]any{
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
		apple["fcm_options"] = map[string]any{"image": m.Image}
	}
	return apple
}

func fcmWeb(m Message, ttl string) map[string]any {
	headers := map[string]any{"TTL": ttl, "Urgency": urgencyOf(m.Priority)}
	if m.CollapseKey != "" {
		headers["Topic"] = topicOf(m.CollapseKey)
	}
	web := map[string]any{"headers": headers}
	if tag := cmp.Or(m.Tag, m.CollapseKey); tag != "" && !m.silent() {
		web["notification"] = map[string]any{"tag": tag} // FCM adds the text
	}
	if isHTTPS(m.ClickAction) {
		web["fcm_options"] = map[string]any{"link": m.ClickAction}
	}
	return web
}
