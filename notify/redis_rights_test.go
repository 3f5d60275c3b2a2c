package notify_test

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// documentedUser is a client of a real Redis, with the rights of docs/operations.md alone.
func documentedUser(t *testing.T) *redis.Client {
	t.Helper()
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	rules := regexp.MustCompile(`ACL SETUSER clock on >secret (.*)`).FindStringSubmatch(string(page))
	if rules == nil {
		t.Fatal("docs/operations.md has no ACL")
	}
	server := redistest.Start(t, append([]string{"--user", "clock", "on", ">secret"}, strings.Fields(rules[1])...)...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "clock", Password: "secret"})
	t.Cleanup(func() { rdb.Close() })
	if err := rdb.Set(t.Context(), "other", 1, 0).Err(); err == nil {
		t.Fatal("the user may do anything: nothing is tested")
	}
	return rdb
}

// A worker with each sender needs no more: tokens, ledger, stream of forgotten
// targets and the state of endpoints included.
func TestWorkerWithTheDocumentedACL(t *testing.T) {
	sample.Slow(t)
	rdb := documentedUser(t)
	apple, err := notifytest.NewAPNs(notifytest.Options{})
	must(t, err)
	google, err := notifytest.NewFCM(notifytest.Options{})
	must(t, err)
	browsers, err := notifytest.NewWebPush(notifytest.Options{})
	must(t, err)
	sub, err := browsers.Subscribe("browser")
	must(t, err)
	hook, err := notifytest.NewWebhook(notifytest.Options{})
	must(t, err)
	apns, err := notify.NewAPNs(notify.APNsConfig{
		Key: apple.Key, KeyID: apple.KeyID, TeamID: apple.TeamID, Topic: apple.Topic, Redis: rdb, Wire: wire(&apple.Host),
	})
	must(t, err)
	closeLater(t, &apple.Host, apns)
	fcm, err := notify.NewFCM(notify.FCMConfig{Credentials: google.ServiceAccount, Redis: rdb, Wire: wire(&google.Host)})
	must(t, err)
	closeLater(t, &google.Host, fcm)
	web, err := notify.NewWebPush(notify.WebPushConfig{Key: browsers.Key, Subject: "mailto:push@school.example", Wire: wire(&browsers.Host)})
	must(t, err)
	closeLater(t, &browsers.Host, web)
	webhook, err := notify.NewWebhook(notify.WebhookConfig{Redis: rdb, Delays: []time.Duration{10 * time.Millisecond}, Wire: wire(&hook.Host)})
	must(t, err)
	closeLater(t, &hook.Host, webhook)

	google.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.Unregistered() })
	var failed atomic.Bool
	hook.Answer(func(notifytest.Received) *notifytest.Answer {
		if failed.CompareAndSwap(false, true) {
			return notifytest.HTML(500)
		}
		return nil
	})
	all, err := notify.NewProviders(
		notify.Provider{Sender: apns}, notify.Provider{Sender: fcm},
		notify.Provider{Sender: web}, notify.Provider{Sender: webhook})
	must(t, err)
	var log redistest.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	handler, err := notify.NewHandler(all, notify.HandlerConfig{Shared: true, Redis: rdb, Forget: notify.ForgottenStream(rdb), Logger: logger})
	must(t, err)
	job, err := notify.NewJob("school", "teacher", notify.Message{Title: "a", Targets: []notify.Target{
		{Provider: "apns", Token: "0123456789abcdef"}, {Provider: "fcm", Token: "phone"},
		{Token: sub.Endpoint, P256dh: sub.P256dh, Auth: sub.Auth}, {Token: hook.URL + "/hook", Secret: hook.Secret},
	}})
	must(t, err)
	_, err = newClient(t, rdb, "push").Enqueue(t.Context(), job)
	must(t, err)
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}, Logger: logger})
	must(t, err)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, handler) }()
	redistest.Eventually(t, 20*time.Second, "the job is done", func() bool {
		st, err := newInspector(t, rdb, "push").Stats(t.Context())
		return err == nil && st.Done == 1
	})
	stop()
	must(t, <-done)
	for _, h := range []*notifytest.Host{&apple.Host, &browsers.Host} {
		if n := len(h.Received()); n != 1 {
			t.Errorf("%d messages, want 1", n)
		}
	}
	stream, err := rdb.XRange(context.Background(), "wc:{push}:notify:forgotten", "-", "+").Result()
	must(t, err)
	if len(hook.Received()) != 2 || len(stream) != 1 || stream[0].Values["token"] != "phone" || strings.Contains(log.String(), "NOPERM") {
		t.Errorf("%d requests to the webhook, %d forgotten:\n%s", len(hook.Received()), len(stream), log.String())
	}
}

// What senders keep in Redis is used with that user's rights, sealed, and ends.
func TestACLOfTheDocumentation(t *testing.T) {
	rdb := documentedUser(t)
	m := notify.Message{ID: "1", Title: "a"}

	// A token is shared, and dropped when it is refused.
	google, err := notifytest.NewFCM(notifytest.Options{})
	must(t, err)
	fcm := func() notify.Sender {
		s, err := notify.NewFCM(notify.FCMConfig{Credentials: google.ServiceAccount, Redis: rdb, Wire: wire(&google.Host)})
		must(t, err)
		closeLater(t, &google.Host, s)
		return s
	}
	for range 2 {
		if o := fcm().Send(t.Context(), m, notify.Target{Token: "phone"}); o.Action != notify.Done {
			t.Errorf("%+v", o)
		}
	}
	if n := google.Minted(); n != 1 {
		t.Errorf("%d tokens, want 1", n)
	}

	// The state of an endpoint is kept, and forgotten when it works.
	hook, err := notifytest.NewWebhook(notifytest.Options{})
	must(t, err)
	s, err := notify.NewWebhook(notify.WebhookConfig{Redis: rdb, Wire: wire(&hook.Host)})
	must(t, err)
	closeLater(t, &hook.Host, s)
	to := notify.Target{Token: hook.URL + "/hook", Secret: hook.Secret}
	states := func() int { return len(rdb.Keys(t.Context(), "wc:{notify}:endpoint:*").Val()) }
	hook.Answer(func(notifytest.Received) *notifytest.Answer { return notifytest.HTML(500) })
	if o := s.Send(t.Context(), m, to); o.Action != notify.Retry || states() != 1 {
		t.Errorf("%+v, %d states; want a retry, and 1", o, states())
	}
	hook.Answer(nil)
	if o := s.Send(t.Context(), m, to); o.Action != notify.Done || states() != 0 {
		t.Errorf("%+v, %d states; want it done, and none", o, states())
	}
	hook.Answer(func(notifytest.Received) *notifytest.Answer { return &notifytest.Answer{Status: 410} })
	if o := s.Send(t.Context(), m, to); o.Action != notify.Forget || states() != 1 {
		t.Errorf("%+v, %d states; want it forgotten, and 1", o, states())
	}
	before := len(hook.Received())
	if o := s.Send(t.Context(), m, to); o.Action != notify.Drop || len(hook.Received()) != before {
		t.Errorf("a disabled endpoint: %+v, %d requests", o, len(hook.Received())-before)
	}
	for _, key := range rdb.Keys(context.Background(), "*").Val() {
		if text := rdb.Get(t.Context(), key).Val(); strings.Contains(key+text, "hook") || strings.Contains(text, "ya29") {
			t.Errorf("%s: %q can be read", key, text)
		}
		if rdb.TTL(t.Context(), key).Val() <= 0*time.Second {
			t.Errorf("%s never expires", key)
		}
	}
}
