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
)

// Keys make sessions that cannot be forged, out of the access token: so all dashboards with the
// same token know them, and none of them keeps any. A new token ends all sessions.
type keys struct{ token, sign [sha256.Size]byte }

func newKeys(token string) *keys {
	return &keys{sha256.Sum256([]byte(token)), sha256.Sum256([]byte("waterclock dashboard sessions\x00" + token))}
}

// opens reports whether a token is the right one.
func (k *keys) opens(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], k.token[:]) == 1
}

// mac signs a text for a purpose.
func (k *keys) mac(purpose, text string) string {
	m := hmac.New(sha256.New, k.sign[:])
	m.Write([]byte(purpose + "\x00" + text))
	return base64.RawURLEncoding.EncodeToString(m.Sum(nil))
}

// A session is an operator who has entered the token.
type session struct {
	Name  string `json:"name"`
	Until int64  `json:"until"` // Unix time
	form  string // what its forms have to carry
}

const (
	sessionCookie = "waterclock_session"
	sessionLength = 12 * time.Hour
	maxAuthor     = 80 // bytes of a name
)

// begin returns the cookie of a new session.
func (k *keys) begin(name string, now time.Time) string {
	data, _ := json.Marshal(session{Name: name, Until: now.Add(sessionLength).Unix()}) // a text and a number
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
