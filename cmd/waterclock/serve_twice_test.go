package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A roundRobin sends each request to the next of several servers, as a service of Kubernetes may.
type roundRobin struct {
	*httptest.Server
	turn atomic.Int64
	mu   sync.Mutex
	to   []*url.URL
}

func newRoundRobin(t *testing.T, addresses ...string) *roundRobin {
	t.Helper()
	b := &roundRobin{}
	for _, address := range addresses {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		b.to = append(b.to, u)
	}
	b.Server = httptest.NewServer(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		b.mu.Lock()
		defer b.mu.Unlock()
		r.SetURL(b.to[int(b.turn.Add(1))%len(b.to)])
		r.Out.Host = r.In.Host
	}})
	t.Cleanup(b.Close)
	return b
}

// only sends all requests to one server from now on: the other one has left the service.
func (b *roundRobin) only(i int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.to = b.to[i : i+1]
}

// A browser is an operator at the dashboard.
type browser struct {
	*testing.T
	client *http.Client
	base   string
}

func (b browser) visit(method, path string, form url.Values) (page string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		b.Fatal(err)
	}
	if method == "POST" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	reply, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil || reply.StatusCode != http.StatusOK {
		b.Fatalf("%s %s: %s %v\n%s", method, path, reply.Status, err, text)
	}
	return string(text)
}

// field returns the value of a hidden field of a page.
func (b browser) field(page, name string) string {
	b.Helper()
	m := regexp.MustCompile(`name="` + name + `" value="([^"]*)"`).FindStringSubmatch(page)
	if m == nil {
		b.Fatalf("no field %s in\n%s", name, page)
	}
	return m[1]
}

// Two serve work side by side behind a balancer that knows nothing of sessions: operators sign in once, see at once what
// they did at the other one, and go on when one is gone; jobs that are offered arrive once; pages at both are told of news;
// and both give Prometheus the same numbers.
func TestServeTwice(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	c := openTerminal(t)
	const token = "a-token-that-nobody-guesses"
	file := c.file("token", token)
	inspector, err := queue.NewInspector(c.client, "push")
	if err == nil {
		err = inspector.SetPolicies(t.Context(), queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": {User: []throttle.Rule{throttle.Spacing(time.Hour)}}}})
	}
	if err != nil {
		t.Fatal(err)
	}
	first, _, stopFirst := c.serving(1, "--token-file", file)
	second, _, stopSecond := c.serving(1, "--token-file", file)
	defer stopSecond()
	balancer := newRoundRobin(t, first, second)

	// Jobs, 40 requests with an ID each of which is offered twice: once to either.
	for i := range 80 {
		body := fmt.Sprintf(`{"id":"job-%d","tenant":"school","user":"teacher-%d","type":"push"}`, i/2, i/2)
		r, err := http.NewRequestWithContext(t.Context(), "POST", balancer.URL+"/v1/queues/push/jobs", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		r.Header.Set("Content-Type", "application/json")
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if want := []string{`"accepted"`, `"duplicate"`}[i%2]; !strings.Contains(string(text), want) {
			t.Fatalf("offer %d: %s %s, want %s", i, reply.Status, text, want)
		}
	}

	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	ann := browser{t, &http.Client{Jar: jar}, balancer.URL}
	ann.visit("POST", "/dashboard/-/login", url.Values{"token": {token}, "name": {"ann"}})
	for range 4 { // at both, however often
		if page := ann.visit("GET", "/dashboard/push/policies", nil); !strings.Contains(page, "Sign out") || !strings.Contains(page, "spacing: 1h") {
			t.Fatalf("a page without the session, or without the policies:\n%s", page)
		}
	}
	page := ann.visit("GET", "/dashboard/push/tenant?t=school", nil)
	if page = ann.visit("POST", "/dashboard/push/do/pause?t=school", url.Values{
		"form": {ann.field(page, "form")}, "for": {"10m"}, "reason": {"their endpoint is down"}, "back": {"/dashboard/push/pauses"},
	}); !strings.Contains(page, "their endpoint is down") {
		t.Errorf("the pause is not seen at the other one:\n%s", page)
	}
	page = ann.visit("GET", "/dashboard/push/policies", nil)
	form := ann.field(page, "form")
	preview := ann.visit("POST", "/dashboard/push/preview", url.Values{"form": {form}, "source": {"default: p\npolicies: {p: {user: {rules: [{spacing: 2h}]}}}\n"}})
	if !strings.Contains(preview, "spacing: 2h") {
		t.Fatalf("the preview shows no change:\n%s", preview)
	}
	for i := range 2 { // a page that lands at either, after it had shown the policies a moment ago
		ann.visit("GET", "/dashboard/push/policies", nil)
		ann.visit("GET", "/dashboard/push/policies", nil)
		want := fmt.Sprintf("spacing: %dh", 2+i)
		source := fmt.Sprintf("default: p\npolicies: {p: {user: {rules: [{%s}]}}}\n", want)
		now, err := inspector.Policies(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		page = ann.visit("POST", "/dashboard/push/do/apply", url.Values{
			"form": {form}, "version": {fmt.Sprint(now.Version)}, "source": {source}, "back": {"/dashboard/push/policies"},
		})
		if !strings.Contains(page, want) {
			t.Errorf("the new policies are not seen:\n%s", page)
		}
		if i == 0 {
			ann.visit("GET", "/dashboard/", nil) // the next one lands at the other
		}
	}

	// Open pages at both are told of a new job.
	var told sync.WaitGroup
	for range 2 {
		r, err := http.NewRequestWithContext(t.Context(), "GET", balancer.URL+"/dashboard/push/-/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		told.Go(func() {
			for lines := bufio.NewScanner(reply.Body); lines.Scan(); {
				if strings.Contains(lines.Text(), "event: news") {
					return
				}
			}
			t.Error("a page was told nothing")
		})
	}
	c.offer(queue.Job{ID: "last", Tenant: "school", User: "teacher", Type: "push"})
	told.Wait()

	// The metrics of the queue are the same, with the same labels: whoever adds them up counts twice.
	var numbers [2][]string
	for i, address := range []string{first, second} {
		redistest.Eventually(t, 10*time.Second, "the metrics count the last job", func() bool {
			numbers[i] = regexp.MustCompile(`(?m)^waterclock_queue_(?:jobs|jobs_total|workers|policy_timestamp_seconds)(?:\{| ).*`).FindAllString(c.ask(address+"/metrics", ""), -1)
			return slices.Contains(numbers[i], `waterclock_queue_jobs{queue="push",state="waiting"} 41`)
		})
	}
	if !slices.Equal(numbers[0], numbers[1]) || len(numbers[0]) < 8 {
		t.Errorf("one says\n%s\nthe other\n%s", strings.Join(numbers[0], "\n"), strings.Join(numbers[1], "\n"))
	}

	// One leaves. The session goes on at the other.
	balancer.only(1)
	stopFirst()
	if page := ann.visit("GET", "/dashboard/push/pauses", nil); !strings.Contains(page, "Sign out") {
		t.Errorf("the session has ended:\n%s", page)
	}
}
