package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/api"
)

const token = "a-token-that-nobody-guesses"

// A site serves the API of one Redis.
type site struct {
	*testing.T
	rdb redis.UniversalClient
	url string
	log *redistest.Buffer
}

func open(t *testing.T, rdb redis.UniversalClient, change func(*api.Config)) *site {
	t.Helper()
	s := &site{T: t, rdb: rdb, log: new(redistest.Buffer)}
	cfg := api.Config{Redis: rdb, Token: token, Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	if change != nil {
		change(&cfg)
	}
	handler, err := api.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL
	return s
}

// An answer is what came back.
type answer struct {
	status  int
	header  http.Header
	text    string
	problem api.Problem
}

// send sends a request as it is.
func (s *site) send(r *http.Request) answer {
	s.Helper()
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		s.Fatal(err)
	}
	a := answer{status: reply.StatusCode, header: reply.Header, text: string(text)}
	if kind := reply.Header.Get("Content-Type"); kind == "application/problem+json" {
		if err := json.Unmarshal(text, &a.problem); err != nil || a.problem.Status != a.status || a.problem.Detail == "" || !strings.HasPrefix(a.problem.Type, "urn:waterclock:") {
			s.Errorf("a problem that is none: %s", text)
		}
	} else if a.status != http.StatusOK {
		s.Errorf("status %d as %q: %s", a.status, kind, text)
	}
	return a
}

func (s *site) request(method, path, kind, body string) *http.Request {
	r, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

// get reads an answer that has to come.
func (s *site) get(path string, into any) {
	s.Helper()
	s.expect(s.send(s.request("GET", path, "", "")), into)
}

// post sends something, and reads an answer that has to come.
func (s *site) post(path string, body, into any) {
	s.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.Fatal(err)
	}
	method := "POST"
	if strings.HasSuffix(path, "/policies") {
		method = "PUT"
	}
	s.expect(s.send(s.request(method, path, "application/json", string(text))), into)
}

func (s *site) expect(a answer, into any) {
	s.Helper()
	if a.status != http.StatusOK {
		s.Fatalf("status %d: %s", a.status, a.text)
	}
	if into == nil {
		return
	}
	decoder := json.NewDecoder(strings.NewReader(a.text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		s.Fatalf("%v in %s", err, a.text)
	}
}

// work runs a worker until the test ends.
func (s *site) work(handler asynq.HandlerFunc) {
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{Queues: []string{"push"}, Lease: time.Second})
	if err != nil {
		s.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, handler) }()
	s.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			s.Error(err)
		}
	})
}

type fields map[string]any

const somePolicies = "default: standard\npolicies:\n  standard:\n    user: {rules: [{window: 2/1h}]}\n"

// A job that is offered over HTTP starts with what it carries; a second one with its ID is a
// duplicate; the answer says when the next one starts, and the API why.
func TestAJobIsOfferedAndStarts(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).Client(t), nil)
	s.post("/v1/queues/push/policies", fields{"source": somePolicies, "version": 0, "author": "ann", "reason": "the first ones"}, nil)
	started := make(chan string, 10)
	s.work(func(ctx context.Context, task *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		started <- fmt.Sprint(info.Tenant, " ", info.User, " ", info.ID, " ", task.Type(), " ", string(task.Payload()))
		return nil
	})
	one := `{"id":"a","tenant":"school-7","user":"teacher-42","type":"push","payload":{"b": 1.0,  "a":"<"}}`
	var got api.Receipts
	s.expect(s.send(s.request("POST", "/v1/queues/push/jobs", "application/json", one)), &got)
	if r := got.Receipts; len(r) != 1 || r[0].ID != "a" || r[0].Status != queue.Accepted || r[0].Place != 1 || r[0].Start.IsZero() {
		t.Errorf("%+v", r)
	}
	if got := <-started; got != `school-7 teacher-42 a push {"b": 1.0,  "a":"<"}` {
		t.Errorf("started %q", got)
	}
	lines := one + "\n\n" + strings.Replace(one, `"a"`, `"b"`, 1) + "\r\n" + strings.Replace(one, `"a"`, `"c"`, 1)
	got = api.Receipts{}
	s.expect(s.send(s.request("POST", "/v1/queues/push/jobs", "application/x-ndjson", lines)), &got)
	if r := got.Receipts; len(r) != 3 || r[0].Status != queue.Duplicate || r[1].Status != queue.Accepted || r[2].ID != "c" || r[2].Place == 0 || r[2].Start.IsZero() {
		t.Errorf("%+v", r)
	}
	<-started // b; c waits for the window
	var why api.Why
	s.get("/v1/queues/push/why?tenant=school-7", &why)
	if why.User != "teacher-42" || why.Waiting != 1 || why.Binding == nil || why.Binding.Rule != "window 2/1h" || !strings.Contains(why.Text, "waits for the user's rule window 2/1h") {
		t.Errorf("%+v", why)
	}
	var job queue.JobState
	s.get("/v1/queues/push/job?id=c", &job)
	if job.State != "waiting" || job.Place != 1 || time.Until(job.Start) < 50*time.Minute {
		t.Errorf("%+v", job)
	}
	if a := s.send(s.request("GET", "/v1/queues/push/job?id=nobody", "", "")); a.status != 404 {
		t.Errorf("an unknown job: %s", a.text)
	}
}

