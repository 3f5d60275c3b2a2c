package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

// everything returns what stands in Redis, but for the charts, which looking writes, and for what
// expires by itself.
func (v *visitor) everything() string {
	v.Helper()
	keys := v.rdb.Keys(v.Context(), "*").Val()
	slices.Sort(keys)
	var b strings.Builder
	for _, key := range keys {
		if strings.Contains(key, "}:chart:") || v.rdb.PTTL(v.Context(), key).Val() != -1 {
			continue
		}
		dump, err := v.rdb.Dump(v.Context(), key).Result()
		v.must(err)
		fmt.Fprintf(&b, "%s %x\n", key, dump)
	}
	return b.String()
}

// orders are all that an operator may do, with what is sent for it.
func orders(entry string, version int64) map[string]url.Values {
	return map[string]url.Values{
		"do/pause":              {"for": {"10m"}, "sure": {"yes"}},
		"do/pause?t=school":     {"for": {"10m"}},
		"do/resume?t=paused":    {},
		"do/cancel?id=a":        {},
		"do/purge?t=school":     {"sure": {"yes"}},
		"do/revive":             {"entry": {entry}},
		"do/delete":             {"entry": {entry}, "sure": {"yes"}},
		"do/apply":              {"version": {fmt.Sprint(version)}, "source": {"{}"}},
		"preview":               {"source": {"{}"}},
		"../-/logout":           {},
		"do/pause?t=x&u=y":      {"for": {"1s"}},
		"do/unheard-of?t=a":     {},
		"do/pause?u=tenantless": {"for": {"1s"}},
	}
}

// prepared returns a visitor of a queue with a waiting job, a dead one and a paused tenant.
func prepared(t *testing.T, token string) (v *visitor, entry string, version int64) {
	v = visit(t, redistest.Start(t).Client(t), token)
	v.limit(limits)
	v.enqueue(queue.Job{Tenant: "school", User: "bob", Type: "push"})
	stop := v.work(1, func(context.Context, *asynq.Task) error { return asynq.SkipRetry })
	redistest.Eventually(t, 10*time.Second, "a job is dead", func() bool {
		dead, err := v.inspector().Dead(t.Context(), "", 1)
		v.must(err)
		if len(dead) == 1 {
			entry = dead[0].Entry
		}
		return len(dead) == 1
	})
	stop()
	v.enqueue(queue.Job{ID: "a", Tenant: "school", User: "ann", Type: "push"})
	v.must(v.inspector().Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "paused", Until: time.Now().Add(time.Hour)}))
	now, err := v.inspector().Policies(t.Context())
	v.must(err)
	return v, entry, now.Version
}

