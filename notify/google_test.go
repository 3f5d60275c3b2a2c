package notify_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/notify"
	"github.com/waterclock/waterclock/notify/notifytest"
)

// Whoever runs it and wherever, with no key file: the token comes from the caller, from
// another identity provider, from gcloud or from the machine.
func TestGoogleCredentials(t *testing.T) {
	p, err := notifytest.NewFCM(notifytest.Options{TCP: true})
	must(t, err)
	defer p.Close()
	machine := httptest.NewServer(p.Metadata())
	defer machine.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(machine.URL, "http://"))
	identity := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "secret of the pod" {
			http.Error(w, "who?", http.StatusForbidden)
			return
		}
		_, _ = w.Write([]byte(`{"value":"` + notifytest.Subject + `"}`))
	}))
	defer identity.Close()
	dir := t.TempDir()
	file := func(name, text string) map[string]any {
		path := filepath.Join(dir, name)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		return map[string]any{"file": path}
	}
	json := func(source map[string]any, field string) map[string]any {
		source["format"] = map[string]any{"type": "json", "subject_token_field_name": field}
		return source
	}
	byURL := func(authorization string) map[string]any {
		return json(map[string]any{"url": identity.URL, "headers": map[string]string{"Authorization": authorization}}, "value")
	}
	own := func(token string, err error) func(context.Context) (string, time.Time, error) {
		return func(context.Context) (string, time.Time, error) { return token, time.Now().Add(time.Hour), err }
	}
	away := errors.New("the vault is away")
	for _, tt := range []struct {
		name string
		cfg  notify.FCMConfig
		want notify.Action
		err  string
	}{
		{"a service account", notify.FCMConfig{Credentials: p.ServiceAccount}, notify.Done, ""},
		{"the caller's", notify.FCMConfig{Token: own(p.Token(), nil)}, notify.Done, ""},
		{"none of the caller's", notify.FCMConfig{Token: own("", nil)}, notify.Defer, "Token returned an empty token"},
		{"the caller has trouble", notify.FCMConfig{Token: own("", away)}, notify.Defer, "the vault is away"},
		{"gcloud's", notify.FCMConfig{Credentials: p.UserCredentials()}, notify.Done, ""},
		{"a file of the cluster's", notify.FCMConfig{Credentials: p.WorkloadIdentity(file("a", notifytest.Subject+"\n"), false)}, notify.Done, ""},
		{"one in JSON", notify.FCMConfig{Credentials: p.WorkloadIdentity(json(file("b", `{"t":"`+notifytest.Subject+`"}`), "t"), false)}, notify.Done, ""},
		{"as a service account", notify.FCMConfig{Credentials: p.WorkloadIdentity(file("c", notifytest.Subject), true)}, notify.Done, ""},
		{"from a URL", notify.FCMConfig{Credentials: p.WorkloadIdentity(byURL("secret of the pod"), false)}, notify.Done, ""},
		{"from a URL, as nobody", notify.FCMConfig{Credentials: p.WorkloadIdentity(byURL("x"), false)}, notify.Halt, "identity answered 403"},
		{"another cluster's", notify.FCMConfig{Credentials: p.WorkloadIdentity(file("d", "other"), false)}, notify.Halt, "invalid_grant"},
		{"an empty file", notify.FCMConfig{Credentials: p.WorkloadIdentity(file("e", ""), false)}, notify.Defer, "no token there"},
		{"no file", notify.FCMConfig{Credentials: p.WorkloadIdentity(map[string]any{"file": filepath.Join(dir, "f")}, false)}, notify.Defer, "no such file"},
		{"the machine's", notify.FCMConfig{}, notify.Done, ""},
	} {
		tt.cfg.Project = "school-push"
		tt.cfg.Wire = notify.Wire{URL: p.URL, RootCAs: p.RootCAs}
		s, err := notify.NewFCM(tt.cfg)
		must(t, err)
		o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"})
		if o.Action != tt.want || tt.err != "" && !strings.Contains(o.Err.Error(), tt.err) || strings.Contains(strings.ReplaceAll(tt.err, "secret", ""), "secret of") {
			t.Errorf("%s: %+v, want %s, %s; refused %q", tt.name, o, tt.want, tt.err, p.Refusals())
		}
		payer := ""
		if tt.name == "gcloud's" {
			payer = "school-push"
		}
		if tt.want == notify.Done && last(t, &p.Host).Header.Get("X-Goog-User-Project") != payer {
			t.Errorf("%s: %v, want %q to pay", tt.name, last(t, &p.Host).Header, payer)
		}
		if err := s.Check(t.Context()); (err == nil) != (tt.want == notify.Done) {
			t.Errorf("%s: Check: %v", tt.name, err)
		}
		must(t, s.Close())
	}
}