// What an operator does at the console works over HTTP.
func TestADayOverHTTP(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).Client(t), nil)
	const q = "/v1/queues/push"
	var counted api.PolicyCount
	s.post(q+"/policies/check", fields{"source": somePolicies}, &counted)
	var changes api.PolicyChanges
	s.post(q+"/policies/diff", fields{"source": somePolicies}, &changes)
	if counted.Policies != 1 || changes.Version != 0 || !strings.Contains(strings.Join(changes.Changes, "\n"), "+ default: standard") {
		t.Errorf("%+v, %+v", counted, changes)
	}
	var now api.PoliciesInForce
	s.post(q+"/policies", fields{"source": somePolicies, "version": 0, "author": "ann", "reason": "the first ones"}, &now)
	if now.Version == 0 || !strings.Contains(now.Source, "window: 2/1h") {
		t.Errorf("%+v", now)
	}
	again := fmt.Sprintf(`{"source":"default: none\npolicies: {none: {}}","version":%d}`, now.Version-1)
	if a := s.send(s.request("PUT", q+"/policies", "application/json", again)); a.status != http.StatusConflict {
		t.Errorf("somebody else's policies were overwritten: %s", a.text)
	}
	var history api.List[struct {
		Version        int64
		Since          time.Time
		Author, Reason string
		Changes        []string
	}]
	s.get(q+"/policies/history", &history)
	if len(history.Items) != 1 || history.Items[0].Author != "ann" || history.Items[0].Reason != "the first ones" {
		t.Errorf("%+v", history)
	}
	offer := func(id, user, kind string) fields {
		return fields{"id": id, "tenant": "school", "user": user, "type": kind, "max_retry": 0}
	}
	s.post(q+"/jobs", []fields{offer("a", "u", "push"), offer("b", "u", "push"), offer("c", "u", "push"), offer("d", "u", "push"), offer("e", "v", "fails"),
		{"tenant": "school", "user": "w", "type": "push", "not_before": time.Now().Add(time.Hour)}}, nil)
	s.work(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fails" {
			return errors.New("out of paper")
		}
		return nil
	})
	var state api.QueueState
	redistest.Eventually(t, 10*time.Second, "what may start has ended", func() bool {
		s.get(q, &state)
		return state.Stats.Done == 2 && state.Stats.Dead == 1 && state.Health.Workers > 0 // health is read before
	})
	if state.Stats.Waiting != 2 || state.Stats.Later != 1 || state.Health.Workers != 1 {
		t.Errorf("%+v", state)
	}
	var dead api.List[queue.DeadJob]
	s.get(q+"/dead?tenant=school", &dead)
	if len(dead.Items) != 1 || dead.Items[0].Error != "out of paper" || dead.Items[0].Attempts != 1 {
		t.Fatalf("%+v", dead)
	}
	for path, want := range map[string]string{
		"/v1/queues": `"queue":"push"`, q + "/health": `"condition":"throttled"`, q + "/doctor": `"what":"eviction"`, q + "/tenants": `"tenant":"school"`,
		q + "/tenants?tenant=nobody": `"waiting":0`, q + "/users?tenant=school": `"user":"u"`, q + "/lane?tenant=school&user=u": `"id":"d"`,
		q + "/running": `"items":[]`, q + "/later?n=1": `"user":"w"`, q + "/retrying": `"items":[]`, q + "/failures": `"class":"out of paper"`, q + "/drops": `"items":[]`, q + "/workers": `"leads":true`, q + "/pauses": `"items":[]`,
		q + "/policies": `"version":`, "/v1/openapi.yaml": "openapi: 3",
	} {
		if a := s.send(s.request("GET", path, "", "")); a.status != 200 || !strings.Contains(a.text, want) {
			t.Errorf("%s: %d, %s; want %s", path, a.status, a.text, want)
		}
	}
	var paused api.List[queue.Pause]
	s.post(q+"/pause", fields{"tenant": "school", "for": "10m", "author": "ann", "reason": "their endpoint is down"}, &paused)
	if len(paused.Items) != 1 || paused.Items[0].Author != "ann" || paused.Items[0].Scope != queue.ScopeTenant {
		t.Errorf("%+v", paused)
	}
	s.post(q+"/resume", fields{"tenant": "school"}, &paused)
	if len(paused.Items) != 0 {
		t.Errorf("%+v", paused)
	}
	var cancelled api.Cancelled
	s.post(q+"/cancel", fields{"ids": []string{"d", "nobody"}}, &cancelled)
	if fmt.Sprint(cancelled) != "{[d] [nobody]}" {
		t.Errorf("%+v", cancelled)
	}
	var affected api.Affected
	s.post(q+"/revive", fields{"entries": []string{dead.Items[0].Entry}}, &affected)
	redistest.Eventually(t, 10*time.Second, "it is dead again", func() bool {
		s.get(q+"/dead", &dead)
		return len(dead.Items) == 1
	})
	s.post(q+"/delete", fields{"entries": []string{dead.Items[0].Entry, "1-1"}}, &affected)
	if affected.Jobs != 1 {
		t.Errorf("%+v", affected)
	}
	s.post(q+"/purge", fields{"tenant": "school"}, &affected)
	if affected.Jobs != 2 {
		t.Errorf("%+v", affected)
	}
	var plan api.List[struct {
		Tenant        string
		Before, After struct {
			Jobs    int
			P50     int64 `json:"wait_p50_ns"`
			P99     int64 `json:"wait_p99_ns"`
			Max     int64 `json:"wait_max_ns"`
			Dropped map[string]int
			Ends    time.Time
		}
	}]
	s.post(q+"/plan", fields{"source": "default: fast\npolicies: {fast: {user: {rules: [{window: 1/10s}]}}}\n",
		"offers": []fields{{"at": 1e9, "tenant": "t", "user": "u"}, {"tenant": "t", "user": "u"}, {"tenant": "t", "user": "u"}}}, &plan)
	if len(plan.Items) != 1 || plan.Items[0].Before.Max/1e9 != 3600 || plan.Items[0].After.Max/1e9 != 20 {
		t.Errorf("%+v", plan)
	}
	if log := s.log.String(); strings.Count(log, "done over HTTP") != 8 || !strings.Contains(log, "author=ann") || strings.Contains(log, token) {
		t.Errorf("logged: %s", log)
	}
}

// Whatever a name holds, it comes back as it was, and as nothing but text.
func TestHostileNames(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Start(t).Client(t), nil)
	for _, name := range []string{
		"<script>alert(1)</script>", "\x00\x1b[31m", "../../etc", "a/b%2Fc?x=1&y", "\u202egnol", strings.Repeat("x", 1024), `","tenant":"other`, "a b+c", "{}:", "\u2028",
	} {
		s.post("/v1/queues/push/jobs", fields{"id": name, "tenant": name, "user": name, "type": name}, nil)
		query := url.Values{"tenant": {name}, "user": {name}}.Encode()
		var why api.Why
		s.get("/v1/queues/push/why?"+query, &why)
		if why.Waiting != 1 {
			t.Errorf("%q: %+v", name, why)
		}
		var job queue.JobState
		s.get("/v1/queues/push/job?"+url.Values{"id": {name}}.Encode(), &job)
		if job.Tenant != name || job.User != name {
			t.Errorf("%q came back as %q", name, job.Tenant)
		}
		a := s.send(s.request("GET", "/v1/queues/push/lane?"+query, "", ""))
		if strings.ContainsAny(a.text, "<>\x1b\x00") {
			t.Errorf("%q: %s", name, a.text)
		}
	}
}
