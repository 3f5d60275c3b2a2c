package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
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
	sample.Slow(t)
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
			"--webpush-subject", "mailto:push@school.example", "--webpush-private",
		}},
		{"webhook", hook.PrivateKey, &hook.Host, notify.Target{Token: hook.URL + "/"}, []string{"--webhook-private"}},
	}
	for _, tt := range tests {
		t.Run(tt.sender, func(t *testing.T) {
			defer tt.host.Close()
			server, dir := redistest.Start(t), t.TempDir()
			target := tt.target
			for _, user := range []string{"teacher", "gone"} {
				if target = tt.target; tt.sender == "webhook" { // an endpoint that is gone gets nothing more
					target.Token += user
				}
				job, err := notify.NewJob("school", user, notify.Message{Title: user, Targets: []notify.Target{target}})
				must(t, err)
				_, err = newClient(t, server.Client(t), "push").Enqueue(t.Context(), job)
				must(t, err)
			}
			tt.host.Answer(func(r notifytest.Received) *notifytest.Answer {
				switch {
				case r.Title != "gone": // the teacher's, or the check of the credentials
					return nil
				case tt.sender == "fcm":
					return notifytest.Unregistered()
				case tt.sender == "apns":
					return notifytest.Gone(time.Now())
				}
				return &notifytest.Answer{Status: 410}
			})
			ca, gone := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "gone.jsonl")
			write(t, ca, string(tt.host.CA))
			args := append([]string{
				"--redis", server.URL(), "--inbox=false", "--drain", "--sender", tt.sender, "--provider-ca", ca, "--forgotten-file", gone,
			}, tt.args...)
			t.Setenv(senders.SecretVariable, "")
			t.Setenv("HOME", dir) // no credentials of gcloud's
			t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "")
			missing := map[string]string{"apns": senders.SecretVariable, "webpush": senders.SecretVariable, "fcm": "--fcm-project"}
			if want := missing[tt.sender]; want != "" {
				if status, _, stderr := work(t, args...); status == 0 || !strings.Contains(stderr, want) {
					t.Errorf("without a secret: status %d, %s", status, stderr)
				}
			}
			t.Setenv(senders.SecretVariable, tt.secret)
			status, stdout, stderr := work(t, args...)
			var titles []string
			for _, r := range tt.host.Received() {
				if r.Title != "" && r.Title != "check" && r.Refused == "" {
					titles = append(titles, r.Title)
				}
			}
			if slices.Sort(titles); status != 0 || !slices.Equal(titles, []string{"gone", "teacher"}) {
				t.Errorf("status %d, received %q\n%s", status, titles, stderr)
			}
			text, err := os.ReadFile(gone)
			must(t, err)
			var line goneLine
			if json.Unmarshal(text, &line) != nil || line.User != "gone" || line.Token != target.Token || line.Why == "" {
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
	t.Parallel()
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

// A worker whose credentials the provider refuses does not start: it says so at once.
func TestCredentialsAreChecked(t *testing.T) {
	tcp := notifytest.Options{TCP: true}
	apns, err := notifytest.NewAPNs(tcp)
	must(t, err)
	defer apns.Close()
	fcm, err := notifytest.NewFCM(tcp)
	must(t, err)
	defer fcm.Close()
	other, err := notifytest.NewAPNs(tcp)
	must(t, err)
	defer other.Close()
	server := redistest.Start(t) // one: Apple takes one token in 20 minutes
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(apns.CA)+string(fcm.CA))
	apple := []string{"--sender=apns", "--provider-url=" + apns.URL, "--apns-key-id=" + apns.KeyID, "--apns-team-id=" + apns.TeamID}
	google := []string{"--sender=fcm", "--provider-url=" + fcm.URL}
	for _, tt := range []struct {
		name, secret string
		args         []string
		want         string // empty: it starts
	}{
		{"apns", string(apns.Key), append(apple, "--apns-topic="+apns.Topic), ""},
		{"another key", string(other.Key), append(apple, "--apns-topic="+apns.Topic), "InvalidProviderToken"},
		{"another app", string(apns.Key), append(apple, "--apns-topic="+apns.Topic, "--apns-topic=com.example.other"), "com.example.other: notify: apns answered 400 Bad Request, TopicDisallowed"},
		{"fcm", string(fcm.ServiceAccount), google, ""},
		{"another project", string(fcm.ServiceAccount), append(google, "--fcm-project=other"), "checking the credentials: notify: fcm answered 404"},
		{"another account", strings.Replace(string(fcm.ServiceAccount), "push@", "other@", 1), google, "invalid_grant"},
		{"nobody there", string(fcm.ServiceAccount), []string{"--sender=fcm", "--provider-url=https://127.0.0.1:1"}, ""},
	} {
		t.Setenv(senders.SecretVariable, tt.secret)
		args := append([]string{"--redis=" + server.URL(), "--inbox=false", "--drain", "--provider-ca=" + ca}, tt.args...)
		status, _, stderr := work(t, args...)
		if (status == 0) != (tt.want == "") || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: status %d, %s; want %q", tt.name, status, stderr, tt.want)
		}
		if tt.name == "nobody there" && !strings.Contains(stderr, "could not be checked") {
			t.Errorf("%s: no warning: %s", tt.name, stderr)
		}
	}
}

