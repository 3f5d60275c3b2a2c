package notify

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
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

// A deviation is one thing that is wrong, and what the provider objects to then: were it
// something else, nobody would have looked at this.
type deviation struct {
	name, objection string
	do              func(p *parcel)
}

// strict checks that a provider takes the right request, and none of the deviations.
func strict(t *testing.T, h *notifytest.Host, right func() *parcel, deviations []deviation) {
	t.Helper()
	if status := deliver(t, h, right()); status/100 != 2 {
		t.Fatalf("the right request: answered %d; refused %q", status, h.Refusals())
	}
	for _, d := range deviations {
		p := right()
		before := len(h.Refusals())
		d.do(p)
		status := deliver(t, h, p)
		if status == 0 && p.http1 {
			continue
		}
		objections := h.Refusals()[before:]
		if status/100 == 2 || len(objections) != 1 || !strings.Contains(objections[0], d.objection) {
			t.Errorf("%s: answered %d; refused %q, want %q", d.name, status, objections, d.objection)
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
	t.Parallel()
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
		header := func(name, value, objection string) deviation {
			return deviation{name + " " + value, objection, func(p *parcel) { p.set(name, value) }}
		}
		strict(t, &a.Host, right, []deviation{
			{"HTTP/1.1", "", func(p *parcel) { p.http1 = true }},
			{"method", "MethodNotAllowed", func(p *parcel) { p.method = http.MethodGet }},
			{"path", "BadPath", func(p *parcel) { p.url = a.URL + "/2/device/0123456789abcdef" }},
			{"token", "BadDeviceToken", func(p *parcel) { p.url = a.URL + "/3/device/nothex" }},
			{"no provider token", "MissingProviderToken", func(p *parcel) { p.header.Del("authorization") }},
			{"another's signature", "InvalidProviderToken", func(p *parcel) { p.set("authorization", provider(otherKey(t), a.KeyID)) }},
			{"kid", "InvalidProviderToken", func(p *parcel) { p.set("authorization", provider(key, "XXXXXXXXXX")) }},
			{"iss", "InvalidProviderToken", func(p *parcel) { p.set("authorization", provider(key, a.KeyID, "iss", "XXXXXXXXXX")) }},
			{"iat too old", "ExpiredProviderToken", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Add(-61*time.Minute).Unix()))
			}},
			{"iat ahead", "ExpiredProviderToken", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Add(time.Hour).Unix()))
			}},
			{"a new token too soon", "TooManyProviderTokenUpdates", func(p *parcel) {
				p.set("authorization", provider(key, a.KeyID, "iat", time.Now().Unix()-1))
			}},
			{"no topic", "MissingTopic", func(p *parcel) { p.header.Del("apns-topic") }},
			header("apns-topic", "com.example.other", "TopicDisallowed"),
			header("apns-push-type", "shout", "InvalidPushType"), header("apns-push-type", "liveactivity", "TopicDisallowed"),
			{"an activity to another app", "TopicDisallowed", func(p *parcel) {
				p.set("apns-push-type", "liveactivity")
				p.set("apns-topic", "com.example.other.push-type.liveactivity")
			}},
			{"an alert in the background", "InvalidPushType", func(p *parcel) {
				p.set("apns-push-type", "background")
				p.set("apns-priority", "5")
			}},
			{"the background at once", "BadPriority", func(p *parcel) {
				p.set("apns-push-type", "background")
				p.set("apns-priority", "10")
			}},
			header("apns-priority", "7", "BadPriority"), header("apns-expiration", "soon", "BadExpirationDate"),
			header("apns-collapse-id", strings.Repeat("k", 65), "BadCollapseId"), header("apns-id", "1", "BadMessageId"),
			{"4097 bytes", "PayloadTooLarge", func(p *parcel) { p.replace("}", `,"x":"`+strings.Repeat("x", 4096)+`"}`) }},
			{"no JSON", "PayloadEmpty", func(p *parcel) { p.body = "{" }},
			{"no aps", "PayloadEmpty", func(p *parcel) { p.replace("aps", "asp") }},
			{"a badge that is text", "PayloadEmpty", func(p *parcel) { p.replace(`"aps":{`, `"aps":{"badge":"3",`) }},
		})
	})
}

