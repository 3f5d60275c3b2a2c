package dashboard

import (
	"context"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
)

const namedLimits = `limits:
  domain: {key: keys.domain, rules: [{window: 4/1h}]}
  calls: {jobs: {type: call}, concurrency: 2}
  pair: {jobs: {type: pair}, key: [tenant, keys.domain], rules: [{leak: 1/s}]}
`

// to returns mails to a domain.
func to(domain string, n int) []queue.Job {
	all := jobs("shop", "ann", n)
	for i := range all {
		all[i].ID, all[i].Keys = "", map[string]string{"domain": domain}
	}
	return all
}

// The pages of limits by name: all, one, and one for the values of its key.
func TestLimitPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		v.sees("limits", "The policies have no limits by name.")
		v.limit(namedLimits)
		v.work(7, func(ctx context.Context, task *asynq.Task) error {
			if task.Type() == "call" {
				<-ctx.Done()
			}
			return nil
		})
		v.enqueue(to("small.example", 7)...)
		v.enqueue(to("other.example", 2)...)
		for range 3 {
			v.enqueue(queue.Job{Tenant: "shop", User: "eve", Type: "call"})
		}
		time.Sleep(soon)
		v.must(v.inspector().Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "other.example", For: time.Minute}))
		time.Sleep(soon)
		v.sees("limits", `<a href="/dashboard/push/limit?l=domain">domain</a>`, "window 4/1h", "keys.domain", "one counter for all", "concurrency 2",
			`<a href="/dashboard/push/key?k=small.example&amp;l=domain"><bdi>small.example</bdi></a>`, "Counted among all 2 lanes with")
		body := v.sees("limit?l=domain", "window 4/1h, for each keys.domain, counted in cost", "<dt>Waiting</dt><dd>3 <small>in 1 lane<", "100 %", "50 %", "in 59m", "paused, goes on in 50s", `value="domain"`)
		if strings.Index(body, "small.example") > strings.Index(body, "other.example") {
			t.Error("the fullest key does not come first")
		}
		v.sees("limit?l=calls", `aria-current="page">Limits</a>`, "all jobs", "when one has ended", "about jobs of type call")
		v.sees("key?l=domain&k=small.example", "0 of 4 left", "window 4/1h", "<dt>Used</dt><dd>100 %", "<dt>Next start</dt><dd>in 59m")
		v.sees("key?l=domain&k=new.example", "4 of 4 left", "<dt>Next start</dt><dd>now")
		for path, want := range map[string]int{
			"limit?l=none": http.StatusNotFound, "key?l=none&k=a": http.StatusBadRequest, "key?l=domain&k=a,b": http.StatusBadRequest, "key": http.StatusBadRequest,
		} {
			if w := v.send(http.MethodGet, "/dashboard/push/"+path, nil); w.Code != want {
				t.Errorf("%s: %d, want %d", path, w.Code, want)
			}
		}
	})
}

// A key is paused and resumed on its page; a limit that counts everything is asked about before.
func TestPausingAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		v.signIn()
		v.limit(namedLimits)
		page := link("key", "l", "pair", "k", "shop,a%2Cb.example")
		act := link("do/pause", "l", "pair", "k", "shop,a%2Cb.example")
		if body := v.page(page); !strings.Contains(html.UnescapeString(body), `action="/dashboard/push/`+act+`"`) || !strings.Contains(body, "Pause this key") {
			t.Fatalf("no form for %s:\n%s", act, body)
		}
		if got := v.act(act, v.form("for", "10m", "reason", "421 from all")); got != "The limit pair shop,a%2Cb.example is paused for 10m." {
			t.Error(got)
		}
		v.sees(page, "is paused and goes on", "by ann: 421 from all", "paused, goes on in")
		v.sees("limit?l=pair", "<dt>Paused</dt><dd>1 <small>key<", "paused, goes on in")
		v.sees("pauses", "pair", "shop,a%2Cb.example")
		v.act(link("do/resume", "l", "pair", "k", "shop,a%2Cb.example"), v.form())
		if strings.Contains(v.page(page), "is paused") {
			t.Error("the key is still paused")
		}
		for _, wrong := range []string{link("do/pause", "l", "pair", "k", "shop"), link("do/pause", "l", "none", "k", "a")} {
			if w := v.send(http.MethodPost, "/dashboard/push/"+wrong, v.form("for", "10m")); w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d", wrong, w.Code)
			}
		}
		w := v.send(http.MethodPost, "/dashboard/push/do/pause?l=calls", v.form("for", "10m"))
		if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "Pause the limit calls?") {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
		v.act("do/pause?l=calls", v.form("for", "10m", "sure", "yes"))
		v.sees("key?l=calls", "is paused and goes on")
	})
}

