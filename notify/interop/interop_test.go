package interop

import (
	"bytes"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/SherClockHolmes/webpush-go"
	"github.com/sideshow/apns2"
	"github.com/sideshow/apns2/token"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// arrived checks that a message arrived, and that there was nothing to object to.
func arrived(t *testing.T, h *notifytest.Host, title string) {
	t.Helper()
	all := h.Received()
	if len(all) != 1 || all[0].Refused != "" || all[0].Status/100 != 2 || all[0].Title != title {
		t.Errorf("received %+v", all)
	}
}

func TestAPNs2(t *testing.T) {
	p, err := notifytest.NewAPNs(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	key, err := token.AuthKeyFromBytes(p.Key)
	must(t, err)
	client := apns2.NewTokenClient(&token.Token{AuthKey: key, KeyID: p.KeyID, TeamID: p.TeamID})
	client.Host, client.HTTPClient = p.URL, p.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Push(&apns2.Notification{
		DeviceToken: "0123456789abcdef", Topic: p.Topic, CollapseID: "news", Expiration: time.Now().Add(time.Hour),
		Priority: apns2.PriorityHigh, PushType: apns2.PushTypeAlert,
		Payload: []byte(`{"aps":{"alert":{"title":"Hello","body":"there"}}}`),
	})
	must(t, err)
	if !resp.Sent() {
		t.Errorf("answered %d %s", resp.StatusCode, resp.Reason)
	}
	arrived(t, &p.Host, "Hello")
	p.Answer(func(notifytest.Received) *notifytest.Answer {
		return notifytest.Gone(time.UnixMilli(1_700_000_000_000))
	})
	resp, err = client.Push(&apns2.Notification{DeviceToken: "0123456789abcdef", Topic: p.Topic, PushType: apns2.PushTypeAlert, Payload: []byte(`{"aps":{}}`)})
	must(t, err)
	if resp.Reason != apns2.ReasonUnregistered || resp.Timestamp.UnixMilli() != 1_700_000_000_000 {
		t.Errorf("a dead token is understood as %+v", resp)
	}
}

func TestWebPushGo(t *testing.T) {
	p, err := notifytest.NewWebPush(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	sub, err := p.Subscribe("browser")
	must(t, err)
	client := p.Client()
	defer client.CloseIdleConnections()
	resp, err := webpush.SendNotification([]byte(`{"title":"Hello"}`), &webpush.Subscription{
		Endpoint: sub.Endpoint, Keys: webpush.Keys{P256dh: sub.P256dh, Auth: sub.Auth},
	}, &webpush.Options{
		HTTPClient: client, Subscriber: "push@school.example", TTL: 60, Topic: "news", Urgency: webpush.UrgencyHigh,
		VAPIDPublicKey: p.Public(), VAPIDPrivateKey: p.Key,
	})
	must(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		text, _ := io.ReadAll(resp.Body)
		t.Errorf("answered %d %s", resp.StatusCode, text)
	}
	arrived(t, &p.Host, "Hello")
}

func TestStandardWebhooks(t *testing.T) {
	p, err := notifytest.NewWebhook(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	signer, err := standardwebhooks.NewWebhook(p.Secret)
	must(t, err)
	now := time.Now()
	body := []byte(`{"type":"push","timestamp":"2026-11-21T08:00:00Z","data":{"title":"Hello"}}`)
	signature, err := signer.Sign("msg_1", now, body)
	must(t, err)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, p.URL+"/hook", bytes.NewReader(body))
	must(t, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("webhook-id", "msg_1")
	req.Header.Set("webhook-timestamp", unix(now))
	req.Header.Set("webhook-signature", signature)
	client := p.Client()
	defer client.CloseIdleConnections()
	resp, err := client.Do(req)
	must(t, err)
	resp.Body.Close()
	arrived(t, &p.Host, "Hello")
}

// And the other way round: the reference verifier takes what our sender signs.
func TestOurWebhook(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	verifier, err := standardwebhooks.NewWebhook(secret)
	must(t, err)
	verified := make(chan error, 1)
	server := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = verifier.Verify(body, r.Header)
		}
		verified <- err
	})
	sender, err := notify.NewWebhook(notify.WebhookConfig{AllowPrivate: true})
	must(t, err)
	defer sender.Close()
	if o := sender.Send(t.Context(), notify.Message{ID: "job-1", Title: "Hello"}, notify.Target{Token: server, Secret: secret}); o.Action != notify.Done {
		t.Errorf("outcome %+v", o)
	}
	must(t, <-verified)
}