// A symmetric secret is one endpoint's: the command does not sign for all with it.
func TestSharedWebhookSecret(t *testing.T) {
	hook, err := notifytest.NewWebhook(notifytest.Options{TCP: true})
	must(t, err)
	defer hook.Close()
	t.Setenv(senders.SecretVariable, hook.Secret)
	status, _, stderr := work(t, "--redis=embedded", "--sender=webhook", "--drain")
	if status != 2 || !strings.Contains(stderr, "it belongs to one endpoint") || strings.Contains(stderr, hook.Secret) {
		t.Errorf("status %d, %s", status, stderr)
	}
	server := redistest.Start(t)
	job, err := notify.NewJob("school", "app", notify.Message{Title: "a"})
	must(t, err)
	_, err = newClient(t, server.Client(t), "push").Enqueue(t.Context(), job)
	must(t, err)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	write(t, ca, string(hook.CA))
	status, _, stderr = work(t, "--redis="+server.URL(), "--sender=webhook", "--drain", "--inbox=false", "--provider-ca="+ca,
		"--webhook-url="+hook.URL+"/own", "--webhook-private")
	if all := hook.Received(); status != 0 || len(all) != 1 || all[0].Device != "/own" || all[0].Refused != "" {
		t.Errorf("status %d, received %+v, %s", status, all, stderr)
	}
}

// Without a secret FCM's credentials are those that Google's own libraries would find.
func TestGoogleDefaultCredentials(t *testing.T) {
	fcm, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer fcm.Close()
	dir := t.TempDir()
	ca, own, file := filepath.Join(dir, "ca.pem"), filepath.Join(dir, ".config", "gcloud"), filepath.Join(dir, "account.json")
	write(t, ca, string(fcm.CA))
	write(t, file, string(fcm.ServiceAccount))
	must(t, os.MkdirAll(own, 0o700))
	machine := httptest.NewServer(fcm.Metadata())
	defer machine.Close()
	t.Setenv(senders.SecretVariable, "")
	args := []string{"--sender=fcm", "--fcm-project=school-push", "--drain", "--inbox=false", "--provider-url=" + fcm.URL, "--provider-ca=" + ca}
	for _, tt := range []struct{ name, variable, home, machine string }{
		{"GOOGLE_APPLICATION_CREDENTIALS", file, t.TempDir(), "127.0.0.1:1"},
		{"gcloud", "", dir, "127.0.0.1:1"},
		{"the metadata server", "", t.TempDir(), strings.TrimPrefix(machine.URL, "http://")},
	} {
		write(t, filepath.Join(own, "application_default_credentials.json"), string(fcm.UserCredentials()))
		t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", tt.variable)
		t.Setenv("HOME", tt.home)
		t.Setenv("GCE_METADATA_HOST", tt.machine)
		before := fcm.Minted()
		status, _, stderr := work(t, append(args, "--redis="+redistest.Start(t).URL())...)
		if status != 0 || fcm.Minted() != before+1 || strings.Contains(stderr, "could not be checked") {
			t.Errorf("%s: status %d, %d tokens, %s", tt.name, status, fcm.Minted()-before, stderr)
		}
	}
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(dir, "none"))
	if status, _, stderr := work(t, append(args, "--redis=embedded")...); status != 1 || !strings.Contains(stderr, "GOOGLE_APPLICATION_CREDENTIALS: open") {
		t.Errorf("a file that is not there: status %d, %s", status, stderr)
	}
}