// Other rules count for a key for a time, and end before it, on its page.
func TestOverridingAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := visit(t, redistest.Mini(t), secret)
		v.signIn()
		v.limit(namedLimits)
		page, names := link("key", "l", "pair", "k", "shop,a%2Cb.example"), link("", "l", "pair", "k", "shop,a%2Cb.example")
		if strings.Contains(v.page(page), "End the override") {
			t.Error("there is no override to end")
		}
		got := v.act("do/override"+names, v.form("rules", "leak 5/s, window 9/1h over=drop", "for", "2h", "reason", "<b>421</b>\u202e"))
		if got != "The limit pair shop,a%2Cb.example has other rules for 2h0m." {
			t.Error(got)
		}
		body := v.sees(page, "An override counts, which ends", ", by ann: &lt;b&gt;421&lt;/b&gt;", "leak 5/s", "window 9/1h", "<small>drops</small>", "override, ends", "End the override")
		v.harmless(page, body)
		v.harmless("limit?l=pair", v.sees("limit?l=pair", "<dt>Overrides</dt><dd>1 <small>key<", "shop,a%2Cb.example", "<td>ends <time", ", by ann: &lt;b&gt;421"))
		v.must(v.inspector().As(queue.Note{Author: "eve", Reason: "<i>slow</i>"}).Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "pair", Key: "shop,x", For: time.Minute}))
		time.Sleep(soon)
		v.sees("limit?l=pair", "paused, goes on in", ", by eve: &lt;i&gt;slow")
		for wrong, form := range map[string]url.Values{
			link("do/override", "l", "pair", "k", "shop"): v.form("rules", "leak 5/s", "for", "1h"), link("do/override", "l", "none", "k", "a"): v.form("rules", "leak 5/s", "for", "1h"),
			"do/override" + names: v.form("rules", "laek 5/s", "for", "1h"), "do/override?l=domain&k=a": v.form("rules", "leak 5/s", "for", "soon"),
			"do/override?l=domain&k=b": v.form("rules", "", "for", "1h"), "do/override": v.form("rules", "leak 5/s", "for", "1h"),
		} {
			if w := v.send(http.MethodPost, "/dashboard/push/"+wrong, form); w.Code != http.StatusBadRequest {
				t.Errorf("%s: %d\n%s", wrong, w.Code, w.Body)
			}
		}
		if w := v.send(http.MethodPost, "/dashboard/push/do/override?l=calls", v.form("rules", "leak 5/s", "for", "1h")); !strings.Contains(w.Body.String(), "Replace the rules of the limit calls for a time?") {
			t.Errorf("%d\n%s", w.Code, w.Body)
		}
		if got := v.act("do/restore"+names, v.form()); got != "The limit pair shop,a%2Cb.example has the rules of the policies again." {
			t.Error(got)
		}
		if body := v.page(page); strings.Contains(body, "override, ends") || !strings.Contains(body, "leak 1/s") {
			t.Errorf("the override still counts:\n%s", body)
		}
		if w := v.send(http.MethodPost, "/dashboard/push/do/restore"+names, v.form()); w.Code != http.StatusConflict {
			t.Errorf("ended twice: %d", w.Code)
		}
	})
}

// Whatever a key holds, it stays text, and its links lead to it.
func TestHostileKeys(t *testing.T) {
	v := visit(t, redistest.Start(t).Client(t), secret)
	v.signIn()
	v.limit(strings.Replace(namedLimits, "window: 4/1h", "window: 100/1h", 1))
	var names []string
	for _, name := range hostile {
		names = append(names, name[:min(256, len(name))])
	}
	for _, name := range names {
		v.enqueue(to(name, 1)...)
	}
	body := v.page("limit?l=domain")
	v.harmless("limit?l=domain", body)
	v.harmless("limits", v.page("limits"))
	body = html.UnescapeString(body)
	for _, name := range names {
		page := link("key", "l", "domain", "k", strings.NewReplacer("%", "%25", ",", "%2C").Replace(name))
		if !strings.Contains(body, `href="/dashboard/push/`+page+`"`) {
			t.Errorf("%q has no link", name)
		}
		shown := v.page(page)
		if v.harmless(page, shown); !strings.Contains(shown, "<dt>Waiting</dt><dd>1 <small>in 1 lane<") {
			t.Errorf("%q: the link leads to another key", name)
		}
	}
}

// Whatever the number of keys, the pages read and show a bounded part, and say so.
func TestLimitPagesCostABoundedAmount(t *testing.T) {
	client := redistest.Start(t).Client(t)
	v := visit(t, client, "")
	v.limit(namedLimits)
	var all []queue.Job
	for i := range 5000 {
		job := to(fmt.Sprintf("d%04d.example", i), 1)[0]
		job.Tenant, job.User = fmt.Sprint("t", i%100), fmt.Sprint("u", i)
		all = append(all, job)
	}
	for from := 0; from < len(all); from += 500 {
		v.enqueue(all[from : from+500]...)
	}
	counted := &redistest.Counter{}
	client.AddHook(counted)
	for _, page := range []string{"limits", "limit?l=domain", "key?l=domain&k=d0001.example"} {
		counted.Take()
		body := v.page(page)
		if n := counted.Take(); n > 1300 {
			t.Errorf("%s: %d commands", page, n)
		}
		if page != "key?l=domain&k=d0001.example" && !strings.Contains(body, "lanes that are due first: more jobs wait") || len(body) > 100_000 {
			t.Errorf("%s: %d bytes\n%.3000s", page, len(body), body)
		}
	}
}
