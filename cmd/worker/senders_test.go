package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/senders"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Each sender delivers over the real protocol, and its secret is seen nowhere; a device
// that is gone is written down for the app.
func TestProviders(t *testing.T) {
	tcp := notifytest.Options{TCP: true}
	apns, err := notifytest.NewAPNs(tcp)
	must(t, err)
	fcm, err := notifytest.NewFCM(tcp)
	must(t, err)
	web, err := notifytest.NewWebPush(tcp)
	must(t, err)
	sub, err := web.Subscribe("browser")
	must(t, err)
	hook, err := notifytest.NewWebhook(tcp)
	must(t, err)
	tests := []struct {
		sender, secret string
		host           *notifytest.Host
		target         notify.Target
		args           []string
	}{
		{"apns", string(apns.Key), &apns.Host, notify.Target{Token: "0123456789abcdef"}, []string{
			"--provider-url", apns.URL, "--apns-key-id", apns.KeyID, "--apns-team-id", apns.TeamID, "--apns-topic", apns.Topic,
		}},
		{"fcm", string(fcm.ServiceAccount), &fcm.Host, notify.Target{Token: "device"}, []string{"--provider-url", fcm.URL}},
		{"webpush", web.Key, &web.Host, notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}, []string{
			"--webpush-subject", "mailto:push@school.example",
		}},
		{"webhook", hook.Secret, &hook.Host, notify.Target{Token: hook.URL + "/hook"}, []string{"--webhook-private"}},
	}
	for _, tt := range tests {
		t.Run(tt.sender, func(t *testing.T) {
			defer tt.host.Close()
			server, dir := redistest.Start(t), t.TempDir()
			for _, user := range []string{"teacher", "gone"} {
				job, err := notify.NewJob("school", user, notify.Message{Title: user, Targets: []notify.Target{tt.target}})
				must(t, err)
				_, err = newClient(t, server.Client(t), "push").Enqueue(t.Context(), job)
				must(t, err)
			}
			tt.host.Answer(func(r notifytest.Received) *notifytest.Answer {
				switch {
				case r.Title == "teacher":
					return nil
				case tt.sender == "fcm":
					return notifytest.Unregistered()
				}
				return &notifytest.Answer{Status: 410}
			})
			ca, gone := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "gone.jsonl")
			write(t, ca, string(tt.host.CA))
			args := append([]string{
				"--redis", server.URL(), "--inbox=false", "--drain", "--sender", tt.sender, "--provider-ca", ca, "--forgotten-file", gone,
			}, tt.args...)
			t.Setenv(senders.SecretVariable, "")
			if status, _, stderr := work(t, args...); status != 2 || !strings.Contains(stderr, senders.SecretVariable) {
				t.Errorf("without a secret: status %d, %s", status, stderr)
			}
			t.Setenv(senders.SecretVariable, tt.secret)
			status, stdout, stderr := work(t, args...)
			if status != 0 || len(tt.host.Refusals()) > 0 || len(tt.host.Received()) != 2 {
				t.Errorf("status %d, refused %q, received %+v\n%s", status, tt.host.Refusals(), tt.host.Received(), stderr)
			}
			text, err := os.ReadFile(gone)
			must(t, err)
			var line goneLine
			if json.Unmarshal(text, &line) != nil || line.User != "gone" || line.Token != tt.target.Token || line.Why == "" {
				t.Errorf("forgotten: %s", text)
			}
			for _, secret := range []string{strings.TrimSpace(tt.secret), tt.target.Token, "PRIVATE"} {
				if strings.Contains(stdout+stderr, secret) {
					t.Errorf("a secret is printed:\n%s", stderr)
				}
			}
		})
	}
}

// A secret that is none is not printed for that.
func TestBadSecret(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	write(t, file, "s3cr3t")
	for _, sender := range []string{"fcm", "webpush --webpush-subject=mailto:a@example.com", "webhook",
		"apns --apns-key-id=a --apns-team-id=b --apns-topic=c"} {
		args := strings.Fields("--redis=embedded --secret-file=" + file + " --sender=" + sender)
		status, stdout, stderr := work(t, args...)
		if status != 1 || strings.Contains(fmt.Sprint(stdout, stderr), "s3cr3t") || !strings.Contains(stderr, "worker: notify: ") {
			t.Errorf("%s: status %d, %s", sender, status, stderr)
		}
	}
}
