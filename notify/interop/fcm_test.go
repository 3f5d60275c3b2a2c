package interop

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	firebase "firebase.google.com/go/v4"
	"firebase.google.com/go/v4/messaging"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/google"
	"google.golang.org/api/option"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// firebaseClient is Google's own client, with the access tokens of Google's own library.
func firebaseClient(t *testing.T, p *notifytest.FCM) *messaging.Client {
	t.Helper()
	var account struct {
		ProjectID string `json:"project_id"`
	}
	must(t, json.Unmarshal(p.ServiceAccount, &account))
	conn := p.Client()
	t.Cleanup(conn.CloseIdleConnections)
	ctx := context.WithValue(t.Context(), oauth2.HTTPClient, conn)
	credentials, err := google.JWTConfigFromJSON(p.ServiceAccount, "https://www.googleapis.com/auth/firebase.messaging")
	must(t, err)
	app, err := firebase.NewApp(ctx, &firebase.Config{ProjectID: account.ProjectID},
		option.WithHTTPClient(credentials.Client(ctx)), option.WithEndpoint(p.URL+"/v1"))
	must(t, err)
	client, err := app.Messaging(ctx)
	must(t, err)
	return client
}

func TestFirebase(t *testing.T) {
	p, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	client := firebaseClient(t, p)
	m := &messaging.Message{
		Token: "device", Data: map[string]string{"screen": "news"},
		Notification: &messaging.Notification{Title: "Hello", Body: "there", ImageURL: "https://school.example/snow.jpg"},
		Android: &messaging.AndroidConfig{
			TTL: new(time.Hour), Priority: "high", CollapseKey: "news", Notification: &messaging.AndroidNotification{Sound: "default"},
		},
		APNS: &messaging.APNSConfig{Payload: &messaging.APNSPayload{Aps: &messaging.Aps{Badge: new(3)}}},
	}
	_, err = client.Send(t.Context(), m)
	must(t, err)
	arrived(t, &p.Host, "Hello")
	got := p.Received()[0]
	if got.Sound != "default" || got.Badge == nil || *got.Badge != 3 || got.Image == "" || got.Data["screen"] != "news" {
		t.Errorf("received %+v", got)
	}
	for _, tt := range []struct {
		status int
		code   string
		is     func(error) bool
	}{
		{http.StatusNotFound, "UNREGISTERED", messaging.IsUnregistered},
		{http.StatusForbidden, "SENDER_ID_MISMATCH", messaging.IsSenderIDMismatch},
		{http.StatusTooManyRequests, "QUOTA_EXCEEDED", messaging.IsQuotaExceeded},
		{http.StatusUnauthorized, "THIRD_PARTY_AUTH_ERROR", messaging.IsThirdPartyAuthError},
		{http.StatusBadRequest, "INVALID_ARGUMENT", messaging.IsInvalidArgument},
	} {
		p.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.FCMError(tt.status, tt.code) })
		if _, err := client.Send(t.Context(), m); !tt.is(err) {
			t.Errorf("%s is understood as %v", tt.code, err)
		}
	}
}

// And the other way round: what our sender says, Google's types read and say again just
// so. They leave out what they do not know.
func TestOurFCM(t *testing.T) {
	p, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	bodies := make(chan []byte, 1)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies <- body
		_, _ = io.WriteString(w, `{"name":"projects/p/messages/1"}`)
	}))
	defer server.Close()
	p.RootCAs.AddCert(server.Certificate())
	sender, err := notify.NewFCM(notify.FCMConfig{
		Credentials: p.ServiceAccount, Wire: notify.Wire{URL: server.URL, RootCAs: p.RootCAs},
	})
	must(t, err)
	defer sender.Close()
	for _, m := range []notify.Message{
		{Title: "Hello", Body: "there"},
		{
			Title: "Hello", Data: map[string]string{"screen": "news"}, Sound: "default", Badge: new(3),
			Image: "https://school.example/snow.jpg", CollapseKey: "news", Priority: notify.High, Expires: time.Now().Add(time.Hour),
		},
		{Data: map[string]string{"screen": "news"}, Priority: notify.Low},
		{Badge: new(0)},
		{
			Title: "Hello", ChannelID: "news", Category: "REPLY", ThreadID: "class-7", InterruptionLevel: "time-sensitive",
			ClickAction: "https://school.example/news", Tag: "closed",
			Android: map[string]any{"notification": map[string]any{"color": "#336699"}, "restricted_package_name": "com.example.school"},
			APNs:    map[string]any{"headers": map[string]any{"apns-priority": "10"}, "payload": map[string]any{"aps": map[string]any{"relevance-score": 0.5}}},
			WebPush: map[string]any{"notification": map[string]any{"requireInteraction": true}, "headers": map[string]any{"Urgency": "high"}},
		},
	} {
		if o := sender.Send(t.Context(), m, notify.Target{Token: "device"}); o.Action != notify.Done {
			t.Fatalf("outcome %+v", o)
		}
		var said struct {
			Message json.RawMessage `json:"message"`
		}
		must(t, json.Unmarshal(<-bodies, &said))
		var read messaging.Message
		must(t, json.Unmarshal(said.Message, &read))
		again, err := json.Marshal(&read)
		must(t, err)
		if !reflect.DeepEqual(fields(t, said.Message), fields(t, again)) {
			t.Errorf("ours:     %s\nGoogle's: %s", said.Message, again)
		}
	}
}

func fields(t *testing.T, text []byte) (all map[string]any) {
	t.Helper()
	must(t, json.Unmarshal(text, &all))
	return all
}
