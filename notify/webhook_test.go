package notify_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// An endpoint that knows a secret, or only the public half of a key, takes what is signed
// with its own and nothing else.
func TestWebhookSignatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		stranger, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		defer stranger.Close()
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(p.PrivateKey, "whsk_"))
		must(t, err)
		seed := "whsk_" + base64.StdEncoding.EncodeToString(ed25519.PrivateKey(raw).Seed())
		for _, tt := range []struct {
			name    string
			secrets []string
			want    notify.Action
		}{
			{"its secret", []string{p.Secret}, notify.Done},
			{"its key", []string{p.PrivateKey}, notify.Done},
			{"the seed of its key", []string{seed}, notify.Done},
			{"an old one and its key", []string{stranger.Secret, p.PrivateKey}, notify.Done},
			{"another's secret", []string{stranger.Secret}, notify.Retry},
			{"another's key", []string{stranger.PrivateKey}, notify.Retry},
		} {
			s, err := notify.NewWebhook(notify.WebhookConfig{Endpoint: p.URL + "/hook", EndpointSecrets: tt.secrets, Wire: wire(&p.Host)})
			must(t, err)
			closeLater(t, &p.Host, s)
			o := s.Send(t.Context(), notify.Message{ID: "job-1", Title: "a"}, notify.Target{})
			if o.Action != tt.want {
				t.Errorf("%s: outcome %+v, want %s", tt.name, o, tt.want)
			}
		}
	})
}

func TestBadSecrets(t *testing.T) {
	encode := func(n int) string { return base64.StdEncoding.EncodeToString(make([]byte, n)) }
	for _, secret := range []string{
		"", "whsec_", "whsec_c2VjcmV0", "whsec_" + encode(65), "whsk_" + encode(24), "whsk_" + encode(64), "whpk_" + encode(32), "$",
	} {
		_, err := notify.NewWebhook(notify.WebhookConfig{Keys: []string{secret}})
		if err == nil || !strings.Contains(err.Error(), "Keys[0]: want whsec_") || strings.Contains(err.Error(), "c2VjcmV0") {
			t.Errorf("%q: error %v", secret, err)
		}
	}
}
