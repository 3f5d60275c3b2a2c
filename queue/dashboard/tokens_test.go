package dashboard

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/access"
)

// tokensOf returns the tokens of a dashboard with one token.
func tokensOf(t *testing.T, token string) *access.Tokens {
	t.Helper()
	tokens, err := access.Open(access.Config{Token: token})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func keysOf(t *testing.T, token string) *keys { return newKeys(tokensOf(t, token)) }

func tokenOf(t *testing.T, token string) access.Token {
	t.Helper()
	found, err := tokensOf(t, token).Find(token)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// An entry of a file of tokens; the token is its name and some more.
func entry(name, scopes, queues string) string {
	return fmt.Sprintf("  - {name: %s, hash: %s, scopes: [%s], queues: [%s]}\n", name, access.Hash(textOf(name)), scopes, queues)
}

func textOf(name string) string { return name + "-has-a-long-token" }

// withTokens is a dashboard of the queues push, mail and spare with a file of tokens.
func withTokens(t *testing.T, signIn bool, lines ...string) (v *visitor, file string) {
	v = visit(t, redistest.Start(t).Client(t), "")
	file = filepath.Join(t.TempDir(), "tokens.yaml")
	v.must(os.WriteFile(file, []byte("tokens:\n"+strings.Join(lines, "")), 0o600))
	tokens, err := access.Open(access.Config{File: file})
	v.must(err)
	go func() { _ = tokens.Run(t.Context()) }()
	v.Dashboard, err = New(Config{
		Redis: v.rdb, Queues: []string{"push", "mail", "spare"}, Tokens: tokens, SignIn: signIn, Logger: slog.New(slog.NewTextHandler(v.log, nil)),
	})
	v.must(err)
	return v, file
}

func (v *visitor) enter(name, token string) (code int, body string) {
	v.Helper()
	delete(v.cookies, sessionCookie)
	w := v.send(http.MethodPost, "/dashboard/-/login", url.Values{"name": {name}, "token": {token}})
	return w.Code, w.Body.String()
}

// Whose token only reads sees who has signed in and no button to act, and an order that is sent nevertheless is refused, with what
// is missing. Whose token steers one queue acts there, and in no other; the author is the token.
func TestScopes(t *testing.T) {
	v, _ := withTokens(t, false, entry("grafana", "read", `"*"`), entry("ann", "steer", "push"), entry("checkout", "offer", "push"), entry("far", "steer", "elsewhere"))
	v.enqueue(queue.Job{ID: "a", Tenant: "school", User: "ann", Type: "push"})
	pages := []string{"", "tenant?t=school", "user?t=school&u=ann", "job?id=a", "pauses", "dead", "policies", "limits"}
	acts := func(queue, path string) bool {
		w := v.send(http.MethodGet, "/dashboard/"+queue+"/"+path, nil)
		if w.Code != http.StatusOK {
			t.Fatalf("%s: %d", path, w.Code)
		}
		return strings.Contains(w.Body.String(), "/do/") || strings.Contains(w.Body.String(), "Preview…")
	}
	orders := orders("1-1", 0)
	delete(orders, "../-/logout")
	delete(orders, "do/unheard-of?t=a")
	refused := func(queue, want string) {
		t.Helper()
		before := v.everything()
		form := v.form().Get("form")
		for path, fields := range orders {
			fields.Set("form", form)
			w := v.send(http.MethodPost, "/dashboard/"+queue+"/"+path, fields)
			if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s %s: %d, lacks %q\n%s", queue, path, w.Code, want, w.Body)
			}
		}
		if v.everything() != before {
			t.Error("something has changed")
		}
	}

	if code, body := v.enter("", textOf("grafana")); code != http.StatusSeeOther {
		t.Fatalf("%d\n%s", code, body)
	}
	for _, path := range pages {
		if acts("push", path) {
			t.Errorf("%s offers to act", path)
		}
	}
	v.sees("", "<span>grafana</span>", "may only look")
	refused("push", "The token grafana may only look: to act here it needs the scope steer for queue push.")

	if code, _ := v.enter("", textOf("ann")); code != http.StatusSeeOther {
		t.Fatal(code)
	}
	if !acts("push", "tenant?t=school") || acts("mail", "tenant?t=school") {
		t.Error("ann steers push and not mail")
	}
	refused("mail", "The token ann may only look: to act here it needs the scope steer for queue mail.")
	v.act("do/pause?t=school", v.form("for", "10m", "reason", "an incident"))
	v.sees("tenant?t=school", "by ann: an incident")
	if v.enter("bob", textOf("ann")); v.act("do/pause?t=other", v.form("for", "10m")) == "" {
		t.Error("nothing done")
	}
	v.sees("tenant?t=other", "by ann (bob)")

	for _, name := range []string{"checkout", "far"} {
		if code, body := v.enter("eve", textOf(name)); code != http.StatusForbidden || !strings.Contains(body, "needs the scope read or steer") {
			t.Errorf("%s: %d\n%s", name, code, body)
		}
	}
	if code, body := v.enter("eve", textOf("nobody")); code != http.StatusForbidden || !strings.Contains(body, "This is not the token.") {
		t.Errorf("%d\n%s", code, body)
	}
	if log := v.log.String(); !strings.Contains(log, `author="ann (bob)"`) || strings.Contains(log, textOf("ann")) {
		t.Errorf("logged: %s", log)
	}
}

// With SignIn nobody looks without a token, and nobody at a queue that the token is not for.
func TestSignInToLook(t *testing.T) {
	v, _ := withTokens(t, true, entry("grafana", "read", "push, mail"), entry("ann", "steer", "push"))
	v.enqueue(queue.Job{ID: "a", Tenant: "oak school", User: "ann", Type: "push"})
	var paths []string
	for _, path := range append(everyPage("oak school", "ann", "a"), "-/events", "limit?l=x", "key?l=x") {
		paths = append(paths, "/dashboard/push/"+path)
	}
	paths = append(paths, "/dashboard/")
	for _, path := range paths {
		w := v.send(http.MethodGet, path, nil)
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != link("/dashboard/-/login", "next", path) || strings.Contains(w.Body.String(), "oak school") {
			t.Errorf("%s: %d to %q\n%s", path, w.Code, w.Header().Get("Location"), w.Body)
		}
	}
	if body := v.send(http.MethodGet, "/dashboard/-/login", nil).Body.String(); !strings.Contains(body, "To look needs an access token") || strings.Contains(body, ">push<") {
		t.Errorf("the form:\n%s", body)
	}
	if code, _ := v.enter("", textOf("grafana")); code != http.StatusSeeOther {
		t.Fatal(code)
	}
	v.sees("tenants", "oak school", `<a href="/dashboard/mail/">mail</a>`)
	for _, path := range []string{"/dashboard/spare/", "/dashboard/spare/tenants", "/dashboard/spare/-/events"} {
		if w := v.send(http.MethodGet, path, nil); w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "does not show queue spare") {
			t.Errorf("%s: %d\n%s", path, w.Code, w.Body)
		}
	}
	if body := v.send(http.MethodGet, "/dashboard/", nil).Body.String(); strings.Contains(body, "spare") || !strings.Contains(body, "mail") {
		t.Errorf("the list of queues:\n%s", body)
	}
}

