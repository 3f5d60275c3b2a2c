package notify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify/notifytest"
)

// A parcel is a request before it is made, so that one thing can be changed in it.
type parcel struct {
	method, url string
	header      http.Header
	body        string
	http1       bool
}

func (p *parcel) set(name, value string) { p.header.Set(name, value) }

func (p *parcel) replace(old, new string) { p.body = strings.Replace(p.body, old, new, 1) }

// A deviation is one thing that is wrong.
type deviation struct {
	name string
	do   func(p *parcel)
}

// strict checks that a provider takes the right request, and none of the deviations.
func strict(t *testing.T, h *notifytest.Host, right func() *parcel, deviations []deviation) {
	t.Helper()
	for _, d := range append([]deviation{{"none", func(*parcel) {}}}, deviations...) {
		p := right()
		before := len(h.Refusals())
		d.do(p)
		status := deliver(t, h, p)
		if refused := status/100 != 2; refused != (d.name != "none") {
			t.Errorf("%s: answered %d; refused %q", d.name, status, h.Refusals()[before:])
		}
	}
}

func deliver(t *testing.T, h *notifytest.Host, p *parcel) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), p.method, p.url, strings.NewReader(p.body))
	must(t, err)
	req.Header = p.header
	client := h.Client()
	if p.http1 {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(true)
		client.Transport.(*http.Transport).Protocols = protocols
	}
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	if err != nil && p.http1 {
		return 0 // there was nobody to speak it with
	}
	must(t, err)
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	must(t, err)
	return resp.StatusCode
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// token signs claims, after one of them was changed.
func token(t *testing.T, key crypto.Signer, kid string, claims map[string]any, changed ...any) string {
	t.Helper()
	for i := 0; i < len(changed); i += 2 {
		claims[changed[i].(string)] = changed[i+1]
	}
	text, err := signJWT(key, kid, claims)
	must(t, err)
	return text
}

func signerOf(t *testing.T, pem string) crypto.Signer {
	t.Helper()
	key, err := parseKey([]byte(pem))
	must(t, err)
	return key
}

func otherKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	return key
}

func TestAPNsIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		defer a.Close()
		key := signerOf(t, string(a.Key))
		provider := func(key crypto.Signer, kid string, changed ...any) string {
			return "bearer " + token(t, key, kid, map[string]any{"iss": a.TeamID, "iat": time.Now().Unix()}, changed...)
		}
		good := provider(key, a.KeyID)
		right := func() *parcel {
			m := Message{ID: "1", Title: "a", CollapseKey: "k", Expires: time.Now().Add(time.Hour)}
			header := apnsHeader(m, Target{Token: "0123456789abcdef"})
			header.Set("authorization", good)
			header.Set("apns-topic", a.Topic)
			body, err := apnsPayload(m)
			must(t, err)
			return &parcel{http.MethodPost, a.URL + "/3/device/0123456789abcdef", header, string(body), false}
		}
		header := func(name, value string) deviation {
			return deviation{name + " " + value, func(p *parcel) { p.set(name, value) }}
		}
		strict(t, &a.Host, right, []deviation{
			{"HTTP/1.1", func(p *parcel) { p.http1 = true }},
			{"method", func(p *parcel) { p.method = http.MethodGet }},
			{"path", func(p *parcel) { p.url = a.URL + "/2/device/0123456789abcdef" }},
			{"token", func(p *parcel) { p.url = a.URL + "/3/device/nothex" }},
			{"no provider token", func(p *parcel) { p.header.Del("authorization") }},
			{"another's signature", func(p *parcel) { p.set("authorization", provider(otherKey(t), a.KeyID)) }},
			{"kid", func(p *parcel) { p.set("authorization", provider(key, "XXXXXXXXXX")) }},
			{"iss", func(p *parcel) { p.set("authorization", provider(key, a.KeyID, "iss", "XXXXXXXXXX")) }},
			{"iat too old", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Add(-61*time.Minute).Unix()))
			}},
			{"iat ahead", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Add(time.Hour).Unix()))
			}},
			{"a new token too soon", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Unix()-1))
			}},
			{"no topic", func(p *parcel) { p.header.Del("apns-topic") }},
			header("apns-topic", "com.example.other"), header("apns-push-type", "shout"), header("apns-push-type", "background"),
			header("apns-priority", "7"), header("apns-expiration", "soon"), header("apns-collapse-id", strings.Repeat("k", 65)),
			header("apns-id", "1"),
			{"4097 bytes", func(p *parcel) { p.replace("}", `,"x":"`+strings.Repeat("x", 4096)+`"}`) }},
			{"no JSON", func(p *parcel) { p.body = "{" }},
			{"no aps", func(p *parcel) { p.replace("aps", "asp") }},
			{"a badge that is text", func(p *parcel) { p.replace(`"aps":{`, `"aps":{"badge":"3",`) }},
		})
	})
}

func TestFCMIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		defer f.Close()
		var account serviceAccount
		must(t, json.Unmarshal(f.ServiceAccount, &account))
		key := signerOf(t, account.PrivateKey)
		now := time.Now().Unix()
		form := func(key crypto.Signer, kid string, changed ...any) string {
			return url.Values{"grant_type": {"urn:ietf:params:oauth:grant-type:jwt-bearer"}, "assertion": {token(t, key, kid, map[string]any{
				"iss": account.ClientEmail, "scope": fcmScope, "aud": account.TokenURI, "iat": now, "exp": now + 3600,
			}, changed...)}}.Encode()
		}
		assertion := func() *parcel {
			header := http.Header{"Content-Type": {"application/x-www-form-urlencoded"}}
			return &parcel{http.MethodPost, account.TokenURI, header, form(key, account.KeyID), false}
		}
		changed := func(name string, value any) deviation {
			return deviation{fmt.Sprint(name, " ", value), func(p *parcel) { p.body = form(key, account.KeyID, name, value) }}
		}
		strict(t, &f.Host, assertion, []deviation{
			changed("iss", "other@example.com"), changed("scope", "email"), changed("aud", "https://oauth2.example/token"),
			changed("exp", now+3601), changed("exp", now-1), changed("iat", now+600),
			{"kid", func(p *parcel) { p.body = form(key, "k2") }},
			{"another's signature", func(p *parcel) { p.body = form(otherKey(t), account.KeyID) }},
			{"grant_type", func(p *parcel) { p.replace("jwt-bearer", "password") }},
			{"method", func(p *parcel) { p.method = http.MethodGet }},
			{"no form", func(p *parcel) { p.set("Content-Type", "application/json") }},
		})
		s, err := NewFCM(FCMConfig{ServiceAccount: f.ServiceAccount, Wire: Wire{RootCAs: f.RootCAs, Dial: f.Dial}})
		must(t, err)
		defer s.Close()
		access, err := s.credential.get(t.Context())
		must(t, err)
		send := func() *parcel {
			m := Message{Title: "a", Data: map[string]string{"screen": "news"}, CollapseKey: "k"}
			body, err := json.Marshal(fcmMessage(m, Target{Token: "device"}, time.Now()))
			must(t, err)
			header := http.Header{"Authorization": {"Bearer " + access}, "Content-Type": {"application/json"}}
			return &parcel{http.MethodPost, f.URL + "/v1/projects/" + account.ProjectID + "/messages:send", header, string(body), false}
		}
		instead := func(old, new string) deviation {
			return deviation{old + " → " + new, func(p *parcel) { p.replace(old, new) }}
		}
		strict(t, &f.Host, send, []deviation{
			{"method", func(p *parcel) { p.method = http.MethodPut }},
			{"project", func(p *parcel) { p.url = f.URL + "/v1/projects/other/messages:send" }},
			{"no access token", func(p *parcel) { p.header.Del("Authorization") }},
			{"another access token", func(p *parcel) { p.set("Authorization", "Bearer ya29.other") }},
			{"content type", func(p *parcel) { p.set("Content-Type", "text/plain") }},
			{"4097 bytes", func(p *parcel) { p.replace(`"news"`, `"`+strings.Repeat("x", 4096)+`"`) }},
			instead(`"ttl":"2419200s"`, `"ttl":"2419201s"`), instead(`"ttl":"2419200s"`, `"ttl":"5"`), instead("NORMAL", "URGENT"),
			instead(`"token":"device"`, `"token":""`), instead(`"token":"device"`, `"token":"device","topic":"all"`),
			instead(`"screen":"news"`, `"screen":5`), instead(`"screen"`, `"google.screen"`), instead(`"title"`, `"titel"`),
			instead(`"headers":{"apns`, `"payload":{"asp":{}},"headers":{"apns`),
			instead(`"headers":{"apns`, `"headers":{"apns-push-type":"background","apns`),
		})
		time.Sleep(time.Hour)
		if status := deliver(t, &f.Host, send()); status != http.StatusUnauthorized {
			t.Errorf("an access token that has ended: %d", status)
		}
	})
}

func TestPushServiceIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := notifytest.NewWebPush(notifytest.Options{})
		must(t, err)
		defer w.Close()
		sub, err := w.Subscribe("browser")
		must(t, err)
		key, err := parseVAPIDKey(w.Key)
		must(t, err)
		vapid := func(key crypto.Signer, k string, changed ...any) string {
			return "vapid t=" + token(t, key, "", map[string]any{
				"aud": w.URL, "exp": time.Now().Add(time.Hour).Unix(), "sub": "mailto:push@school.example",
			}, changed...) + ", k=" + k
		}
		right := func() *parcel {
			body, err := encrypt(Target{P256dh: sub.P256dh, Auth: sub.Auth}, []byte(`{"title":"a"}`), 128)
			must(t, err)
			header := http.Header{"Authorization": {vapid(key, w.Public())}}
			for name, value := range map[string]string{
				"Content-Encoding": "aes128gcm", "TTL": "60", "Urgency": "high", "Topic": topicOf("news"),
			} {
				header.Set(name, value)
			}
			return &parcel{http.MethodPost, sub.Endpoint, header, string(body), false}
		}
		header := func(name, value string) deviation {
			return deviation{name + " " + value, func(p *parcel) { p.set(name, value) }}
		}
		claim := func(name string, value any) deviation {
			return deviation{fmt.Sprint(name, " ", value), func(p *parcel) { p.set("Authorization", vapid(key, w.Public(), name, value)) }}
		}
		strict(t, &w.Host, right, []deviation{
			{"method", func(p *parcel) { p.method = http.MethodPut }},
			{"subscription", func(p *parcel) { p.url += "2" }},
			{"no TTL", func(p *parcel) { p.header.Del("TTL") }},
			{"no encoding", func(p *parcel) { p.header.Del("Content-Encoding") }},
			{"no credentials", func(p *parcel) { p.header.Del("Authorization") }},
			{"another's signature", func(p *parcel) { p.set("Authorization", vapid(otherKey(t), w.Public())) }},
			{"another's key", func(p *parcel) { p.set("Authorization", vapid(key, sub.P256dh)) }},
			header("TTL", "-1"), header("TTL", "1h"), header("Urgency", "now"),
			header("Topic", strings.Repeat("a", 33)), header("Topic", "a.b"), header("Topic", "abcde"),
			claim("aud", "https://push.example"), claim("exp", time.Now().Add(25*time.Hour).Unix()), claim("exp", time.Now().Unix()-1),
			claim("sub", ""), claim("sub", "push@school.example"), claim("sub", "mailto:mailto:push@school.example"), claim("sub", "mailto:push@localhost"),
			{"a bit of the text", func(p *parcel) { p.body = p.body[:len(p.body)-1] + string(p.body[len(p.body)-1]^1) }},
			{"too short", func(p *parcel) { p.body = p.body[:20] }},
			{"4097 bytes", func(p *parcel) { p.body += strings.Repeat("x", 4096) }},
		})
	})
}

func TestEndpointIsStrict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		defer w.Close()
		s, err := NewWebhook(WebhookConfig{Secrets: []string{w.Secret}})
		must(t, err)
		body := `{"type":"push","timestamp":"2026-11-21T08:00:00Z","data":{"title":"a"}}`
		signed := func(id string, at time.Time, body string) *parcel {
			p := &parcel{http.MethodPost, w.URL + "/hook", http.Header{"Content-Type": {"application/json"}}, body, false}
			s.sign(p.header, id, at, []byte(body))
			return p
		}
		again := func(p *parcel, at time.Time, body string) { *p = *signed("job-1", at, body) }
		strict(t, &w.Host, func() *parcel { return signed("job-1", time.Now(), body) }, []deviation{
			{"method", func(p *parcel) { p.method = http.MethodPut }},
			{"content type", func(p *parcel) { p.set("Content-Type", "text/plain") }},
			{"no id", func(p *parcel) { p.header.Del("webhook-id") }},
			{"a full stop in the id", func(p *parcel) { p.set("webhook-id", "job.1") }},
			{"another id", func(p *parcel) { p.set("webhook-id", "job-2") }},
			{"another time", func(p *parcel) { p.set("webhook-timestamp", strconv.FormatInt(time.Now().Unix()+1, 10)) }},
			{"late", func(p *parcel) { again(p, time.Now().Add(-6*time.Minute), body) }},
			{"ahead", func(p *parcel) { again(p, time.Now().Add(6*time.Minute), body) }},
			{"no signature", func(p *parcel) { p.header.Del("webhook-signature") }},
			{"version", func(p *parcel) { p.set("webhook-signature", "v1a"+p.header.Get("webhook-signature")[2:]) }},
			{"body", func(p *parcel) { p.replace(`"a"`, `"b"`) }},
			{"no type", func(p *parcel) { again(p, time.Now(), `{"timestamp":"2026-11-21T08:00:00Z","data":{}}`) }},
			{"no time", func(p *parcel) { again(p, time.Now(), `{"type":"push","data":{}}`) }},
		})
	})
}
