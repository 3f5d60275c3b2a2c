package notifytest

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// WebPush is a browser vendor's push service, together with the browsers: it decrypts
// what they would.
type WebPush struct {
	Host
	Key string // a VAPID key for the sender to sign with, private

	mu   sync.Mutex
	subs map[string]*subscription // by path
}

type subscription struct {
	name   string
	key    *ecdh.PrivateKey
	secret []byte
	sender string // the public VAPID key that it was made for
}

// A Subscription is what a browser gives to the app.
type Subscription struct{ Endpoint, P256dh, Auth string }

// NewWebPush starts a push service.
func NewWebPush(o Options) (*WebPush, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	raw, err := key.Bytes()
	if err != nil {
		return nil, err
	}
	w := &WebPush{Key: web64.EncodeToString(raw), subs: make(map[string]*subscription)}
	w.verify, w.success = w.check, func(rw http.ResponseWriter, _ Received) {
		rw.Header().Set("Location", w.URL+"/m/"+rand.Text())
		rw.WriteHeader(http.StatusCreated)
	}
	return w, w.start(o, false)
}

var web64 = base64.RawURLEncoding

// Public returns the public half of a VAPID key, as browsers want it.
func (w *WebPush) Public() string {
	raw, err := web64.DecodeString(w.Key)
	if err != nil {
		return ""
	}
	key, err := ecdh.P256().NewPrivateKey(raw)
	if err != nil {
		return ""
	}
	return web64.EncodeToString(key.PublicKey().Bytes())
}

// Subscribe makes a browser of that name and returns its subscription.
func (w *WebPush) Subscribe(name string) (Subscription, error) {
	key, err := ecdh.P256().GenerateKey(rand.Reader)
	if err != nil {
		return Subscription{}, err
	}
	s := &subscription{name: name, key: key, secret: make([]byte, 16), sender: w.Public()}
	rand.Read(s.secret) // never fails
	path := "/push/" + url.PathEscape(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subs[path] = s
	return Subscription{
		Endpoint: w.URL + path,
		P256dh:   web64.EncodeToString(key.PublicKey().Bytes()),
		Auth:     web64.EncodeToString(s.secret),
	}, nil
}

var webTopic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

func (w *WebPush) check(r *http.Request, body []byte) (got Received, refusal *Answer) {
	refuse := func(status int, why string) (Received, *Answer) {
		got.Refused = "webpush: " + why
		return got, &Answer{Status: status, Body: why}
	}
	w.mu.Lock()
	s := w.subs[r.URL.EscapedPath()]
	w.mu.Unlock()
	if r.Method != http.MethodPost || s == nil {
		return refuse(http.StatusNotFound, "no such subscription")
	}
	got.Device = s.name
	if status, why := w.checkVAPID(r.Header.Get("Authorization"), s); why != "" {
		return refuse(status, why)
	}
	ttl, err := strconv.Atoi(r.Header.Get("TTL"))
	urgency, topic := r.Header.Get("Urgency"), r.Header.Get("Topic")
	switch {
	case err != nil || ttl < 0:
		return refuse(http.StatusBadRequest, "TTL is missing or no number")
	case urgency != "" && !slices.Contains([]string{"very-low", "low", "normal", "high"}, urgency):
		return refuse(http.StatusBadRequest, "Urgency")
	case topic != "" && (!webTopic.MatchString(topic) || len(topic)%4 == 1):
		return refuse(http.StatusBadRequest, "BadWebPushTopic")
	case r.Header.Get("Content-Encoding") != "aes128gcm":
		return refuse(http.StatusUnsupportedMediaType, "Content-Encoding")
	case len(body) > 4096:
		return refuse(http.StatusRequestEntityTooLarge, "more than 4096 bytes")
	}
	plain, err := s.decrypt(body)
	if err != nil {
		return refuse(http.StatusBadRequest, "cannot be decrypted: "+err.Error())
	}
	var m struct {
		Title, Body, Sound, Image string
		Badge                     *int
		Data                      map[string]string
	}
	if json.Unmarshal(plain, &m) != nil {
		m.Body = string(plain) // another client's
	}
	_ = json.Unmarshal(plain, &got.Content)
	got.Title, got.Body, got.Data, got.Collapse = m.Title, m.Body, m.Data, topic
	got.Sound, got.Badge, got.Image = m.Sound, m.Badge, m.Image
	got.TTL, got.Urgency, got.Topic = r.Header.Get("TTL"), urgency, topic
	got.Expires = time.Now().Add(time.Duration(ttl) * time.Second)
	return got, nil
}

// checkVAPID verifies who sends.
func (w *WebPush) checkVAPID(authorization string, s *subscription) (status int, why string) {
	fields, ok := strings.CutPrefix(authorization, "vapid ")
	values := map[string]string{}
	for field := range strings.SplitSeq(fields, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		values[name] = value
	}
	if !ok || values["t"] == "" || values["k"] == "" {
		return http.StatusUnauthorized, "no vapid credentials"
	}
	if values["k"] != s.sender {
		return http.StatusForbidden, "the credentials do not correspond to the credentials used to create the subscription"
	}
	raw, err := web64.DecodeString(values["k"])
	if err != nil {
		return http.StatusForbidden, "k is not base64url"
	}
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), raw)
	if err != nil {
		return http.StatusForbidden, "k is no point"
	}
	c, _, err := verifyToken(values["t"], "ES256", public)
	now := time.Now()
	end := time.Unix(c.Expires, 0)
	switch {
	case err != nil:
		return http.StatusForbidden, "BadJwtToken: " + err.Error()
	case c.Audience != w.URL:
		return http.StatusForbidden, "BadJwtToken: aud " + c.Audience
	case !end.After(now) || end.Sub(now) > 24*time.Hour:
		return http.StatusForbidden, "BadJwtToken: exp"
	case !reachable(c.Subject):
		return http.StatusForbidden, "BadJwtToken: sub"
	}
	return 0, ""
}