// Who is not an operator, or whose form comes from elsewhere, changes nothing: no token at the
// dashboard, no session, a forged or an old session, a forged form, another site's form.
func TestNobodyElseActs(t *testing.T) {
	v, entry, version := prepared(t, secret)
	v.signIn()
	good, form := v.cookies[sessionCookie], v.form().Get("form")
	now := time.Now()
	forged, _, _ := strings.Cut(good, ".")
	tokenless := visit(t, v.rdb, "")
	another, mine, token := keysOf(t, "another-token-as-long"), keysOf(t, secret), tokenOf(t, secret)
	type attempt struct {
		at     *visitor
		cookie string
		form   string
		header http.Header
	}
	attempts := map[string]attempt{
		"no token at the dashboard": {at: tokenless, cookie: good, form: form},
		"no session":                {at: v, form: form},
		"a session of another token": {at: v, cookie: another.begin(token, "eve", now),
			form: another.mac("form", another.begin(token, "eve", now))},
		"a session without a signature": {at: v, cookie: forged + ".", form: form},
		"a session that has ended": {at: v, cookie: mine.begin(token, "ann", now.Add(-sessionLength)),
			form: mine.mac("form", mine.begin(token, "ann", now.Add(-sessionLength)))},
		"no form":                        {at: v, cookie: good},
		"a forged form":                  {at: v, cookie: good, form: form[:len(form)-1] + "!"},
		"the form of another session":    {at: v, cookie: good, form: mine.mac("form", mine.begin(token, "eve", now))},
		"another site":                   {at: v, cookie: good, form: form, header: http.Header{"Sec-Fetch-Site": {"cross-site"}}},
		"a sibling of the site":          {at: v, cookie: good, form: form, header: http.Header{"Sec-Fetch-Site": {"same-site"}}},
		"another origin, an old browser": {at: v, cookie: good, form: form, header: http.Header{"Origin": {"https://evil.example"}}},
		"no origin at all":               {at: v, cookie: good, form: form, header: http.Header{"Origin": {"null"}}},
	}
	before := v.everything()
	for name, a := range attempts {
		if a.cookie != "" && a.cookie != good || a.at == tokenless { // nor does a page tell what its forms would have to carry
			a.at.cookies = map[string]string{sessionCookie: a.cookie}
			if body := a.at.page("tenant?t=school"); formToken.MatchString(body) || strings.Contains(body, "Sign out") {
				t.Errorf("%s: the page takes it for a session", name)
			}
		}
		for path, fields := range orders(entry, version) {
			a.at.cookies, a.at.header = map[string]string{}, a.header
			if a.cookie != "" {
				a.at.cookies[sessionCookie] = a.cookie
			}
			sent := url.Values{"form": {a.form}}
			for field, values := range fields {
				sent[field] = values
			}
			w := a.at.send(http.MethodPost, "/dashboard/push/"+strings.TrimPrefix(path, "../"), sent)
			if strings.HasPrefix(path, "../") {
				w = a.at.send(http.MethodPost, "/dashboard/"+strings.TrimPrefix(path, "../"), sent)
			}
			if w.Code != http.StatusForbidden && w.Code != http.StatusNotFound {
				t.Errorf("%s, %s: %d\n%s", name, path, w.Code, w.Body)
			}
		}
	}
	for path := range orders(entry, version) { // nor does a link
		v.cookies, v.header = map[string]string{sessionCookie: good}, nil
		v.send(http.MethodGet, "/dashboard/push/"+path+"&sure=yes&for=10m&form="+url.QueryEscape(form), nil)
	}
	if after := v.everything(); after != before {
		t.Errorf("something has changed:\n%s\n%s", before, after)
	}
	if strings.Contains(v.log.String(), "has acted") {
		t.Errorf("somebody has acted:\n%s", v.log)
	}
	if body := tokenless.page("tenant?t=school"); strings.Contains(body, "<button class=\"act\"") {
		t.Error("a dashboard without a token offers to act")
	}
}

