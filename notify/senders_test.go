package notify_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// A stage is a provider and a sender that reaches it.
type stage struct {
	host    *notifytest.Host
	sender  notify.Sender
	target  notify.Target
	secrets []string // that must not be seen anywhere
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wire reaches a provider.
func wire(h *notifytest.Host) notify.Wire {
	return notify.Wire{URL: h.URL, RootCAs: h.RootCAs, Dial: h.Dial}
}

func closeLater(t testing.TB, h *notifytest.Host, s io.Closer) {
	t.Cleanup(func() {
		s.Close()
		h.Close()
	})
}

func apnsStage(t testing.TB, rdb redis.UniversalClient) stage {
	t.Helper()
	p, err := notifytest.NewAPNs(notifytest.Options{})
	must(t, err)
	s := apnsSender(t, p, rdb)
	return stage{&p.Host, s, notify.Target{Token: "0123456789abcdef"}, []string{string(p.Key), "0123456789abcdef"}}
}

func apnsSender(t testing.TB, p *notifytest.APNs, rdb redis.UniversalClient) *notify.APNs {
	t.Helper()
	s, err := notify.NewAPNs(notify.APNsConfig{
		Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic, Redis: rdb, Wire: wire(&p.Host),
	})
	must(t, err)
	closeLater(t, &p.Host, s)
	return s
}

func fcmStage(t testing.TB) (stage, *notifytest.FCM) {
	t.Helper()
	p, err := notifytest.NewFCM(notifytest.Options{})
	must(t, err)
	s, err := notify.NewFCM(notify.FCMConfig{Credentials: p.ServiceAccount, Wire: wire(&p.Host)})
	must(t, err)
	closeLater(t, &p.Host, s)
	return stage{&p.Host, s, notify.Target{Token: "fcm-device-1"}, []string{"PRIVATE KEY", "fcm-device-1", "ya29"}}, p
}

func webpushStage(t testing.TB) stage {
	t.Helper()
	p, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	sub, err := p.Subscribe("browser-1")
	must(t, err)
	s, err := notify.NewWebPush(notify.WebPushConfig{Key: p.Key, Subject: "mailto:push@school.example", Wire: wire(&p.Host)})
	must(t, err)
	closeLater(t, &p.Host, s)
	to := notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}
	return stage{&p.Host, s, to, []string{p.Key, "browser-1", sub.Auth}}
}

func webhookStage(t testing.TB) stage {
	t.Helper()
	p, err := notifytest.NewWebhook(notifytest.Options{})
	must(t, err)
	s, err := notify.NewWebhook(notify.WebhookConfig{Delays: []time.Duration{5 * time.Second, time.Minute}, Wire: wire(&p.Host)})
	must(t, err)
	closeLater(t, &p.Host, s)
	return stage{&p.Host, s, notify.Target{Token: p.URL + "/hooks/school-7", Secret: otherSecret + " " + p.Secret}, []string{p.Secret, otherSecret, "school-7"}}
}

const otherSecret = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"

// stages is every sender with its provider.
var stages = map[string]func(t testing.TB) stage{
	"apns":    func(t testing.TB) stage { return apnsStage(t, nil) },
	"fcm":     func(t testing.TB) stage { s, _ := fcmStage(t); return s },
	"webpush": webpushStage,
	"webhook": webhookStage,
}

// inBubbles runs a test for every sender, on virtual time.
func inBubbles(t *testing.T, test func(t *testing.T, s stage)) {
	for name, open := range stages {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test(t, open(t)) })
		})
	}
}

// A whole message arrives as it is meant, and the provider has nothing to object to.
func TestSenders(t *testing.T) {
	t.Parallel()
	inBubbles(t, func(t *testing.T, s stage) {
		m := notify.Message{
			ID: "job-1", Title: "School is closed", Body: "Snow, \"deep\" & white. Привет ❄",
			Data: map[string]string{"screen": "news"}, Priority: notify.High,
			Sound: "default", Badge: new(3), Image: "https://school.example/snow.jpg",
			CollapseKey: "closed: a key that is too long and has spaces, for any provider's header", Expires: time.Now().Add(90 * time.Minute),
		}
		if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Done || o.Err != nil {
			t.Fatalf("outcome %+v; refused %q", o, s.host.Refusals())
		}
		got := last(t, s.host)
		if got.Title != m.Title || got.Body != m.Body || got.Data["screen"] != "news" || got.Refused != "" || got.Collapse == "" {
			t.Errorf("received %+v", got)
		}
		if got.Sound != m.Sound || got.Badge == nil || *got.Badge != 3 || got.Image != m.Image || len(got.Data) != 1 {
			t.Errorf("received %+v with badge %v", got, got.Badge)
		}
		if off := got.Expires.Sub(m.Expires).Abs(); off > time.Second {
			t.Errorf("it expires %v, %v off", got.Expires, off)
		}
		// Only data, low, for ever.
		m = notify.Message{ID: "job-2", Data: map[string]string{"badge": "3"}, Priority: notify.Low}
		if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Done {
			t.Fatalf("outcome %+v; refused %q", o, s.host.Refusals())
		}
		if got := last(t, s.host); got.Data["badge"] != "3" || got.Title != "" || got.Badge != nil {
			t.Errorf("received %+v", got)
		}
		// Only a badge, which goes.
		m = notify.Message{ID: "job-3", Badge: new(int)}
		if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Done {
			t.Fatalf("outcome %+v; refused %q", o, s.host.Refusals())
		}
		if got := last(t, s.host); got.Badge == nil || *got.Badge != 0 || got.Title != "" {
			t.Errorf("received %+v", got)
		}
	})
}

