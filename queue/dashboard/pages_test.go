package dashboard

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
)

// Every page says what is so, in a queue that waits for its limits.
func TestPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		v.limit(limits)
		v.work(7, func(ctx context.Context, task *asynq.Task) error {
			switch task.Type() {
			case "broken":
				return fmt.Errorf("out of paper, tray 3: %w", asynq.SkipRetry)
			case "flaky":
				return fmt.Errorf("try again")
			case "slow":
				<-ctx.Done()
			}
			return nil
		})
		v.enqueue(jobs("school", "teacher", 20)...)
		v.enqueue(jobs("flood", "parent", 60)...)
		v.enqueue(queue.Job{Tenant: "office", User: "ann", Type: "broken"}, queue.Job{Tenant: "office", User: "bob", Type: "flaky"},
			queue.Job{Tenant: "office", User: "eve", Type: "slow"}, queue.Job{Tenant: "office", User: "bob", Type: "x", NotBefore: time.Now().Add(24 * time.Hour)})
		v.must(v.inspector().As(queue.Note{Author: "ann", Reason: "their endpoint is down"}).Pause(t.Context(), queue.Pause{Scope: queue.ScopeTenant, Tenant: "flood", Until: time.Now().Add(time.Hour)}))
		time.Sleep(30*time.Second + 100*time.Millisecond)

		v.sees("", `class="state throttled"`, "jobs wait for their limits", "<dd>10/s", "of 7 places", "1 since the beginning", "from slot to start, p99")
		v.sees("tenants", "school", "flood")
		v.sees("tenant?t=school", "Tenant <bdi>school</bdi>", "the user&#39;s rule window 10/1m", "<strong>binds</strong>", "<dd>5/s", "policy standard", "teacher")
		v.sees("tenant?t=flood", "The tenant is paused and goes on", "by ann: their endpoint is down", "<dt>Drains in</dt><dd>1h4m") // 59m30s and 5 times a minute
		v.sees("user?t=school&u=teacher", "10 starts count now; it allows the next one in", "spacing 3s: no start counts now; it allows one now", "schoolteacher10")
		v.sees("job?id=schoolteacher11", "at place 2 of its lane", "It starts in")
		v.sees("job?id=schoolteacher0", "It is done.", "It was offered at 2000-01-01T00:00:00.000Z.", "<td class=\"n\">1</td>", "done after")
		v.sees("job?id=nobody", "No job <bdi>nobody</bdi> is known")
		v.sees("running", "1 running", "eve", "slow", "s ago")
		v.sees("later", "bob", "in 23h")
		v.sees("dead", "out of paper, tray 3", "Kinds of errors lately", "ann")
		v.sees("drops", "full", "flood", "Of the newest 10")
		v.sees("drops?reason=full", "was at its capacity")
		v.sees("pauses", "flood", "in 59m", "their endpoint is down")
		v.sees("policies", "leak: 5/s", "a worker or a program")
		v.sees("workers", "leads", "Late, p99")
		if strings.Contains(v.sees("later?failed=1", "flaky", "try again"), ">x<") {
			t.Error("a scheduled job is shown as one that has failed")
		}
	})
}

// A rule of a limit by name is shown with the name and the values of its key.
func TestLimitsByName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		v.limit("limits: {domain: {key: keys.domain, rules: [{window: 1/1h}]}, all: {rules: [{window: 100/1h}]}}")
		v.work(7, func(context.Context, *asynq.Task) error { return nil })
		mail := jobs("shop", "ann", 3)
		for i := range mail {
			mail[i].Keys = map[string]string{"domain": "<i>.example"}
		}
		v.enqueue(mail...)
		time.Sleep(soon)
		for _, page := range []string{"user?t=shop&u=ann", "tenant?t=shop", "job?id=shopann1"} {
			v.sees(page, "window 1/1h of limit domain (&lt;i&gt;.example)", `class="binds"><td>limit <bdi>domain</bdi> <bdi>&lt;i&gt;.example</bdi></td>`,
				`<tr><td>limit <bdi>all</bdi></td>`)
		}
	})
}

// The word for how a queue is, as everybody else says it.
func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), "")
		v.sees("", `class="state idle"`)
		v.enqueue(jobs("school", "teacher", 3)...)
		time.Sleep(soon)
		v.sees("", `class="state stalled"`, "no worker lives", "tile warn")
		v.work(1, func(ctx context.Context, _ *asynq.Task) error { <-ctx.Done(); return nil })
		time.Sleep(soon)
		v.sees("", `class="state starved"`, "all of 1 places are taken")
		v.must(v.inspector().Pause(t.Context(), queue.Pause{Scope: queue.ScopeQueue, Until: time.Now().Add(time.Hour)}))
		time.Sleep(soon)
		v.sees("", `class="state paused"`, "The whole queue is paused until")
	})
}

var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, "a\x00b", "\x00", strings.Repeat("x", 1024), "\u202egnol", "\xff\xfe", "a b&c=d?e#f%20+/..",
	`'; DROP TABLE--`, "{{.}}", "javascript:alert(1)", "..", "\r\nSet-Cookie: a=b", "</textarea>", "ümläut 猫",
}

var (
	// value finds what stands in attributes: a quote in it would be escaped.
	value = regexp.MustCompile(`="[^"]*"`)
	// harm finds scripts and styles that stand in the page itself, and handlers.
	harm = regexp.MustCompile(`(?i)<script>|<img|<style|<iframe|<[^>]*\s(style|on[a-z]+)=`)
	// obeyed finds links that are scripts.
	obeyed = regexp.MustCompile(`(?i)(href|action|formaction|src)="\s*javascript:`)
)

