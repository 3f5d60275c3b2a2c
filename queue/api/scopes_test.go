package api_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
	"github.com/waterclock/waterclock/queue/api"
)

// needs says which scopes let a request in: this is the contract, and not what the handler has.
var needs = map[string]string{
	"POST /v1/decide": "decide", "POST /v1/limits/{limit}/acquire": "decide",
	"GET /v1/queues": "read", "GET …": "read", "GET …/health": "read", "GET …/doctor": "read", "GET …/tenants": "read", "GET …/users": "read",
	"GET …/lane": "read", "GET …/why": "read", "GET …/job": "offer read", "GET …/running": "read", "GET …/later": "read", "GET …/retrying": "read",
	"GET …/failures": "read", "GET …/drops": "read", "GET …/dead": "read", "GET …/workers": "read", "GET …/pauses": "read", "GET …/overrides": "read",
	"GET …/policies": "read", "GET …/policies/history": "read", "POST …/policies/check": "read", "POST …/policies/diff": "read", "POST …/plan": "read",
	"POST …/jobs": "offer", "POST …/pause": "steer", "POST …/resume": "steer", "POST …/cancel": "steer", "POST …/purge": "steer", "POST …/revive": "steer",
	"POST …/delete": "steer", "PUT …/policies": "steer", "PUT …/overrides": "steer", "PUT …/users": "steer", "DELETE …/overrides": "steer",
}

// text is a token with a name, and entry its entry in a file.
func text(name string) string { return name + "-has-a-long-token" }

func entry(name, scopes, rest string) string {
	return fmt.Sprintf("  - {name: %s, hash: %s, scopes: [%s], %s}\n", name, access.Hash(text(name)), scopes, rest)
}

