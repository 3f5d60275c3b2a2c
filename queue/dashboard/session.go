package dashboard

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/waterclock/waterclock/queue/access"
)

// Keys make sessions that cannot be forged, and keep none of them. A session lasts as long as its
// token counts at most.
type keys struct {
	tokens *access.Tokens
	sign   []byte
}

func newKeys(tokens *access.Tokens) *keys { return &keys{tokens, tokens.Key("dashboard sessions")} }

// mac signs a text for a purpose.
func (k *keys) mac(purpose, text string) string {
	m := hmac.New(sha256.New, k.sign)
	m.Write([]byte(purpose + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// A session is somebody who has entered a token.
type session struct {
	Name  string `json:"name"`
	Until int64  `json:"until"` // Unix time
	Token string `json:"token"` // its ID
	form  string // what its forms have to carry
	token access.Token
}

// author is who does what is done in the session.
func (s *session) author() string { return s.token.Author(s.Name) }

const (
	sessionCookie = "waterclock_session"
	sessionLength = 12 * time.Hour
	maxAuthor     = 80 // bytes of a name
)

// begin returns the cookie of a new session.
func (k *keys) begin(token access.Token, name string, now time.Time) string {
	data, _ := json.Marshal(session{Name: name, Until: now.Add(sessionLength).Unix(), Token: token.ID()}) // texts and a number
	value := base64.RawURLEncoding.EncodeToString(data)
	return value + "." + k.mac("session", value)
}

// read returns the session of a cookie, or nil.
func (k *keys) read(cookie string, now time.Time) *session {
	value, mac, _ := strings.Cut(cookie, ".")
	if subtle.ConstantTimeCompare([]byte(mac), []byte(k.mac("session", value))) != 1 {
		return nil
	}
	data, err := base64.RawURLEncoding.DecodeString(value)
	var s session
	if err != nil || json.Unmarshal(data, &s) != nil || now.Unix() >= s.Until {
		return nil
	}
	if s.token, err = k.tokens.ByID(s.Token); err != nil {
		return nil
	}
	s.form = k.mac("form", cookie)
	return &s
}

// session returns who has sent a request, or nil.
func (d *Dashboard) session(r *http.Request) *session {
	cookie, err := r.Cookie(sessionCookie)
	if err != nil || d.keys == nil {
		return nil
	}
	return d.keys.read(cookie.Value, time.Now())
}

// cookie returns a cookie that no script and no other site can send.
func (d *Dashboard) cookie(r *http.Request, name, value string, length time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: name, Value: value, Path: d.cfg.Prefix, MaxAge: int(length.Seconds()), HttpOnly: true,
		Secure: r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https", SameSite: http.SameSiteStrictMode,
	}
}