// An operator acts: it is done, noted with who and why, and what cannot be undone is asked for
// with the number of jobs.
func TestOperator(t *testing.T) {
	v, entry, version := prepared(t, secret)
	v.signIn()
	asks := func(path, want string, fields url.Values) {
		t.Helper()
		before := v.everything()
		w := v.send(http.MethodPost, "/dashboard/push/"+path, fields)
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) || !strings.Contains(w.Body.String(), `name="sure" value="yes"`) {
			t.Errorf("%s: %d, lacks %q\n%s", path, w.Code, want, w.Body)
		}
		if v.everything() != before {
			t.Errorf("%s: done before it was asked for", path)
		}
		fields.Set("sure", "yes")
	}
	does := func(path, want string, fields url.Values) {
		t.Helper()
		if done := v.act(path, fields); !strings.Contains(done, want) {
			t.Errorf("%s: %q, want %q", path, done, want)
		}
	}
	does("do/pause?t=school", "The tenant school is paused for 10m.", v.form("for", "10m", "reason", "their endpoint is down"))
	v.sees("tenant?t=school", "by ann: their endpoint is down")
	does("do/pause?t=school&u=ann", "The user ann of tenant school is paused", v.form("for", "1h"))
	does("do/resume?t=school&u=ann", "The user ann of tenant school is not paused any more.", v.form())
	does("do/resume?t=school", "The tenant school is not paused any more.", v.form())
	whole := v.form("for", "5m", "reason", "an incident")
	asks("do/pause", "Pause the whole queue, in which 1 job wait", whole)
	does("do/pause", "The queue is paused for 5m.", whole)
	does("do/resume", "The queue is not paused any more.", v.form())

	does("do/revive", "1 of 1 job wait again", v.form("entry", entry))
	purge := v.form()
	asks("do/purge?t=school", "Drop 2 jobs that wait of tenant school?", purge)
	does("do/purge?t=school", "2 jobs of tenant school were dropped.", purge)
	v.enqueue(queue.Job{ID: "b", Tenant: "school", User: "ann", Type: "push"})
	does("do/cancel?id=b", "Job b is cancelled", v.form())
	does("do/apply", "The next start obeys", v.form("version", fmt.Sprint(version), "source", "default: p\r\npolicies: {p: {}}\r\n", "reason", "no limits"))
	v.sees("policies", "set by ann: no limits", "default: p")
	for _, want := range []string{"action=pause", "author=ann", `reason="their endpoint is down"`, "action=purge", `names="t=school"`, "action=apply"} {
		if !strings.Contains(v.log.String(), want) {
			t.Errorf("the log lacks %s:\n%s", want, v.log)
		}
	}
	for path, want := range map[string]int{
		"do/pause?t=a": http.StatusBadRequest, "do/purge": http.StatusBadRequest, "do/delete": http.StatusBadRequest, "do/revive": http.StatusBadRequest,
		"do/cancel?id=nobody": http.StatusConflict, "do/apply": http.StatusBadRequest, "do/pause?u=tenantless": http.StatusBadRequest,
	} {
		if w := v.send(http.MethodPost, "/dashboard/push/"+path, v.form("for", "1ms", "sure", "yes")); w.Code != want {
			t.Errorf("%s: %d, want %d\n%s", path, w.Code, want, w.Body)
		}
	}
	if w := v.send(http.MethodPost, "/dashboard/push/do/revive", v.form("entry", "oops")); w.Code != http.StatusBadRequest {
		t.Errorf("an entry that is none: %d", w.Code)
	}
	v.send(http.MethodPost, "/dashboard/-/logout", v.form())
	if v.cookies[sessionCookie] != "" {
		t.Error("still signed in")
	}
}

// Two operators do not overwrite each other's policies.
func TestPoliciesAreComparedAndSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		v.signIn()
		v.limit(limits)
		seen, err := v.inspector().Policies(t.Context())
		v.must(err)
		v.limit(strings.ReplaceAll(limits, "5/s", "6/s")) // somebody else
		mine := v.form("version", fmt.Sprint(seen.Version), "source", strings.ReplaceAll(limits, "10/1m", "11/1m"))
		if w := v.send(http.MethodPost, "/dashboard/push/do/apply", mine); w.Code != http.StatusConflict || !strings.Contains(w.Body.String(), "Somebody else") {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
		time.Sleep(soon)
		if body := v.page("policies"); !strings.Contains(body, "6/s") || strings.Contains(body, "11/1m") {
			t.Error("the other one's change is lost")
		}
	})
}