// openTokens serves the API to the tokens of a file, which is replaced with replace.
func openTokens(t *testing.T, lines ...string) (s *site, replace func(lines ...string)) {
	dir := t.TempDir()
	file := filepath.Join(dir, "tokens.yaml")
	replace = func(lines ...string) {
		if err := os.WriteFile(file+".new", []byte("tokens:\n"+strings.Join(lines, "")), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	replace(lines...)
	log := new(redistest.Buffer)
	tokens, err := access.Open(access.Config{Token: token, File: file, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- tokens.Run(ctx) }()
	s = open(t, redistest.Mini(t), func(cfg *api.Config) { cfg.Token, cfg.Tokens = "", tokens })
	s.log = log
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return s, replace
}

// as sends a request with a token of the file.
func (s *site) as(name, method, path, body string) answer {
	s.Helper()
	r := s.request(method, path, "application/json", body)
	r.Header.Set("Authorization", "Bearer "+text(name))
	return s.send(r)
}

// Every route times every scope times a queue that the token is for and one that it is not: who lacks something gets 403, with what is
// missing, and nothing happens; all others get in. A route that is not in the contract fails.
func TestScopesOfEveryRoute(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, scope := range access.Scopes() {
		queues := `queues: [push, mail-*]`
		if scope == access.Decide {
			queues = ""
		}
		lines = append(lines, strings.Replace(entry(string(scope), string(scope), queues), ", }", "}", 1))
	}
	s, _ := openTokens(t, lines...)
	let := 0
	for _, route := range api.Routes() {
		method, path := route[0], route[1]
		name := method + " " + strings.Replace(path, "/v1/queues/{queue}", "…", 1)
		want, known := needs[name]
		if !known {
			t.Errorf("%s is not in the contract: say which scopes let it in", name)
			continue
		}
		for _, scope := range access.Scopes() {
			for queue, its := range map[string]bool{"push": true, "mail-eu": true, "mail": false, "pushed": false, "other": false} {
				may := slices.Contains(strings.Fields(want), string(scope)) || scope == access.Steer && strings.Contains(want, "read")
				may = may && (its || !strings.Contains(path, "{queue}"))
				a := s.as(string(scope), method, strings.Replace(path, "{queue}", queue, 1), "{")
				if (a.status != http.StatusForbidden) != may || a.status == http.StatusUnauthorized {
					t.Errorf("%s at queue %s with scope %s: %d %s", name, queue, scope, a.status, a.text)
				}
				if may {
					let++
					continue
				}
				var lacks []string
				for _, s := range a.problem.Missing.Scopes {
					lacks = append(lacks, string(s))
				}
				if a.problem.Type != "urn:waterclock:missing-scope" || strings.Join(lacks, " ") != want || !strings.Contains(a.problem.Detail, "token "+string(scope)+" lacks the scope "+lacks[0]) ||
					!strings.Contains(a.header.Get("WWW-Authenticate"), `error="insufficient_scope", scope="`+lacks[0]) {
					t.Errorf("%s at queue %s with scope %s: %s, %v", name, queue, scope, a.text, a.header)
				}
				if strings.Contains(path, "{queue}") && (a.problem.Missing.Queue != queue || !strings.Contains(a.problem.Detail, `for queue "`+queue+`"`)) {
					t.Errorf("%s at queue %s: the queue is not named: %s", name, queue, a.text)
				}
			}
		}
	}
	if let < 60 {
		t.Errorf("%d requests were let in", let)
	}
	if len(needs) != len(api.Routes()) {
		t.Errorf("%d routes are in the contract, there are %d", len(needs), len(api.Routes()))
	}
	if keys, err := s.rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys in Redis: %q, %v", keys, err)
	}
}

// The list of queues has those that the token may read. What a token does has its name as its author, with the name that somebody
// gives himself behind it.
func TestQueuesAndAuthors(t *testing.T) {
	t.Parallel()
	s, _ := openTokens(t, entry("reads", "read", "queues: [push]"), entry("offers", "offer", "queues: ['*']"), entry("steers", "steer", "queues: ['*']"))
	for _, name := range []string{"push", "mail"} {
		s.post("/v1/queues/"+name+"/policies", fields{"source": somePolicies, "version": 0}, nil)
		if a := s.as("offers", "POST", "/v1/queues/"+name+"/jobs", `{"id":"x","tenant":"t","user":"u","type":"push"}`); a.status != 200 {
			t.Fatal(a.text)
		}
	}
	if a := s.as("offers", "GET", "/v1/queues/mail/job?id=x", ""); a.status != 200 || !strings.Contains(a.text, `"state":"waiting"`) {
		t.Errorf("its own job: %s", a.text)
	}
	if a := s.as("reads", "GET", "/v1/queues", ""); !strings.Contains(a.text, `"queue":"push"`) || strings.Contains(a.text, "mail") {
		t.Errorf("queues: %s", a.text)
	}
	if a := s.as("steers", "GET", "/v1/queues", ""); !strings.Contains(a.text, `"queue":"push"`) || !strings.Contains(a.text, `"queue":"mail"`) {
		t.Errorf("queues: %s", a.text)
	}
	for said, want := range map[string]string{"": "steers", "ann": "steers (ann)", "steers": "steers"} {
		body := fmt.Sprintf(`{"for":"1h","author":%q}`, said)
		var paused api.List[queue.Pause]
		if s.expect(s.as("steers", "POST", "/v1/queues/push/pause", body), &paused); len(paused.Items) != 1 || paused.Items[0].Author != want {
			t.Errorf("%q: %+v", said, paused)
		}
	}
}

// Tokens come and go while requests run: none of those that count throughout notices, and a mistake in the file changes nothing.
func TestRotationWhileRequestsRun(t *testing.T) {
	t.Parallel()
	stays, goes := entry("stays", "read", "queues: [push]"), entry("goes", "read", "queues: [push]")
	s, replace := openTokens(t, stays, goes)
	var asking sync.WaitGroup
	var asked atomic.Int64
	done := make(chan struct{})
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if a := s.as("stays", "GET", "/v1/queues/push/pauses", ""); a.status != 200 {
					t.Errorf("%d %s", a.status, a.text)
					return
				}
				asked.Add(1)
			}
		})
	}
	status := func(name string) int { return s.as(name, "GET", "/v1/queues/push/pauses", "").status }
	until := func(what string, is func() bool) { redistest.Eventually(t, 10*time.Second, what, is) }
	until("some have asked", func() bool { return asked.Load() > 20 })
	comes := strings.Replace(entry("comes", "read", "queues: [push]"), "name: comes", "name: goes", 1) // a new token of the same name
	replace(stays, goes, comes)
	until("the new one counts", func() bool { return status("comes") == 200 })
	if status("goes") != 200 {
		t.Error("the old one does not count any more")
	}
	replace(stays, comes, strings.Replace(goes, "[read]", "[raed]", 1))
	until("the mistake is told", func() bool { return strings.Contains(s.log.String(), `tokens.yaml:4: tokens[2].scopes: \"raed\"`) })
	if status("goes") != 200 || status("comes") != 200 {
		t.Error("a mistake has changed something")
	}
	replace(stays, comes, strings.Replace(goes, "queues", "expires: 2026-01-02T03:04:05Z, queues", 1))
	until("the old one does not count", func() bool { return status("goes") == 401 })
	if a := s.as("goes", "GET", "/v1/queues", ""); a.problem.Type != "urn:waterclock:token-expired" || !strings.Contains(a.problem.Detail, "goes, at 2026-01-02T03:04:05Z") {
		t.Errorf("expired: %s", a.text)
	}
	close(done)
	asking.Wait()
}
