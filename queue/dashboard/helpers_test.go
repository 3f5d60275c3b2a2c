package dashboard

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"go.uber.org/goleak"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

func TestMain(m *testing.M) {
	logging.Disable()
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		os.Stderr.WriteString(err.Error())
		code = 1
	}
	os.Exit(code)
}

const secret = "0123456789abcdef"

// A visitor is somebody with a browser, at a dashboard of the queue "push".
type visitor struct {
	*testing.T
	*Dashboard
	rdb     redis.UniversalClient
	log     *bytes.Buffer
	cookies map[string]string
	header  http.Header // sent with every request
}

func visit(t *testing.T, rdb redis.UniversalClient, token string) *visitor {
	t.Helper()
	log := &bytes.Buffer{}
	d, err := New(Config{Redis: rdb, Queues: []string{"push"}, Token: token, Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	return &visitor{t, d, rdb, log, make(map[string]string), make(http.Header)}
}

func (v *visitor) must(err error) {
	v.Helper()
	if err != nil {
		v.Fatal(err)
	}
}

// send sends a request and keeps the cookies of the answer, as a browser does.
func (v *visitor) send(method, path string, form url.Values) *httptest.ResponseRecorder {
	v.Helper()
	r := httptest.NewRequest(method, "http://board.example"+path, strings.NewReader(form.Encode()))
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for name, values := range v.header {
		r.Header[name] = values
	}
	for name, value := range v.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
	w := httptest.NewRecorder()
	v.ServeHTTP(w, r)
	for _, c := range w.Result().Cookies() {
		if v.cookies[c.Name] = c.Value; c.MaxAge < 0 {
			delete(v.cookies, c.Name)
		}
	}
	return w
}

// page returns what a page of the queue says.
func (v *visitor) page(path string) string {
	v.Helper()
	w := v.send(http.MethodGet, "/dashboard/push/"+path, nil)
	if w.Code != http.StatusOK {
		v.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	return w.Body.String()
}

// sees fails unless a page holds some texts.
func (v *visitor) sees(path string, want ...string) string {
	v.Helper()
	body := v.page(path)
	for _, text := range want {
		if !strings.Contains(body, text) {
			v.Errorf("%s lacks %q:\n%s", path, text, body)
		}
	}
	return body
}

// signIn enters the token.
func (v *visitor) signIn() {
	v.Helper()
	w := v.send(http.MethodPost, "/dashboard/-/login", url.Values{"name": {"ann"}, "token": {secret}})
	if w.Code != http.StatusSeeOther || v.cookies[sessionCookie] == "" {
		v.Fatalf("signing in: %d\n%s", w.Code, w.Body)
	}
}

var formToken = regexp.MustCompile(`name="form" value="([^"]+)"`)

// form returns fields with what the pages' forms carry.
func (v *visitor) form(pairs ...string) url.Values {
	v.Helper()
	fields := url.Values{}
	if found := formToken.FindStringSubmatch(v.page("pauses")); found != nil {
		fields.Set("form", found[1])
	}
	for i := 0; i+1 < len(pairs); i += 2 {
		fields.Add(pairs[i], pairs[i+1])
	}
	return fields
}

// act sends a form that has to do something, and returns what the next page says was done.
func (v *visitor) act(path string, fields url.Values) string {
	v.Helper()
	w := v.send(http.MethodPost, "/dashboard/push/"+path, fields)
	if w.Code != http.StatusSeeOther {
		v.Fatalf("%s: %d\n%s", path, w.Code, w.Body)
	}
	done := regexp.MustCompile(`class="done" role="status">([^<]*)<`).FindStringSubmatch(v.page("pauses"))
	if done == nil {
		v.Fatalf("%s: nothing was done", path)
	}
	return done[1]
}

// enqueue offers jobs.
func (v *visitor) enqueue(jobs ...queue.Job) {
	v.Helper()
	client, err := queue.NewClient(v.rdb, "push")
	v.must(err)
	_, err = client.Enqueue(v.Context(), jobs...)
	v.must(err)
}

// limit puts policies in force.
func (v *visitor) limit(source string) {
	v.Helper()
	p, err := queue.ParsePolicies("policies", []byte(source))
	v.must(err)
	v.must(v.inspector().SetPolicies(v.Context(), p))
}

func (v *visitor) inspector() *watch.Watcher { return v.queues["push"].inspector }

// work runs a worker until the test ends, or the returned function is called.
func (v *visitor) work(places int, handler asynq.HandlerFunc) (stop func()) {
	v.Helper()
	worker, err := queue.NewWorker(v.rdb, queue.WorkerConfig{
		Queues: []string{"push"}, Concurrency: places, Logger: slog.New(slog.DiscardHandler),
		RetryDelay: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	v.must(err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(ctx, handler) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			v.Error(err)
		}
	})
	v.Cleanup(stop)
	return stop
}

func jobs(tenant, user string, n int) (all []queue.Job) {
	for i := range n {
		all = append(all, queue.Job{ID: fmt.Sprint(tenant, user, i), Tenant: tenant, User: user, Type: "push"})
	}
	return all
}

const limits = `default: standard
policies: {standard: {tenant: {rules: [{leak: 5/s}], capacity: 50}, user: {rules: [{window: 10/1m}, {spacing: 3s}]}}}
`

// everyPage are the pages of a tenant, a user and a job.
func everyPage(tenant, user, id string) []string {
	return []string{
		"", link("", "span", "3 h"), link("tenants", "q", tenant), "tenants", "tenants?sort=waiting", link("tenant", "t", tenant), link("user", "t", tenant, "u", user),
		link("job", "id", id), "running", link("running", "t", tenant), "later", "later?failed=1", "dead", link("dead", "t", tenant),
		"drops", link("drops", "t", tenant, "reason", "full"), "pauses", "policies", "workers", "limits",
	}
}

// soon is long enough for what was cached to be read again.
const soon = 2 * policiesAge
