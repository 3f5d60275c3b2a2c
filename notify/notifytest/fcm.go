package notifytest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

// FCM is Firebase Cloud Messaging, HTTP v1, and the part of Google that gives access
// tokens to service accounts.
type FCM struct {
	Host
	ServiceAccount []byte // the JSON file

	project, email string
	public         *rsa.PublicKey

	mu     sync.Mutex
	tokens map[string]time.Time // access token → its end
	cloud  map[string]bool      // access tokens that FCM does not take: for service accounts'
	minted int
	sent   int
}

// NewFCM starts an FCM.
func NewFCM(o Options) (*FCM, error) {
	key, err := rsa.GenerateKey(rand.Reader, 1024) // short: it lives as long as a test, and is made for each
	if err != nil {
		return nil, err
	}
	text, err := inPEM(key)
	if err != nil {
		return nil, err
	}
	f := &FCM{
		project: "school-push", email: "push@school-push.example", public: &key.PublicKey,
		tokens: make(map[string]time.Time), cloud: make(map[string]bool),
	}
	f.verify, f.success = f.check, f.ok
	if err := f.start(o, false); err != nil {
		return nil, err
	}
	f.ServiceAccount, err = json.Marshal(map[string]string{
		"type": "service_account", "project_id": f.project, "private_key_id": "k1", "private_key": string(text),
		"client_email": f.email, "token_uri": f.URL + "/token",
	})
	return f, err
}

// FCMError is an answer of FCM, as QUOTA_EXCEEDED with 429.
func FCMError(status int, code string) *Answer {
	return &Answer{Status: status, Body: fmt.Sprintf(`{"error":{"code":%d,"message":"%s","status":"%s","details":[`+
		`{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"%s"}]}}`, status, code, googleStatus(status), code)}
}

// googleStatus is a status of HTTP in the words of all of Google's services; FCM's own
// code is more exact.
func googleStatus(status int) string {
	switch status {
	case http.StatusBadRequest:
		return "INVALID_ARGUMENT"
	case http.StatusUnauthorized:
		return "UNAUTHENTICATED"
	case http.StatusForbidden:
		return "PERMISSION_DENIED"
	case http.StatusNotFound:
		return "NOT_FOUND"
	case http.StatusTooManyRequests:
		return "RESOURCE_EXHAUSTED"
	case http.StatusServiceUnavailable:
		return "UNAVAILABLE"
	}
	return "INTERNAL"
}

// Unregistered is the answer for a device that is gone.
func Unregistered() *Answer { return FCMError(http.StatusNotFound, "UNREGISTERED") }

// Revoke makes all access tokens invalid.
func (f *FCM) Revoke() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.tokens)
}

// Minted returns how many access tokens were given out.
func (f *FCM) Minted() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.minted
}

// mint gives out an access token.
func (f *FCM) mint() string {
	token := "ya29." + rand.Text()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.minted++
	f.tokens[token] = time.Now().Add(time.Hour)
	return token
}

func (f *FCM) ok(w http.ResponseWriter, got Received) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case got.tokenFor == "account":
		end := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
		_, _ = io.WriteString(w, `{"accessToken":"`+f.mint()+`","expireTime":"`+end+`"}`)
		return
	case got.tokenFor == "cloud":
		token := f.mint()
		f.mu.Lock()
		delete(f.tokens, token)
		f.cloud[token] = true
		f.mu.Unlock()
		_, _ = io.WriteString(w, `{"access_token":"`+token+`","expires_in":3599,"token_type":"Bearer"}`)
		return
	case got.tokenFor != "":
		_, _ = io.WriteString(w, `{"access_token":"`+f.mint()+`","expires_in":3599,"token_type":"Bearer"}`)
		return
	}
	f.mu.Lock()
	f.sent++
	n := f.sent
	f.mu.Unlock()
	_, _ = fmt.Fprintf(w, `{"name":"projects/%s/messages/%d"}`, f.project, n)
}

// A fcmMessage is what this FCM knows of the real one's fields; others are refused.
type fcmMessage struct {
	ValidateOnly bool `json:"validate_only"`
	Message      struct {
		Token        string                               `json:"token"`
		Topic        string                               `json:"topic"`
		Condition    string                               `json:"condition"`
		Notification *struct{ Title, Body, Image string } `json:"notification"`
		Data         map[string]string                    `json:"data"`
		Android      struct {
			TTL          string `json:"ttl"`
			Priority     string `json:"priority"`
			CollapseKey  string `json:"collapse_key"`
			Notification struct {
				Tag         string `json:"tag"`
				Sound       string `json:"sound"`
				Count       int    `json:"notification_count"`
				ChannelID   string `json:"channel_id"`
				ClickAction string `json:"click_action"`
				Icon        string `json:"icon"`
				Color       string `json:"color"`
				Title       string `json:"title"`
				Body        string `json:"body"`
			} `json:"notification"`
		} `json:"android"`
		APNs struct {
			Headers map[string]string `json:"headers"`
			Payload json.RawMessage   `json:"payload"`
			Options struct {
				Image string `json:"image"`
			} `json:"fcm_options"`
		} `json:"apns"`
		Webpush struct {
			Headers      map[string]string `json:"headers"`
			Data         map[string]string `json:"data"`
			Notification map[string]any    `json:"notification"`
			Options      struct {
				Link string `json:"link"`
			} `json:"fcm_options"`
		} `json:"webpush"`
	} `json:"message"`
}

var fcmTTL = regexp.MustCompile(`^([0-9]+)(\.[0-9]+)?s$`)