func last(t *testing.T, h *notifytest.Host) notifytest.Received {
	t.Helper()
	all := h.Received()
	if len(all) == 0 {
		t.Fatal("nothing arrived")
	}
	return all[len(all)-1]
}

// Whatever goes wrong is one request, ends in time, says what is to be done and tells no
// secret.
func TestTrouble(t *testing.T) {
	t.Parallel()
	every := func(a notify.Action) map[string]notify.Action {
		return map[string]notify.Action{"apns": a, "fcm": a, "webpush": a, "webhook": a}
	}
	tests := []struct {
		name    string
		answer  *notifytest.Answer
		want    map[string]notify.Action
		after   time.Duration
		reached bool
		takes   time.Duration
	}{
		{"too many", notifytest.TooMany(7 * time.Second), map[string]notify.Action{
			"apns": notify.Defer, "fcm": notify.Pause, "webpush": notify.Defer, "webhook": notify.Retry,
		}, 7 * time.Second, false, 0},
		{"unavailable", notifytest.Unavailable(30 * time.Second), map[string]notify.Action{
			"apns": notify.Pause, "fcm": notify.Pause, "webpush": notify.Pause, "webhook": notify.Retry,
		}, 30 * time.Second, false, 0},
		{"html", notifytest.HTML(http.StatusInternalServerError), map[string]notify.Action{
			"apns": notify.Pause, "fcm": notify.Retry, "webpush": notify.Retry, "webhook": notify.Retry,
		}, -1, false, 0},
		{"gone", notifytest.Gone(time.Now().Add(-time.Hour)), map[string]notify.Action{
			"apns": notify.Forget, "fcm": notify.Halt, "webpush": notify.Forget, "webhook": notify.Forget,
		}, -1, false, 0},
		{"hang", &notifytest.Answer{Hang: true}, every(notify.Retry), -1, true, 15 * time.Second},
		{"cut", &notifytest.Answer{Cut: true}, every(notify.Retry), -1, true, 0},
		{"slow", &notifytest.Answer{Delay: 14 * time.Second}, every(notify.Done), -1, true, 14 * time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for name, open := range stages {
				synctest.Test(t, func(t *testing.T) {
					s := open(t)
					s.host.Answer(func(notifytest.Received) *notifytest.Answer { return tt.answer })
					begin := time.Now()
					o := s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
					if took := time.Since(begin); took < tt.takes || took > tt.takes+time.Second {
						t.Errorf("%s took %v, want %v", name, took, tt.takes)
					}
					if o.Action != tt.want[name] || tt.after >= 0 && o.After != tt.after || o.Reached != (tt.reached && o.Action != notify.Done) {
						t.Errorf("%s: outcome %+v, want %s after %v", name, o, tt.want[name], tt.after)
					}
					if n := len(s.host.Received()); n != 1 {
						t.Errorf("%s: %d requests, want 1", name, n)
					}
					for _, secret := range s.secrets {
						if text := fmt.Sprintf("%v %+v %#v", o.Err, o.Err, s.target); strings.Contains(text, secret) {
							t.Errorf("%s: a secret is in %s", name, text)
						}
					}
				})
			}
		})
	}
}

// During a pause an endpoint is left alone, whoever wants to send.
func TestAPauseIsKept(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"webhook"} {
		synctest.Test(t, func(t *testing.T) {
			s := stages[name](t)
			s.host.Answer(func(notifytest.Received) *notifytest.Answer {
				s.host.Answer(nil)
				return notifytest.TooMany(10 * time.Second)
			})
			for range 20 {
				s.sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, s.target)
				time.Sleep(time.Second)
			}
			all := s.host.Received()
			if len(all) != 11 || all[1].At.Sub(all[0].At) < 10*time.Second {
				t.Errorf("%s: %d requests, the second %v after the first", name, len(all), all[1].At.Sub(all[0].At))
			}
		})
	}
}