// Who takes a token out of the file, or lets it expire, ends its sessions and no others.
func TestARevokedTokenEndsItsSessions(t *testing.T) {
	t.Parallel()
	v, file := withTokens(t, false, entry("ann", "steer", "push"), entry("bob", "steer", "push"))
	v.enter("", textOf("ann"))
	ann := v.cookies[sessionCookie]
	v.enter("", textOf("bob"))
	bob := v.cookies[sessionCookie]
	signedIn := func(cookie string) bool {
		v.cookies = map[string]string{sessionCookie: cookie}
		return strings.Contains(v.page("pauses"), "Sign out")
	}
	if !signedIn(ann) || !signedIn(bob) {
		t.Fatal("they are not signed in")
	}
	// Ann has a new token, under the old name.
	v.must(os.WriteFile(file, []byte("tokens:\n"+strings.Replace(entry("ann", "steer", "push"), access.Hash(textOf("ann")), access.Hash("another token"), 1)+entry("bob", "steer", "push")), 0o600))
	redistest.Eventually(t, 10*time.Second, "ann's session has ended", func() bool { return !signedIn(ann) })
	if !signedIn(bob) {
		t.Error("bob's session has ended, too")
	}
}

// Which configurations there cannot be.
func TestTokensOfConfig(t *testing.T) {
	rdb := redistest.Mini(t)
	for want, cfg := range map[string]Config{
		"SignIn without a token":        {SignIn: true},
		"both Token and Tokens":         {Token: secret, Tokens: tokensOf(t, secret)},
		"the token has 5 bytes; want a": {Token: "short"},
	} {
		cfg.Redis, cfg.Queues = rdb, []string{"push"}
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}