// reachable tells whether a subject is a way to reach the sender, as Apple sees it.
func reachable(subject string) bool {
	u, err := url.Parse(subject)
	switch {
	case err != nil:
		return false
	case u.Scheme == "mailto":
		return strings.Contains(u.Opaque, "@") && !strings.Contains(u.Opaque, "mailto:") && !strings.HasSuffix(u.Opaque, "@localhost")
	}
	return u.Scheme == "https" && u.Hostname() != "" && u.Hostname() != "localhost"
}

// decrypt is the browser's side of RFC 8291, in the steps of its text.
func (s *subscription) decrypt(body []byte) ([]byte, error) {
	if len(body) < 21 || len(body) < 21+int(body[20]) {
		return nil, errors.New("the header is too short")
	}
	salt, size, sender := body[:16], binary.BigEndian.Uint32(body[16:20]), body[21:21+int(body[20])]
	record := body[21+len(sender):]
	if size < 18 || len(record) > int(size) {
		return nil, errors.New("more than one record")
	}
	public, err := ecdh.P256().NewPublicKey(sender)
	if err != nil {
		return nil, errors.New("the key ID is no public key")
	}
	shared, err := s.key.ECDH(public)
	if err != nil {
		return nil, err
	}
	own := s.key.PublicKey().Bytes()
	prkKey, err := hkdf.Extract(sha256.New, shared, s.secret)
	if err != nil {
		return nil, err
	}
	ikm, err := hkdf.Expand(sha256.New, prkKey, "WebPush: info\x00"+string(own)+string(sender), 32)
	if err != nil {
		return nil, err
	}
	prk, err := hkdf.Extract(sha256.New, ikm, salt)
	if err != nil {
		return nil, err
	}
	cek, err := hkdf.Expand(sha256.New, prk, "Content-Encoding: aes128gcm\x00", 16)
	if err != nil {
		return nil, err
	}
	nonce, err := hkdf.Expand(sha256.New, prk, "Content-Encoding: nonce\x00", 12)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(cek)
	if err != nil {
		return nil, err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	padded, err := gcm.Open(nil, nonce, record, nil)
	if err != nil {
		return nil, errors.New("the seal is broken")
	}
	end := len(padded) - 1
	for end >= 0 && padded[end] == 0 {
		end--
	}
	if end < 0 || padded[end] != 2 {
		return nil, errors.New("the last record has no mark")
	}
	return padded[:end], nil
}