func TestFCMIsStrict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		defer f.Close()
		var account googleFile
		must(t, json.Unmarshal(f.ServiceAccount, &account))
		key := signerOf(t, account.PrivateKey)
		otherRSA, err := rsa.GenerateKey(rand.Reader, 1024) // short: for this test alone
		must(t, err)
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
		changed := func(name string, value any, objection string) deviation {
			return deviation{fmt.Sprint(name, " ", value), objection, func(p *parcel) { p.body = form(key, account.KeyID, name, value) }}
		}
		strict(t, &f.Host, assertion, []deviation{
			changed("iss", "other@example.com", "iss"), changed("scope", "email", "scope"),
			changed("aud", "https://oauth2.example/token", "aud"),
			changed("exp", now+3601, "iat or exp"), changed("exp", now-1, "iat or exp"), changed("iat", now+600, "iat or exp"),
			{"kid", "kid", func(p *parcel) { p.body = form(key, "k2") }},
			{"another's signature", "the signature is wrong", func(p *parcel) { p.body = form(otherRSA, account.KeyID) }},
			{"ES256", "RS256", func(p *parcel) { p.body = form(otherKey(t), account.KeyID) }},
			{"grant_type", "grant_type", func(p *parcel) { p.replace("jwt-bearer", "password") }},
			{"method", "not a form", func(p *parcel) { p.method = http.MethodGet }},
			{"no form", "not a form", func(p *parcel) { p.set("Content-Type", "application/json") }},
		})
		s, err := NewFCM(FCMConfig{Credentials: f.ServiceAccount, Wire: Wire{RootCAs: f.RootCAs, Dial: f.Dial}})
		must(t, err)
		defer s.Close()
		access, err := s.credential.get(t.Context())
		must(t, err)
		send := func() *parcel {
			m := Message{Title: "a", Data: map[string]string{"screen": "news"}, CollapseKey: "k"}
			body, err := toJSON(map[string]any{"message": fcmMessage(m, Target{Token: "device"}, time.Now())})
			must(t, err)
			header := http.Header{"Authorization": {"Bearer " + access}, "Content-Type": {"application/json"}}
			return &parcel{http.MethodPost, f.URL + "/v1/projects/" + account.ProjectID + "/messages:send", header, string(body), false}
		}
		instead := func(old, new, objection string) deviation {
			return deviation{old + " → " + new, objection, func(p *parcel) { p.replace(old, new) }}
		}
		strict(t, &f.Host, send, []deviation{
			{"method", "no such page", func(p *parcel) { p.method = http.MethodPut }},
			{"project", "no such page", func(p *parcel) { p.url = f.URL + "/v1/projects/other/messages:send" }},
			{"no access token", "no valid access token", func(p *parcel) { p.header.Del("Authorization") }},
			{"another access token", "no valid access token", func(p *parcel) { p.set("Authorization", "Bearer ya29.other") }},
			{"content type", "not JSON", func(p *parcel) { p.set("Content-Type", "text/plain") }},
			{"4097 bytes", "more than 4096 bytes", func(p *parcel) { p.replace(`"news"`, `"`+strings.Repeat("x", 4096)+`"`) }},
			instead(`"ttl":"2419200s"`, `"ttl":"2419201s"`, "android.ttl"),
			instead(`"ttl":"2419200s"`, `"ttl":"5"`, "android.ttl"),
			instead("NORMAL", "URGENT", "android.priority"),
			instead(`"token":"device"`, `"token":""`, "exactly one"),
			instead(`"token":"device"`, `"token":"device","topic":"all"`, "exactly one"),
			instead(`"screen":"news"`, `"screen":5`, "cannot unmarshal number"),
			instead(`"screen"`, `"google.screen"`, "reserved name"),
			instead(`"title"`, `"titel"`, "unknown field"),
			instead(`"headers":{"apns`, `"payload":{"asp":{}},"headers":{"apns`, "no aps"),
			instead(`"headers":{"apns`, `"headers":{"apns-push-type":"background","apns`, "apns-push-type"),
		})
		time.Sleep(time.Hour)
		if status := deliver(t, &f.Host, send()); status != http.StatusUnauthorized {
			t.Errorf("an access token that has ended: %d", status)
		}
	})
}