// A preview says what would become of what waits, and changes nothing.
func TestPreview(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		v.signIn()
		v.limit("default: p\npolicies: {p: {tenant: {rules: [{leak: 1/s}]}}}\n")
		for i := range 60 {
			v.enqueue(jobs("school", fmt.Sprint("user", i), 1)...)
		}
		before := v.everythingButCharts()
		preview := func(source string, want ...string) {
			t.Helper()
			w := v.send(http.MethodPost, "/dashboard/push/preview", v.form("source", source, "reason", "more"))
			for _, text := range want {
				if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), text) {
					t.Errorf("%d, lacks %q:\n%s", w.Code, text, w.Body)
				}
			}
		}
		preview("default: p\npolicies: {p: {tenant: {rules: [{leak: 2/s}]}}}\n", "-             rules: [{leak: 1/s}]", "60 of 60 waiting jobs, of 1 tenants",
			"<b>59</b> would start sooner, by up to 29.5s", "in 29.5s rather than in 59s", "also for 60 waiting jobs", `value="more"`)
		preview("default: p\npolicies: {p: {tenant: {rules: [{leak: 1/2s}]}}}\n", "<b>59</b> would start later, by up to 59s")
		preview("default: p\npolicies: {p: {}}\n", "<b>59</b> would start at once that do not now")
		preview("default: p\npolicies: {p: {tenant: {rules: [{leak: 1/s}], capacity: 10}}}\n", "would be dropped")
		preview("default: p\npolicies: {p: {tenant: {rules: [{leak: 1/s}]}}}\n", "Nothing changes.")
		preview("polices: {}\n", "unknown key", "Preview again")
		if v.everythingButCharts() != before {
			t.Error("a preview has changed something")
		}
	})
}

// everythingButCharts is everything for the embedded Redis, which cannot dump.
func (v *visitor) everythingButCharts() string {
	keys := v.rdb.Keys(v.Context(), "*").Val()
	slices.Sort(keys)
	p, err := v.inspector().Policies(v.Context())
	v.must(err)
	stats, err := v.inspector().Stats(v.Context())
	v.must(err)
	keys = slices.DeleteFunc(keys, func(key string) bool { return strings.Contains(key, "}:chart:") })
	return fmt.Sprint(keys, p, stats)
}

// A token cannot be guessed by trying, and signing in leads nowhere else.
func TestSigningIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		try := func(fields url.Values) int {
			return v.send(http.MethodPost, "/dashboard/-/login", fields).Code
		}
		for range loginTries {
			if code := try(url.Values{"name": {"eve"}, "token": {"a wrong token, as it is"}}); code != http.StatusForbidden {
				t.Fatalf("a wrong token: %d", code)
			}
		}
		if body := v.send(http.MethodPost, "/dashboard/-/login", url.Values{"name": {"eve"}, "next": {"/dashboard/push/dead"}}).Body.String(); !strings.Contains(body, `name="token"`) ||
			!strings.Contains(body, `role="alert">Too many tokens`) || !strings.Contains(body, `name="name" value="eve"`) || !strings.Contains(body, `name="next" value="/dashboard/push/dead"`) {
			t.Errorf("the form is not there again:\n%s", body)
		}
		if code := try(url.Values{"name": {"ann"}, "token": {secret}}); code != http.StatusTooManyRequests {
			t.Errorf("after too many tries: %d", code)
		}
		time.Sleep(time.Minute + time.Second)
		if code := try(url.Values{"name": {" "}, "token": {secret}}); code != http.StatusBadRequest {
			t.Errorf("without a name: %d", code)
		}
		for next, want := range map[string]string{
			"": "/dashboard/", "/dashboard/push/dead?before=1-1": "/dashboard/push/dead?before=1-1", "https://evil.example/": "/dashboard/",
			"//evil.example/dashboard/": "/dashboard/", "/dashboard/\\evil": "/dashboard/", "/elsewhere": "/dashboard/",
		} {
			w := v.send(http.MethodPost, "/dashboard/-/login", url.Values{"name": {"ann"}, "token": {secret}, "next": {next}})
			if got := w.Header().Get("Location"); got != want {
				t.Errorf("%q leads to %q, want %q", next, got, want)
			}
			c := w.Result().Cookies()[0]
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/dashboard/" {
				t.Errorf("the cookie is %+v", c)
			}
		}
		root, err := New(Config{Redis: v.rdb, Queues: []string{"push"}, Prefix: "/", Token: secret})
		v.must(err)
		if got := root.localPath("//evil.example/"); got != "/" {
			t.Errorf("at the root, another site is taken for a page: %s", got)
		}
		time.Sleep(sessionLength)
		if strings.Contains(v.page(""), "Sign out") {
			t.Error("a session has no end")
		}
	})
}
