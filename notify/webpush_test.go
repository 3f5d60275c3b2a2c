package notify

import (
	"fmt"
	"net/url"
	"testing"
)

// A VAPID token is for the origin as the push service writes it, however a subscription
// writes it.
func TestOrigins(t *testing.T) {
	for address, want := range map[string]string{
		"https://push.example/x":              "https://push.example",
		"HTTPS://FCM.GoogleAPIs.com:443/x":    "https://fcm.googleapis.com",
		"https://push.example:8443/x":         "https://push.example:8443",
		"https://[2606:4700::1111]:443/wpush": "https://[2606:4700::1111]",
	} {
		u, err := url.Parse(address)
		must(t, err)
		if got := originOf(u); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// Subscriptions come from users: made-up origins do not fill the memory with tokens.
func TestVAPIDTokensAreBounded(t *testing.T) {
	w, err := NewWebPush(WebPushConfig{Key: "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", Subject: "mailto:push@school.example"})
	must(t, err)
	defer w.Close()
	first, err := w.vapid(t.Context(), "https://0.example")
	must(t, err)
	again, err := w.vapid(t.Context(), "https://0.example")
	must(t, err)
	if first != again {
		t.Error("a token is signed for each message")
	}
	for i := range maxOrigins + 100 {
		if _, err := w.vapid(t.Context(), fmt.Sprintf("https://%d.example", i)); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(w.tokens); n > maxOrigins {
		t.Errorf("%d tokens are kept", n)
	}
}
