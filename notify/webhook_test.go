package notify_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
	"github.com/waterclock/waterclock/queue"
)

// An endpoint that knows a secret, or only the public half of a key, takes what is signed
// with its own and nothing else.
func TestWebhookSignatures(t *testing.T) {
	t.Parallel()
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

// Of two endpoints one fails for hours. Its messages are attempted on the schedule and die;
// the endpoint is disabled and the app told once; the other one notices nothing. Registered
// again, the endpoint gets messages again.
func TestFailingEndpoint(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		rdb := redistest.Mini(t)
		hook, err := notify.NewWebhook(notify.WebhookConfig{
			Redis: rdb, Delays: []time.Duration{time.Minute, 10 * time.Minute, time.Hour}, Wire: wire(&p.Host),
		})
		must(t, err)
		closeLater(t, &p.Host, hook)
		var mu sync.Mutex
		var told []string
		s := newSchool(t, hook, notify.HandlerConfig{Forget: func(_ context.Context, _ queue.Info, gone notify.Target, why error) error {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, strings.TrimPrefix(gone.Token, p.URL)+": "+why.Error())
			return nil
		}}, queue.Policy{})
		down := true
		p.Answer(func(r notifytest.Received) *notifytest.Answer {
			if mu.Lock(); down && r.Device == "/bad" || r.Title == "refused" {
				mu.Unlock()
				return notifytest.HTML(500)
			}
			mu.Unlock()
			return nil
		})
		begin := time.Now()
		send := func(title, path string, registered time.Time) {
			s.notify(title, notify.Message{Title: title, Targets: []notify.Target{{Token: p.URL + path, Secret: p.Secret, Registered: registered}}})
		}
		send("first", "/bad", time.Time{})
		send("refused", "/good", time.Time{}) // this message alone, not the endpoint
		for range 10 {
			send("fine", "/good", time.Time{})
			time.Sleep(9 * time.Minute)
		}
		var attempts []time.Duration
		stamps := map[string]bool{}
		for _, r := range p.Received() {
			if r.Title == "first" {
				attempts = append(attempts, r.At.Sub(begin).Round(time.Minute))
				stamps[fmt.Sprint(r.Content["timestamp"])] = true
			}
		}
		if len(attempts) != 4 || attempts[1] < time.Minute || attempts[2] < 11*time.Minute || attempts[3] < 71*time.Minute || attempts[3] > 80*time.Minute {
			t.Errorf("attempts after %v", attempts)
		}
		if len(stamps) != 1 || !stamps[fmt.Sprint(begin.UTC().Format("2006-01-02T15:04:05.999999Z"))] {
			t.Errorf("the event's time is %v, want when it was offered, %v, in every attempt", stamps, begin.UTC())
		}
		mu.Lock()
		if len(told) != 1 || !strings.HasPrefix(told[0], "/bad: notify: webhook answered 500") || !strings.Contains(told[0], "the last attempt") {
			t.Errorf("told %q, want /bad once", told)
		}
		down = false
		mu.Unlock()
		count := len(p.Received())
		send("disabled", "/bad", time.Time{})
		time.Sleep(time.Minute)
		if n := len(p.Received()); n != count {
			t.Errorf("%d requests to a disabled endpoint", n-count)
		}
		send("again", "/bad", time.Now())
		time.Sleep(time.Second)
		send("and again", "/bad", time.Time{})
		time.Sleep(time.Minute)
		if r := last(t, &p.Host); r.Device != "/bad" || r.Status != 200 || len(p.Received()) != count+2 {
			t.Errorf("registered again: %d requests, %+v", len(p.Received())-count, r)
		}
		dead, err := s.inspector().Dead(t.Context(), "", 10)
		must(t, err)
		var why []string
		for _, d := range dead {
			why = append(why, d.User+": "+d.Error)
		}
		slices.Sort(why)
		if len(why) != 2 || !strings.HasPrefix(why[0], "disabled: notify: webhook: the endpoint is disabled") || !strings.HasPrefix(why[1], "refused: notify: webhook answered 500") {
			t.Errorf("dead: %q", why)
		}
	})
}

// Each endpoint's requests are signed with its own secret: what one knows forges nothing
// to another.
func TestASecretForEachEndpoint(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		key, err := notifytest.NewWebhook(notifytest.Options{}) // only for its key
		must(t, err)
		defer key.Close()
		a, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		b, err := notifytest.NewWebhook(notifytest.Options{})
		must(t, err)
		defer b.Close()
		w := wire(&a.Host)
		w.URL = "" // each at its own path of one host
		s, err := notify.NewWebhook(notify.WebhookConfig{Wire: w, Keys: []string{key.PrivateKey}, Secrets: func(_ context.Context, to notify.Target) ([]string, error) {
			if strings.HasSuffix(to.Token, "/looked-up") {
				return []string{a.Secret}, nil
			}
			if strings.HasSuffix(to.Token, "/no-database") {
				return nil, errors.New("the database is away")
			}
			return nil, nil
		}})
		must(t, err)
		closeLater(t, &a.Host, s)
		for _, tt := range []struct {
			path, secret string
			want         notify.Action
			signatures   int
		}{
			{"/a", a.Secret, notify.Done, 2},
			{"/a", b.Secret + " " + a.Secret, notify.Done, 3},
			{"/a", b.Secret, notify.Retry, 2},
			{"/a", "", notify.Retry, 1},
			{"/looked-up", "", notify.Done, 2},
			{"/no-database", a.Secret, notify.Retry, 0},
		} {
			before := len(a.Received())
			o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: a.URL + tt.path, Secret: tt.secret})
			signatures := 0
			if all := a.Received(); len(all) > before {
				signatures = len(strings.Fields(all[before].Header.Get("webhook-signature")))
			}
			if o.Action != tt.want || signatures != tt.signatures {
				t.Errorf("%s with %d secrets: %+v, %d signatures; want %s, %d", tt.path, len(strings.Fields(tt.secret)), o, signatures, tt.want, tt.signatures)
			}
		}
	})
}