func TestBadGoogleCredentials(t *testing.T) {
	for text, want := range map[string]string{
		`{"type":"authorized_user","client_id":"a"}`: "client_secret or refresh_token is missing",
		`{"type":"external_account"}`:                "audience, subject_token_type or token_url is missing",
		`{"type":"external_account","audience":"a","subject_token_type":"b","token_url":"c","credential_source":{"executable":{}}}`:                     "want a file or a url",
		`{"type":"external_account","audience":"a","subject_token_type":"b","token_url":"c","credential_source":{"file":"f","format":{"type":"json"}}}`: "subject_token_field_name",
		`{"type":"s3cr3t"}`: "type: want service_account, external_account or authorized_user",
	} {
		_, err := notify.NewFCM(notify.FCMConfig{Credentials: []byte(text), Project: "p"})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := notify.NewFCM(notify.FCMConfig{}); err == nil || !strings.Contains(err.Error(), "Project is required") {
		t.Errorf("nothing: %v", err)
	}
	if _, err := notify.NewFCM(notify.FCMConfig{Project: "p", Wire: notify.Wire{URL: "http://relay.example"}}); err == nil || !strings.Contains(err.Error(), "want https") {
		t.Errorf("an access token in clear: %v", err)
	}
}

// A token of the caller's is asked for again before its end, and not before each message.
func TestTokensAreKept(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		asked := 0
		s, err := notify.NewFCM(notify.FCMConfig{Project: "school-push", Wire: wire(&p.Host), Token: func(context.Context) (string, time.Time, error) {
			asked++
			return p.Token(), time.Now().Add(time.Hour), nil
		}})
		must(t, err)
		closeLater(t, &p.Host, s)
		for range 12 {
			if o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"}); o.Action != notify.Done {
				t.Errorf("%+v", o)
			}
			time.Sleep(10 * time.Minute)
		}
		if asked != 2 {
			t.Errorf("asked %d times in two hours, want 2: each is good for 55 minutes", asked)
		}
	})
}

// While Google cannot be reached, messages that come together wait for one request and no
// longer than it may take; none counts as attempted. Soon after it is back all goes on.
func TestNoConvoyForAToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		var mu sync.Mutex
		asked, away := 0, true
		s, err := notify.NewFCM(notify.FCMConfig{Project: "school-push", Wire: wire(&p.Host), Token: func(ctx context.Context) (string, time.Time, error) {
			mu.Lock()
			asked++
			gone := away
			mu.Unlock()
			if gone {
				<-ctx.Done()
				return "", time.Time{}, ctx.Err()
			}
			return p.Token(), time.Now().Add(time.Hour), nil
		}})
		must(t, err)
		closeLater(t, &p.Host, s)
		send := func(want notify.Action) {
			begin := time.Now()
			var sends sync.WaitGroup
			for range 50 {
				sends.Go(func() {
					o := s.Send(t.Context(), notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"})
					if took := time.Since(begin); o.Action != want || took > 16*time.Second {
						t.Errorf("after %v %+v, want %s", took, o, want)
					}
				})
			}
			sends.Wait()
		}
		send(notify.Defer)
		if asked != 1 {
			t.Errorf("50 messages asked for %d tokens, want 1", asked)
		}
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		mu.Lock()
		away = false
		mu.Unlock()
		s.Send(cancelled, notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"}) // says nothing to the others
		time.Sleep(6 * time.Second)
		send(notify.Done)
		if asked != 2 {
			t.Errorf("asked %d times, want 2", asked)
		}
	})
}

// An attempt that is cancelled while a token is obtained says nothing to the others.
func TestACancelledAttemptIsNoFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, err := notifytest.NewFCM(notifytest.Options{})
		must(t, err)
		asked := 0
		s, err := notify.NewFCM(notify.FCMConfig{Project: "school-push", Wire: wire(&p.Host), Token: func(ctx context.Context) (string, time.Time, error) {
			if asked++; asked == 1 {
				<-ctx.Done()
				return "", time.Time{}, ctx.Err()
			}
			return p.Token(), time.Now().Add(time.Hour), nil
		}})
		must(t, err)
		closeLater(t, &p.Host, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		m, to := notify.Message{ID: "1", Title: "a"}, notify.Target{Token: "device"}
		if o := s.Send(ctx, m, to); o.Action == notify.Done {
			t.Errorf("cancelled: %+v", o)
		}
		if o := s.Send(t.Context(), m, to); o.Action != notify.Done {
			t.Errorf("the next, at once: %+v", o)
		}
	})
}

// Apple's refusal of the project's key for iPhones is not Google's of our token.
func TestThirdPartyRefusalKeepsTheToken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, p := fcmStage(t)
		m := notify.Message{ID: "1", Title: "a"}
		s.sender.Send(t.Context(), m, s.target)
		time.Sleep(10 * time.Minute)
		p.Answer(func(notifytest.Received) *notifytest.Answer {
			return notifytest.FCMError(401, "THIRD_PARTY_AUTH_ERROR")
		})
		if o := s.sender.Send(t.Context(), m, s.target); o.Action == notify.Defer || o.Action == notify.Done {
			t.Errorf("%+v", o)
		}
		p.Answer(nil)
		if o := s.sender.Send(t.Context(), m, s.target); o.Action != notify.Done || p.Minted() != 1 {
			t.Errorf("%+v, %d tokens; want it done with the first", o, p.Minted())
		}
	})
}
