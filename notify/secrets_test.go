package notify_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

func lookFor(t *testing.T, seen string, secrets []string) {
	t.Helper()
	for _, secret := range secrets {
		if at := strings.Index(seen, secret); at >= 0 {
			t.Errorf("a secret is written down: …%s…", seen[max(0, at-80):min(len(seen), at+80)])
		}
	}
}

// Nothing that is written down anywhere has a secret in it.
func TestNoSecrets(t *testing.T) {
	t.Parallel()
	answers := []*notifytest.Answer{
		nil, notifytest.TooMany(time.Second), notifytest.Unavailable(0), notifytest.HTML(500), notifytest.HTML(403),
		{Status: 404}, {Status: 400, Body: `{"reason":"BadDeviceToken"}`}, {Hang: true}, {Cut: true},
	}
	inBubbles(t, func(t *testing.T, stage stage) {
		registry := prometheus.NewRegistry()
		s := newSchool(t, stage.sender, notify.HandlerConfig{Registerer: registry}, queue.Policy{})
		n := 0
		stage.host.Answer(func(notifytest.Received) *notifytest.Answer {
			n++
			if i := n % (len(answers) + 1); i < len(answers) {
				return answers[i]
			}
			return notifytest.Reason(400, "no such device: "+stage.target.Token)
		})
		for i := range 12 {
			s.notify(fmt.Sprint("user-", i), notify.Message{Title: "a", Targets: []notify.Target{stage.target}})
			time.Sleep(20 * time.Second)
		}
		dead, err := s.inspector().Dead(t.Context(), "", 100)
		must(t, err)
		families, err := registry.Gather()
		must(t, err)
		seen := s.logged() + fmt.Sprint(families)
		for _, d := range dead {
			seen += d.Error
		}
		if !strings.Contains(seen, "waterclock_sends_total") || !strings.Contains(seen, "answered") {
			t.Errorf("there is too little to look at: %s", seen)
		}
		lookFor(t, seen, append(stage.secrets, stage.target.Token, "PRIVATE KEY", "eyJ")) // so a signed token begins
	})
}

// Neither fmt nor slog shows what a configuration, a sender, a message or a target holds.
func TestNoSecretsInDumps(t *testing.T) {
	const token, host, password = "5ec4e75ec4e75ec4e7", "s3cr3t.example", "pa55word"
	apple, err := notifytest.NewAPNs(notifytest.Options{})
	must(t, err)
	defer apple.Close()
	google, err := notifytest.NewFCM(notifytest.Options{})
	must(t, err)
	defer google.Close()
	browsers, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	defer browsers.Close()
	sub, err := browsers.Subscribe("browser")
	must(t, err)
	w := notify.Wire{Proxy: "http://user:" + password + "@proxy.example"}
	own := notify.APNsConfig{Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, Topic: apple.Topic, Wire: w}
	fcm := notify.FCMConfig{Credentials: google.ServiceAccount, Wire: w}
	web := notify.WebPushConfig{Key: browsers.Key, Subject: "mailto:push@school.example", Wire: wire(&browsers.Host)}
	hook := notify.WebhookConfig{Endpoint: "https://" + host, EndpointSecrets: []string{otherSecret}, Wire: w}
	a, err := notify.NewAPNs(own)
	must(t, err)
	defer a.Close()
	f, err := notify.NewFCM(fcm)
	must(t, err)
	defer f.Close()
	p, err := notify.NewWebPush(web)
	must(t, err)
	defer p.Close()
	h, err := notify.NewWebhook(hook)
	must(t, err)
	defer h.Close()
	browser := notify.Target{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}
	if o := p.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, browser); o.Action != notify.Done {
		t.Fatalf("%s %v", o.Action, o.Err) // now it holds a signed token
	}
	targets := []notify.Target{{Token: token, Secret: otherSecret}, browser}
	var seen redistest.Buffer
	for _, v := range []any{w, own, fcm, web, hook, a, f, p, h, targets[0], notify.Message{Title: "a", Targets: targets}} {
		for _, of := range []any{v, []any{v}, struct{ V any }{v}, &v} {
			for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
				fmt.Fprintf(&seen, verb+"\n", of)
			}
			slog.New(slog.NewTextHandler(&seen, nil)).Info("a", "v", of)
		}
		slog.New(slog.NewJSONHandler(&seen, nil)).Info("a", "v", v)
	}
	bytes := strings.Trim(fmt.Sprint(apple.Key), "[]")
	lookFor(t, seen.String(), []string{
		token, host, password, otherSecret, apple.KeyID, "PRIVATE KEY", bytes, fmt.Sprintf("%x", apple.Key), browsers.Key, sub.Endpoint, sub.Auth, browsers.URL, "eyJ",
	})
}

