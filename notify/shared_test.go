package notify_test

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// What senders keep in Redis needs no more than docs/operations.md allows: on a real one,
// with that user.
func TestACLOfTheDocumentation(t *testing.T) {
	page, err := os.ReadFile("../docs/operations.md")
	must(t, err)
	rules := regexp.MustCompile(`ACL SETUSER clock on >secret (.*)`).FindStringSubmatch(string(page))
	if rules == nil {
		t.Fatal("docs/operations.md has no ACL")
	}
	server := redistest.Start(t, append([]string{"--user", "clock", "on", ">secret"}, strings.Fields(rules[1])...)...)
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr, Username: "clock", Password: "secret"})
	defer rdb.Close()
	if err := rdb.Set(t.Context(), "other", 1, 0).Err(); err == nil {
		t.Fatal("the user may do anything: nothing is tested")
	}
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