func (f *FCM) check(r *http.Request, body []byte) (got Received, refusal *Answer) {
	refuse := func(status int, code, why string) (Received, *Answer) {
		got.Refused = "fcm: " + why
		return got, FCMError(status, code)
	}
	if check := f.tokenEndpoint(r.URL.Path); check != nil {
		got.tokenFor = strings.TrimPrefix(r.URL.Path, "/")
		switch {
		case strings.HasSuffix(got.tokenFor, ":generateAccessToken"):
			got.tokenFor = "account"
		case got.tokenFor == "sts" && strings.Contains(string(body), url.QueryEscape(cloudScope)):
			got.tokenFor = "cloud"
		}
		if why := check(r, body); why != "" {
			got.Refused = "oauth: " + why
			return got, &Answer{Status: http.StatusBadRequest, Body: `{"error":"invalid_grant"}`}
		}
		return got, nil
	}
	if r.Method != http.MethodPost || r.URL.Path != "/v1/projects/"+f.project+"/messages:send" {
		return refuse(http.StatusNotFound, "NOT_FOUND", "no such page "+r.URL.Path)
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	f.mu.Lock()
	end := f.tokens[token]
	f.mu.Unlock()
	if !time.Now().Before(end) {
		return refuse(http.StatusUnauthorized, "UNAUTHENTICATED", "no valid access token")
	}
	var m fcmMessage
	decoder := json.NewDecoder(bytes.NewReader(body))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return refuse(http.StatusBadRequest, "INVALID_ARGUMENT", err.Error())
	}
	if why := m.wrong(r); why != "" {
		return refuse(http.StatusBadRequest, "INVALID_ARGUMENT", why)
	}
	got.Device, got.Data, got.Collapse = m.Message.Token, m.Message.Data, m.Message.Android.CollapseKey
	if n := m.Message.Notification; n != nil {
		got.Title, got.Body, got.Image = n.Title, n.Body, n.Image
	}
	got.Sound = m.Message.Android.Notification.Sound
	got.Priority, got.TTL = m.Message.Android.Priority, m.Message.Android.TTL
	got.PushType = m.Message.APNs.Headers["apns-push-type"]
	got.Urgency, got.Topic = m.Message.Webpush.Headers["Urgency"], m.Message.Webpush.Headers["Topic"]
	got.ValidateOnly = m.ValidateOnly
	got.Device = cmp.Or(m.Message.Token, m.Message.Topic)
	if aps, _ := parsePayload(m.Message.APNs.Payload); aps != nil {
		got.Badge = aps.Badge
	}
	if ttl := fcmTTL.FindStringSubmatch(m.Message.Android.TTL); ttl != nil {
		n, _ := strconv.Atoi(ttl[1])
		got.Expires = time.Now().Add(time.Duration(n) * time.Second)
	}
	return got, nil
}

// wrong returns what FCM would object to.
func (m fcmMessage) wrong(r *http.Request) string {
	ttl := fcmTTL.FindStringSubmatch(m.Message.Android.TTL)
	seconds := 0
	if ttl != nil {
		seconds, _ = strconv.Atoi(ttl[1])
	}
	targets := 0
	for _, t := range []string{m.Message.Token, m.Message.Topic, m.Message.Condition} {
		if t != "" {
			targets++
		}
	}
	apple := m.Message.APNs
	aps, _ := parsePayload(apple.Payload)
	switch p := strings.ToUpper(m.Message.Android.Priority); {
	case !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return "the body is not JSON by its header"
	case targets != 1:
		return "not exactly one of token, topic and condition"
	case m.Message.Android.TTL != "" && ttl == nil, seconds > 2419200:
		return "android.ttl"
	case p != "" && p != "HIGH" && p != "NORMAL":
		return "android.priority"
	case m.size() > 4096:
		return "more than 4096 bytes"
	case m.Message.Webpush.Options.Link != "" && !strings.HasPrefix(m.Message.Webpush.Options.Link, "https://"):
		return "webpush.fcm_options.link"
	case len(apple.Payload) > 0 && aps == nil:
		return "apns.payload has no aps"
	case apple.Headers["apns-push-type"] == "background" && (aps == nil || !aps.fits("background")):
		return "apns-push-type"
	}
	for name := range m.Message.Data {
		if name == "from" || strings.HasPrefix(name, "google.") || strings.HasPrefix(name, "gcm.") {
			return "data: a reserved name"
		}
	}
	return ""
}

// size is what FCM bounds: the notification and the data.
func (m fcmMessage) size() (n int) {
	if note := m.Message.Notification; note != nil {
		n += len(note.Title) + len(note.Body) + len(note.Image)
	}
	for name, value := range m.Message.Data {
		n += len(name) + len(value)
	}
	return n
}

// checkAssertion verifies the request for an access token.
func (f *FCM) checkAssertion(r *http.Request, body []byte) string {
	values, _ := url.ParseQuery(string(body))
	c, kid, err := verifyToken(values.Get("assertion"), "RS256", f.public)
	now := time.Now().Unix()
	switch {
	case r.Method != http.MethodPost, r.Header.Get("Content-Type") != "application/x-www-form-urlencoded":
		return "not a form"
	case values.Get("grant_type") != "urn:ietf:params:oauth:grant-type:jwt-bearer":
		return "grant_type"
	case err != nil:
		return err.Error()
	case kid != "k1" || c.Issuer != f.email || c.Audience != f.URL+"/token":
		return "kid, iss or aud"
	case c.Scope != "https://www.googleapis.com/auth/firebase.messaging":
		return "scope"
	case c.Expires-c.Issued > 3600 || c.Expires <= now || c.Issued > now+300:
		return "iat or exp"
	}
	return ""
}