// Neither the resolver, nor the dialer, nor TLS, nor the guard tells the host of an
// endpoint, which may be a secret: all of them are the real ones here.
func TestNoSecretHosts(t *testing.T) {
	const secret = "s3cr3t-token"
	hook, err := notifytest.NewWebhook(notifytest.Options{TCP: true})
	must(t, err)
	defer hook.Close()
	browsers, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	defer browsers.Close()
	sub, err := browsers.Subscribe("browser")
	must(t, err)
	for _, private := range []bool{true, false} {
		endpoints := map[string]string{ // by what is said of it
			"no such host":            "https://" + secret + ".invalid/" + secret,
			"connection refused":      "https://127.0.0.1:1/" + secret,
			"certificate not trusted": hook.URL + "/" + secret,
			"TLS handshake failed":    "https://" + plainServer(t) + "/" + secret,
			"the target is not":       "ftp://" + secret + ".invalid/",
		}
		if !private {
			endpoints = map[string]string{
				"not a public address": hook.URL + "/" + secret,
				"the target is not":    "http://" + secret + ".invalid/",
			}
		}
		w, err := notify.NewWebhook(notify.WebhookConfig{Keys: []string{hook.PrivateKey}, AllowPrivate: private})
		must(t, err)
		defer w.Close()
		p, err := notify.NewWebPush(notify.WebPushConfig{Key: browsers.Key, Subject: "mailto:push@school.example", AllowPrivate: private})
		must(t, err)
		defer p.Close()
		for name, seen := range map[string]string{
			"webhook": failing(t, w, endpoints, notify.Target{}), "webpush": failing(t, p, endpoints, notify.Target{P256dh: sub.P256dh, Auth: sub.Auth}),
		} {
			for what := range endpoints {
				if !strings.Contains(seen, what) && what != "no such host" { // a machine without DNS says otherwise
					t.Errorf("%s: nothing says %q: %s", name, what, seen)
				}
			}
			lookFor(t, seen, []string{secret, "127.0.0.1", hook.URL, hook.PrivateKey, browsers.Key, sub.Auth})
		}
	}
}

// On the way to Apple and Google the real resolver, dialer and TLS tell no token and no key.
func TestNoSecretsOnTheWay(t *testing.T) {
	const token = "5ec4e75ec4e75ec4e7"
	apple, err := notifytest.NewAPNs(notifytest.Options{TCP: true})
	must(t, err)
	defer apple.Close()
	google, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer google.Close()
	for what, url := range map[string]string{
		"no such host":            "https://relay.invalid",
		"connection refused":      "https://127.0.0.1:1",
		"certificate not trusted": apple.URL,
		"TLS handshake failed":    "https://" + plainServer(t),
	} {
		a, err := notify.NewAPNs(notify.APNsConfig{
			Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, Topic: apple.Topic, Wire: notify.Wire{URL: url},
		})
		must(t, err)
		defer a.Close()
		f, err := notify.NewFCM(notify.FCMConfig{Credentials: google.ServiceAccount, Wire: notify.Wire{URL: url}})
		must(t, err)
		defer f.Close()
		for name, sender := range map[string]notify.Sender{"apns": a, "fcm": f} {
			want := what
			if name == "fcm" {
				want = "certificate not trusted" // of Google's tokens, which come first
			}
			seen := fmt.Sprintf("%+v", sender.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: token}))
			if !strings.Contains(seen, want) && want != "no such host" {
				t.Errorf("%s: nothing says %q: %s", name, want, seen)
			}
			lookFor(t, seen, []string{token, apple.KeyID, string(google.ServiceAccount), "PRIVATE KEY", "eyJ"})
		}
	}
}

// failing has a worker attempt each endpoint once, in real time, and returns what was written
// down anywhere.
func failing(t *testing.T, sender notify.Sender, endpoints map[string]string, to notify.Target) string {
	t.Helper()
	rdb := redistest.Mini(t)
	var log redistest.Buffer
	handler, err := notify.NewHandler(sender, notify.HandlerConfig{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	must(t, err)
	for _, endpoint := range endpoints {
		to.Token = endpoint
		job, err := notify.NewJob("school", "app", notify.Message{Title: "a", Targets: []notify.Target{to}})
		must(t, err)
		job.MaxAttempts = 1
		_, err = newClient(t, rdb, "push").Enqueue(t.Context(), job)
		must(t, err)
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	must(t, err)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, handler) }()
	ticks := time.NewTicker(20 * time.Millisecond)
	defer ticks.Stop()
	var dead []queue.DeadJob
	for len(dead) < len(endpoints) {
		select {
		case <-ticks.C:
		case err := <-done:
			t.Fatalf("the worker ended, %v, with %d of %d dead: %s", err, len(dead), len(endpoints), log.String())
		}
		dead, err = newInspector(t, rdb, "push").Dead(t.Context(), "", 100)
		must(t, err)
	}
	stop()
	must(t, <-done)
	seen := log.String()
	for _, d := range dead {
		seen += d.Error + "\n"
	}
	return seen
}
