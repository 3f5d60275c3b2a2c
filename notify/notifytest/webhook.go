package notifytest

import (
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Webhook is somebody's endpoint, any path of it, that verifies Standard Webhooks.
type Webhook struct {
	Host
	Secret     string // that both sides have: "whsec_" and base64
	PrivateKey string // to sign with in its place: "whsk_" and base64

	secret []byte
	public ed25519.PublicKey
}

// NewWebhook starts an endpoint.
func NewWebhook(o Options) (*Webhook, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	w := &Webhook{secret: make([]byte, 32), public: public}
	rand.Read(w.secret) // never fails
	w.Secret = "whsec_" + base64.StdEncoding.EncodeToString(w.secret)
	w.PrivateKey = "whsk_" + base64.StdEncoding.EncodeToString(private)
	w.verify, w.success = w.check, func(rw http.ResponseWriter, _ Received) { rw.WriteHeader(http.StatusNoContent) }
	return w, w.start(o, false)
}

func (w *Webhook) check(r *http.Request, body []byte) (got Received, refusal *Answer) {
	got.Device, got.ID = r.URL.Path, r.Header.Get("webhook-id")
	refuse := func(why string) (Received, *Answer) {
		got.Refused = "webhook: " + why
		return got, &Answer{Status: http.StatusUnauthorized, Body: why}
	}
	at, err := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	late := time.Since(time.Unix(at, 0)).Abs()
	switch {
	case r.Method != http.MethodPost || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json"):
		return refuse("not a POST of JSON")
	case got.ID == "" || strings.Contains(got.ID, "."):
		return refuse("webhook-id")
	case err != nil || late > 5*time.Minute:
		return refuse("webhook-timestamp")
	}
	if content := fmt.Sprintf("%s.%d.%s", got.ID, at, body); !w.signed([]byte(content), r.Header.Get("webhook-signature")) {
		return refuse("webhook-signature")
	}
	var m struct {
		Type      string
		Timestamp time.Time
		Data      struct {
			Title, Body, Sound, Image string
			Badge                     *int
			Data                      map[string]string
			CollapseKey               string    `json:"collapse_key"`
			Expires                   time.Time `json:"expires"`
		}
	}
	if json.Unmarshal(body, &m) != nil || m.Type == "" || m.Timestamp.IsZero() {
		return refuse("the body is not {type, timestamp, data}")
	}
	d := m.Data
	got.Title, got.Body, got.Data, got.Collapse, got.Expires = d.Title, d.Body, d.Data, d.CollapseKey, d.Expires
	got.Sound, got.Badge, got.Image = d.Sound, d.Badge, d.Image
	return got, nil
}

// signed tells whether one of the signatures is right.
func (w *Webhook) signed(content []byte, signatures string) bool {
	mac := hmac.New(sha256.New, w.secret)
	mac.Write(content)
	for signature := range strings.FieldsSeq(signatures) {
		version, text, _ := strings.Cut(signature, ",")
		raw, err := base64.StdEncoding.DecodeString(text)
		switch {
		case err != nil:
		case version == "v1" && hmac.Equal(raw, mac.Sum(nil)), version == "v1a" && ed25519.Verify(w.public, content, raw):
			return true
		}
	}
	return false
}