// One worker with several senders: each target goes to its own, and SIGHUP opens the file
// of forgotten tokens again after it was moved away.
func TestConfigFile(t *testing.T) {
	tcp := notifytest.Options{TCP: true}
	apple, err := notifytest.NewAPNs(tcp)
	must(t, err)
	defer apple.Close()
	google, err := notifytest.NewFCM(tcp)
	must(t, err)
	defer google.Close()
	google.Answer(func(r notifytest.Received) *notifytest.Answer {
		if strings.HasSuffix(r.Device, "-phone") {
			return notifytest.Unregistered()
		}
		return nil
	})
	server, dir := redistest.Start(t), t.TempDir()
	for name, text := range map[string]string{
		"key.p8": string(apple.Key), "account.json": string(google.ServiceAccount), "apple.pem": string(apple.CA), "google.pem": string(google.CA),
		"notify.yaml": "providers:\n" +
			"  - {sender: apns, secret-file: key.p8, apns-key-id: " + apple.KeyID + ", apns-team-id: " + apple.TeamID + ", apns-topic: [" + apple.Topic + "], provider-url: \"" + apple.URL + "\", provider-ca: apple.pem}\n" +
			"  - {sender: fcm, secret-file: account.json, provider-url: \"" + google.URL + "\", provider-ca: google.pem}\n",
	} {
		write(t, filepath.Join(dir, name), text)
	}
	t.Setenv(senders.SecretVariable, "")
	t.Setenv("WATERCLOCK_FORGOTTEN_FILE", filepath.Join(dir, "gone.jsonl"))
	client := server.Client(t)
	offer := func(user string) {
		job, err := notify.NewJob("school", user, notify.Message{Title: user, Targets: []notify.Target{
			{Provider: "apns", Token: "0123456789abcdef"}, {Provider: "fcm", Token: user + "-phone"},
		}})
		must(t, err)
		_, err = newClient(t, client, "push").Enqueue(t.Context(), job)
		must(t, err)
	}
	var stderr redistest.Buffer
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(stderr.String())
		}
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	args := []string{"--redis", server.URL(), "--inbox=false", "--config", filepath.Join(dir, "notify.yaml"), "--forgotten-stream"}
	go func() {
		err := run(ctx, args, nil, &stderr, &stderr)
		fmt.Fprint(&stderr, err)
		ended <- err
	}()
	gone := func(name, token string) {
		t.Helper()
		redistest.Eventually(t, 20*time.Second, token+" in "+name, func() bool {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			return strings.Contains(string(text), `"provider":"fcm","token":"`+token+`"`)
		})
	}
	offer("one")
	gone("gone.jsonl", "one-phone")
	must(t, os.Rename(filepath.Join(dir, "gone.jsonl"), filepath.Join(dir, "old.jsonl")))
	must(t, syscall.Kill(os.Getpid(), syscall.SIGHUP))
	redistest.Eventually(t, 20*time.Second, "the file is there again", func() bool {
		_, err := os.Stat(filepath.Join(dir, "gone.jsonl"))
		return err == nil
	})
	offer("two")
	gone("gone.jsonl", "two-phone")
	stop()
	must(t, <-ended)
	if n := len(apple.Received()); n < 2 {
		t.Errorf("%d messages to Apple's device\n%s", n, stderr.String())
	}
	stream, err := client.XRange(context.Background(), "wc:{push}:notify:forgotten", "-", "+").Result()
	must(t, err)
	if len(stream) != 2 || stream[1].Values["token"] != "two-phone" || stream[1].Values["why"] != "UNREGISTERED" {
		t.Errorf("the stream has %+v", stream)
	}
}

// A mistake in the configuration file is named with its place.
func TestBadConfigFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "notify.yaml")
	for text, want := range map[string]string{
		"":                            "no providers; want a list",
		"providers: [{sender: sms}]":  `provider 1: sender "sms"; want fcm, apns, webpush, webhook`,
		"providers: [{sender: apns}]": "provider 1: --apns-key-id: the sender apns needs it",
		"providers:\n- {sendr: fcm}":  `provider 1: line 2: unknown key "sendr"`,
		"provider: []":                "field provider not found",
		"providers: [{sender: fcm, apns-topic: a}]": "provider 1: --apns-topic: only the sender apns uses it",
	} {
		write(t, file, text)
		if status, _, stderr := work(t, "--redis=embedded", "--config", file); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%q: status %d, %s; want %s", text, status, stderr, want)
		}
	}
}