func TestPushServiceIsStrict(t *testing.T) {
	t.Parallel()
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
		header := func(name, value, objection string) deviation {
			return deviation{name + " " + value, objection, func(p *parcel) { p.set(name, value) }}
		}
		claim := func(name string, value any) deviation {
			return deviation{fmt.Sprint(name, " ", value), "BadJwtToken: " + name, func(p *parcel) { p.set("Authorization", vapid(key, w.Public(), name, value)) }}
		}
		strict(t, &w.Host, right, []deviation{
			{"method", "no such subscription", func(p *parcel) { p.method = http.MethodPut }},
			{"subscription", "no such subscription", func(p *parcel) { p.url += "2" }},
			{"no TTL", "TTL", func(p *parcel) { p.header.Del("TTL") }},
			{"no encoding", "Content-Encoding", func(p *parcel) { p.header.Del("Content-Encoding") }},
			{"no credentials", "no vapid credentials", func(p *parcel) { p.header.Del("Authorization") }},
			{"another's signature", "the signature is wrong", func(p *parcel) { p.set("Authorization", vapid(otherKey(t), w.Public())) }},
			{"another's key", "do not correspond", func(p *parcel) { p.set("Authorization", vapid(key, sub.P256dh)) }},
			header("TTL", "-1", "TTL"), header("TTL", "1h", "TTL"), header("Urgency", "now", "Urgency"),
			header("Topic", strings.Repeat("a", 33), "BadWebPushTopic"), header("Topic", "a.b", "BadWebPushTopic"),
			header("Topic", "abcde", "BadWebPushTopic"),
			claim("aud", "https://push.example"), claim("exp", time.Now().Add(25*time.Hour).Unix()), claim("exp", time.Now().Unix()-1),
			claim("sub", ""), claim("sub", "push@school.example"), claim("sub", "mailto:mailto:push@school.example"), claim("sub", "mailto:push@localhost"),
			{"a bit of the text", "the seal is broken", func(p *parcel) { p.body = p.body[:len(p.body)-1] + string(p.body[len(p.body)-1]^1) }},
			{"too short", "too short", func(p *parcel) { p.body = p.body[:20] }},
			{"4097 bytes", "more than 4096 bytes", func(p *parcel) { p.body += strings.Repeat("x", 4096) }},
		})
	})
}

func TestEndpointIsStrict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		defer w.Close()
		signers, err := parseSecrets("Secrets", []string{w.Secret}, symmetric)
		must(t, err)
		body := `{"type":"push","timestamp":"2026-11-21T08:00:00Z","data":{"title":"a"}}`
		signed := func(id string, at time.Time, body string) *parcel {
			p := &parcel{http.MethodPost, w.URL + "/hook", http.Header{"Content-Type": {"application/json"}}, body, false}
			sign(p.header, signers, signedRequest{id, at, []byte(body)})
			return p
		}
		again := func(p *parcel, at time.Time, body string) { *p = *signed("job-1", at, body) }
		strict(t, &w.Host, func() *parcel { return signed("job-1", time.Now(), body) }, []deviation{
			{"method", "not a POST", func(p *parcel) { p.method = http.MethodPut }},
			{"content type", "not a POST of JSON", func(p *parcel) { p.set("Content-Type", "text/plain") }},
			{"no id", "webhook-id", func(p *parcel) { p.header.Del("webhook-id") }},
			{"a full stop in the id", "webhook-id", func(p *parcel) { p.set("webhook-id", "job.1") }},
			{"another id", "webhook-signature", func(p *parcel) { p.set("webhook-id", "job-2") }},
			{"another time", "webhook-signature", func(p *parcel) { p.set("webhook-timestamp", strconv.FormatInt(time.Now().Unix()+1, 10)) }},
			{"late", "webhook-timestamp", func(p *parcel) { again(p, time.Now().Add(-6*time.Minute), body) }},
			{"ahead", "webhook-timestamp", func(p *parcel) { again(p, time.Now().Add(6*time.Minute), body) }},
			{"no signature", "webhook-signature", func(p *parcel) { p.header.Del("webhook-signature") }},
			{"version", "webhook-signature", func(p *parcel) { p.set("webhook-signature", "v1a"+p.header.Get("webhook-signature")[2:]) }},
			{"body", "webhook-signature", func(p *parcel) { p.replace(`"a"`, `"b"`) }},
			{"no type", "not {type", func(p *parcel) { again(p, time.Now(), `{"timestamp":"2026-11-21T08:00:00Z","data":{}}`) }},
			{"no time", "not {type", func(p *parcel) { again(p, time.Now(), `{"type":"push","data":{}}`) }},
		})
	})
}