// What Apple's payload has a field for already cannot be data too.
func TestDataHasNoTakenNames(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := apnsStage(t, nil)
		for _, name := range []string{"aps", "image"} {
			m := notify.Message{Title: "a", Image: "https://school.example/snow.jpg", Data: map[string]string{name: "b"}}
			if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Drop || !strings.Contains(o.Err.Error(), name) {
				t.Errorf("%s: outcome %+v", name, o)
			}
		}
		if n := len(s.host.Received()); n > 0 {
			t.Errorf("%d requests, want none", n)
		}
	})
}

// A fake that took everything would prove nothing.
func TestProvidersAreStrict(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		other, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		defer other.Close()
		p.Key, other.Key = other.Key, p.Key
		s := apnsSender(t, p, nil)
		o := s.Send(t.Context(), notify.Message{Title: "a"}, notify.Target{Token: "0123456789abcdef"})
		if o.Action != notify.Halt || !strings.Contains(o.Err.Error(), "InvalidProviderToken") {
			t.Errorf("a key that the provider does not know: %+v", o)
		}
	})
	for name, open := range stages {
		synctest.Test(t, func(t *testing.T) {
			s := open(t)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.host.URL+"/3/device/0123456789abcdef", strings.NewReader("{}"))
			must(t, err)
			client := s.host.Client()
			defer client.CloseIdleConnections()
			resp, err := client.Do(req)
			must(t, err)
			resp.Body.Close()
			if resp.StatusCode < 400 {
				t.Errorf("%s answered %d to nonsense", name, resp.StatusCode)
			}
		})
	}
}

// Without the authority that vouches for a provider nothing is sent.
func TestUnknownAuthority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewAPNs(notifytest.Options{})
		must(t, err)
		s, err := notify.NewAPNs(notify.APNsConfig{
			Key: p.Key, KeyID: p.KeyID, TeamID: p.TeamID, Topic: p.Topic,
			Wire: notify.Wire{URL: p.URL, Dial: p.Dial, RootCAs: x509.NewCertPool()},
		})
		must(t, err)
		closeLater(t, &p.Host, s)
		o := s.Send(t.Context(), notify.Message{Title: "a"}, notify.Target{Token: "0123456789abcdef"})
		if o.Action != notify.Retry || o.Reached || len(p.Received()) != 0 {
			t.Errorf("outcome %+v, %d requests", o, len(p.Received()))
		}
	})
}

func TestBadConfigs(t *testing.T) {
	p, err := notifytest.NewAPNs(notifytest.Options{})
	must(t, err)
	defer p.Close()
	secret := "-----BEGIN PRIVATE KEY-----\nc2VjcmV0\n-----END PRIVATE KEY-----"
	errs := map[string]error{}
	_, errs["apns: Key"] = notify.NewAPNs(notify.APNsConfig{Key: []byte(secret), KeyID: "a", TeamID: "b", Topic: "c"})
	_, errs["apns: KeyID"] = notify.NewAPNs(notify.APNsConfig{Key: p.Key})
	_, errs["URL"] = notify.NewAPNs(notify.APNsConfig{Key: p.Key, KeyID: "a", TeamID: "b", Topic: "c", Wire: notify.Wire{URL: "c2VjcmV0"}})
	_, errs["fcm: Credentials"] = notify.NewFCM(notify.FCMConfig{Credentials: []byte(secret)})
	_, errs["private_key"] = notify.NewFCM(notify.FCMConfig{Credentials: []byte(`{"project_id":"p","client_email":"e","token_uri":"https://t","private_key":"c2VjcmV0"}`)})
	_, errs["webpush: Key"] = notify.NewWebPush(notify.WebPushConfig{Key: secret, Subject: "mailto:a@example.com"})
	_, errs["webhook: Keys[0]"] = notify.NewWebhook(notify.WebhookConfig{Keys: []string{"c2VjcmV0"}})
	_, errs["a secret that several endpoints know"] = notify.NewWebhook(notify.WebhookConfig{Keys: []string{otherSecret}})
	_, errs["webhook: EndpointSecrets without Endpoint"] = notify.NewWebhook(notify.WebhookConfig{EndpointSecrets: []string{otherSecret}})
	_, errs["webhook: Endpoint: its requests"] = notify.NewWebhook(notify.WebhookConfig{Endpoint: "https://example.com"})
	_, errs["webhook: Endpoint: want"] = notify.NewWebhook(notify.WebhookConfig{Endpoint: "http://example.com", EndpointSecrets: []string{otherSecret}})
	for _, subject := range []string{"", "a@example.com", "mailto:mailto:a@example.com", "mailto:a@localhost", "https://localhost", "http://example.com"} {
		_, errs["webpush: Subject "+fmt.Sprintf("%q", subject)] = notify.NewWebPush(notify.WebPushConfig{
			Key: "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", Subject: subject,
		})
	}
	for want, err := range errs {
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("error %v, want one about %s", err, want)
		}
	}
}
