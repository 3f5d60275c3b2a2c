package notifytest

import (
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
	Secret string // "whsec_" and base64
	secret []byte
}

// NewWebhook starts an endpoint.
func NewWebhook(o Options) (*Webhook, error) {
	w := &Webhook{secret: make([]byte, 32)}
	rand.Read(w.secret) // never fails
	w.Secret = "whsec_" + base64.StdEncoding.EncodeToString(w.secret)
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
	mac := hmac.New(sha256.New, w.secret)
	fmt.Fprintf(mac, "%s.%d.%s", got.ID, at, body)
	good := false
	for signature := range strings.FieldsSeq(r.Header.Get("webhook-signature")) {
		version, text, _ := strings.Cut(signature, ",")
		sum, err := base64.StdEncoding.DecodeString(text)
		good = good || version == "v1" && err == nil && hmac.Equal(sum, mac.Sum(nil))
	}
	if !good {
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