// harmless fails for a page with something in it that a browser would run, or that turns text around.
func (v *visitor) harmless(path, body string) {
	v.Helper()
	bare := value.ReplaceAllString(body, "=x")
	if found := harm.FindString(bare); found != "" {
		v.Errorf("%.200s: holds %q", path, found)
	}
	if obeyed.MatchString(html.UnescapeString(body)) || strings.ContainsAny(body, "\x00\u202e") {
		v.Errorf("%.200s: a name is obeyed", path)
	}
}

// Whatever a name holds, it stays text on every page, and its links lead to it.
func TestHostileNames(t *testing.T) {
	v := visit(t, redistest.Start(t).Client(t), secret)
	v.signIn()
	v.limit(limits)
	v.work(5, func(_ context.Context, task *asynq.Task) error {
		return fmt.Errorf("%s: %w", task.Type(), asynq.SkipRetry)
	})
	for _, name := range hostile {
		id := name[:min(len(name), 1000)]
		v.enqueue(queue.Job{ID: id + "0", Tenant: name, User: name, Type: name}, queue.Job{ID: id + "1", Tenant: name, User: name, Type: name},
			queue.Job{ID: id + "2", Tenant: name, User: name, Type: name, NotBefore: time.Now().Add(time.Hour)})
	}
	redistest.Eventually(t, 20*time.Second, "what may start has died", func() bool {
		stats, err := v.inspector().Stats(t.Context())
		return err == nil && stats.Dead >= int64(len(hostile))
	})
	for _, name := range hostile {
		v.must(v.inspector().As(queue.Note{Author: name, Reason: name}).Pause(t.Context(), queue.Pause{Scope: queue.ScopeUser, Tenant: name, User: name, Until: time.Now().Add(time.Hour)}))
	}
	v.queues["push"].cache.forget()
	for _, page := range everyPage("", "", "") {
		if !strings.HasPrefix(page, "tenant?") && !strings.HasPrefix(page, "user?") && page != "tenant" && page != "user" {
			v.harmless(page, v.page(page))
		}
	}
	for _, name := range hostile {
		for _, page := range everyPage(name, name, name[:min(len(name), 1000)]+"1") {
			if strings.Contains(page, "?") {
				v.harmless(page, v.page(page))
			}
		}
		if found := html.UnescapeString(v.page(link("tenants", "q", name))); !strings.Contains(found, `href="`+link("/dashboard/push/tenant", "t", name)+`"`) {
			t.Errorf("%q is not found:\n%s", name, found)
		}
		if got := v.page(link("tenant", "t", name)); !strings.Contains(got, "<dt>Offered</dt><dd>3</dd>") {
			t.Errorf("%q: the link leads to another tenant", name)
		}
	}
	for _, name := range hostile { // forms name whom they mean, too
		v.act(link("do/resume", "t", name, "u", name), v.form())
	}
	if left, err := v.inspector().Pauses(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("still paused: %q, %v", left, err)
	}
}

// What is no page says so, politely and with the same protection.
func TestNoSuchPage(t *testing.T) {
	v := visit(t, redistest.Mini(t), "")
	for path, want := range map[string]int{
		"": http.StatusSeeOther, "nothing/": http.StatusNotFound, "push/nothing": http.StatusNotFound, "push/tenant": http.StatusNotFound,
		"push/user?t=a": http.StatusNotFound, "-/asset/x": http.StatusNotFound, "nothing/-/events": http.StatusNotFound,
		"push/dead?before=oops": http.StatusBadRequest, "push/tenants?from=-1&sort=oops": http.StatusOK, "push/?span=oops": http.StatusOK,
		"push/running?from=99999999999999999999": http.StatusOK, "push/do/pause": http.StatusNotFound,
	} {
		w := v.send(http.MethodGet, "/dashboard/"+path, nil)
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		if w.Header().Get("Content-Security-Policy") != contentPolicy || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: without protection: %v", path, w.Header())
		}
	}
}

// While Redis is away pages say so, and they come back with it.
func TestRedisIsAway(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	server := redistest.Start(t)
	v := visit(t, server.Client(t), "")
	v.page("")
	server.Kill()
	v.queues["push"].cache.forget()
	for _, page := range []string{""} {
		if w := v.send(http.MethodGet, "/dashboard/push/"+page, nil); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "cannot be read") {
			t.Errorf("%s: %d\n%s", page, w.Code, w.Body)
		}
	}
	server.Resume()
	redistest.Eventually(t, 20*time.Second, "the page is back", func() bool {
		return v.send(http.MethodGet, "/dashboard/push/", nil).Code == http.StatusOK
	})
}

// A configuration that cannot work is refused with what would be right.
func TestConfig(t *testing.T) {
	rdb := redistest.Mini(t)
	for want, cfg := range map[string]Config{
		"Redis is nil":        {Queues: []string{"push"}},
		"Queues is empty":     {Redis: rdb},
		"invalid queue name":  {Redis: rdb, Queues: []string{"a b"}},
		"want at least 16":    {Redis: rdb, Queues: []string{"push"}, Token: "short"},
		"a slash at both end": {Redis: rdb, Queues: []string{"push"}, Prefix: "/x"},
	} {
		if _, err := New(cfg); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	d, err := New(Config{Redis: rdb, Queues: []string{"push", "mail/two"}, Prefix: "/ops/queues/"})
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{T: t, Dashboard: d, cookies: map[string]string{}}
	for path, want := range map[string]string{
		"/ops/queues/": `href="/ops/queues/mail%2Ftwo/"`, "/ops/queues/mail%2Ftwo/": `href="/ops/queues/mail%2Ftwo/tenants"`, "/ops/queues/push/": "/ops/queues/-/asset/",
	} {
		if w := v.send(http.MethodGet, path, nil); !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d, lacks %s:\n%s", path, w.Code, want, w.Body)
		}
	}
}
