package api_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/api"
	"github.com/waterclock/waterclock/queue/watch"
)

// Without the token nothing is answered and nothing changes.
func TestEveryRequestNeedsTheToken(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), nil)
	for _, header := range []string{"", "Bearer", "Bearer ", "Bearer " + token + "x", "Bearer " + token[1:], "Basic " + token, token, "Bearer  " + token} {
		for _, path := range []string{"/v1/queues/push/jobs", "/v1/queues/push/pause", "/v1/openapi.yaml", "/v1/", "/"} {
			r := s.request("POST", path, "application/json", `{"tenant":"t","user":"u","type":"push","for":"1h"}`)
			r.Header.Del("Authorization")
			if header != "" {
				r.Header.Set("Authorization", header)
			}
			if a := s.send(r); a.status != http.StatusUnauthorized || a.header.Get("WWW-Authenticate") == "" || strings.Contains(a.text, token) {
				t.Errorf("%q %s: %d, %s", header, path, a.status, a.text)
			}
		}
	}
	r := s.request("GET", "/v1/openapi.yaml", "", "")
	r.Header.Del("Authorization")
	if a := s.send(r); a.status != http.StatusOK || !strings.Contains(a.text, "openapi: 3") {
		t.Errorf("the description of the API, without a token: %d, %s", a.status, a.text)
	}
	if keys, err := s.rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys in Redis: %q, %v", keys, err)
	}
	r = s.request("GET", "/v1/queues", "", "")
	r.Header.Set("Authorization", "bearer "+token) // schemes have no case
	if a := s.send(r); a.status != http.StatusOK {
		t.Error(a.text)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	rdb := redistest.Mini(t)
	for want, cfg := range map[string]api.Config{
		"Redis is nil":                      {Token: token},
		"want one of Token and Tokens":      {Redis: rdb},
		"the token has 15 bytes; want":      {Redis: rdb, Token: strings.Repeat("x", 15)},
		"white space in the token":          {Redis: rdb, Token: token + "\n"},
		"Durability.Replicas is -1; want 0": {Redis: rdb, Token: token, Durability: queue.Durability{Replicas: -1}},
		"Timeout is -1s":                    {Redis: rdb, Token: token, Timeout: -time.Second},
		"invalid queue name: \"a b\"":       {Redis: rdb, Token: token, Queues: []string{"push", "a b"}},
	} {
		if _, err := api.New(cfg); !errors.Is(err, api.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// Jobs that have not come as far as they have to are in the queue all the same, and the answer says both.
func TestNotDurable(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), func(cfg *api.Config) {
		cfg.Durability, cfg.Timeout = queue.Durability{Replicas: 1}, 3*time.Second
	})
	a := s.send(s.request("POST", "/v1/queues/push/jobs", "application/json", `{"tenant":"t","user":"u","type":"push"}`))
	want := "the jobs are in Redis, but only 0 of 1 replica has them; 0 of 1 jobs are known to have arrived; those with an ID can safely be offered again"
	if a.status != http.StatusServiceUnavailable || a.problem.Type != "urn:waterclock:not-durable" || a.problem.Detail != want {
		t.Error(a.text)
	}
	if n := s.rdb.LLen(t.Context(), "wc:{push}:lane:t:u").Val(); n != 1 {
		t.Errorf("%d jobs wait, want 1", n)
	}
}

// One bad job in a request: nothing of the request is taken, other requests do not notice, and
// the answer says which, where, what is wrong and what would be right.
func TestOneBadJob(t *testing.T) {
	t.Parallel()
	good := `{"tenant":"t","user":"u","type":"push"}`
	for name, test := range map[string]struct {
		kind, body string
		want       api.FieldError
	}{
		"unknown field":  {"application/json", "[" + good + ",\n " + `{"tenant":"t","user":"u","type":"push","price":2}]`, api.FieldError{Pointer: "/1/price", Line: 2, Column: 41, Detail: "unknown key"}},
		"wrong key":      {"application/json", `{"tenant":"t","user":"u","type":"push","keys":{"domain":7}}`, api.FieldError{Pointer: "/keys", Line: 1, Column: 40, Detail: "domain: a number", Remedy: "want a string"}},
		"empty key":      {"application/json", `{"tenant":"t","user":"u","type":"push","keys":{"domain":""}}`, api.FieldError{Pointer: "/keys", Line: 1, Column: 1, Detail: "keys.domain has 0 bytes", Remedy: "from 1 to 256"}},
		"no unit":        {"application/json", `{"tenant":"t","user":"u","type":"push","costs":{"jobs":1}}`, api.FieldError{Pointer: "/costs", Line: 1, Column: 1, Detail: `costs: unit "jobs"`, Remedy: "want a name such as tokens: a lower-case letter, then up to 31 of them, digits or underscores"}},
		"wrong type":     {"application/json", `{"tenant":"t","user":7,"type":"push"}`, api.FieldError{Pointer: "/user", Line: 1, Column: 15, Detail: "a number", Remedy: "want a string"}},
		"missing field":  {"application/x-ndjson", good + "\n" + `{"tenant":"t","type":"push"}`, api.FieldError{Pointer: "/1/user", Line: 2, Column: 1, Detail: "user is missing"}},
		"out of bounds":  {"application/x-ndjson", good + "\n\n" + `{"tenant":"t","user":"u","type":"push","cost":0}`, api.FieldError{Pointer: "/2/cost", Line: 3, Column: 40, Detail: "0", Remedy: "want a whole number from 1 to 1000000"}},
		"no JSON":        {"application/x-ndjson", good + "\nhello", api.FieldError{Pointer: "/1", Line: 2, Column: 1, Detail: "not JSON: invalid character 'h' looking for beginning of value (byte 1)"}},
		"no list":        {"application/json", `[` + good + `,]`, api.FieldError{Line: 1, Column: 42, Detail: "not JSON: invalid character ']' looking for beginning of value (byte 42)"}},
		"not UTF-8":      {"application/json", `{"tenant":"` + "\xff", api.FieldError{Line: 1, Column: 12, Detail: "not UTF-8: byte 12"}},
		"nothing":        {"application/json", ``, api.FieldError{Line: 1, Column: 1, Detail: "not JSON: unexpected end of JSON input (byte 0)"}},
		"list in a list": {"application/json", `[[` + good + `]]`, api.FieldError{Pointer: "/0", Line: 1, Column: 2, Detail: "a list"}},
		"half a pair":    {"application/json", `{"tenant":"\ud83d","user":"u","type":"push"}`, api.FieldError{Pointer: "/tenant", Line: 1, Column: 2, Detail: `"\ud83d" holds half a surrogate pair`, Remedy: "want both or none"}},
		"twice":          {"application/json", `{"tenant":"t","tenant":"t"}`, api.FieldError{Pointer: "/tenant", Line: 1, Column: 15, Detail: "appears twice"}},
		"too long":       {"application/json", `{"tenant":"t","user":"` + strings.Repeat("x", 1025) + `","type":"push"}`, api.FieldError{Pointer: "/user", Line: 1, Column: 1, Detail: "user has 1025 bytes", Remedy: "at most 1024"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, redistest.Mini(t), nil)
			a := s.send(s.request("POST", "/v1/queues/push/jobs", test.kind, test.body))
			if a.status != http.StatusBadRequest || len(a.problem.Errors) != 1 {
				t.Fatalf("%d, %s", a.status, a.text)
			}
			got := a.problem.Errors[0]
			if test.want.Remedy == "" {
				got.Remedy = ""
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			var receipts api.Receipts
			s.expect(s.send(s.request("POST", "/v1/queues/push/jobs", "application/json", good)), &receipts)
			var state api.QueueState
			if s.get("/v1/queues/push", &state); state.Stats.Waiting != 1 {
				t.Errorf("%d jobs wait; want only that of the next request", state.Stats.Waiting)
			}
		})
	}
}

// What means nothing is refused, in a body, in the query and in the path, and nothing changes.
func TestRefused(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), func(cfg *api.Config) { cfg.Queues = []string{"push", "a/b"} })
	const q = "/v1/queues/push"
	for _, test := range []struct {
		status             int
		method, path, body string
		want               string
	}{
		{404, "GET", "/v1/queues/other", "", `queue \"other\" is not served here`},
		{404, "GET", "/v1/queues/a b", "", `is not served here`},
		{404, "GET", "/v1/nothing", "", "there is nothing at /v1/nothing"},
		{404, "GET", "/", "", "there is nothing at /"},
		{405, "POST", q, "{}", "want GET"},
		{405, "DELETE", q + "/policies", "", "want GET or PUT"},
		{400, "GET", q + "/tenants?tenants=x", "", `"parameter":"tenants","detail":"unknown parameter","remedy":"want tenant, from, n"`},
		{400, "GET", q + "?x=1", "", "want none"},
		{400, "GET", q + "/tenants?n=1&n=2", "", "appears twice"},
		{400, "GET", q + "/tenants?n=0", "", "want a whole number from 1 to 1000"},
		{400, "GET", q + "/tenants?from=-1", "", "want a whole number from 0 to 1000000"},
		{400, "GET", q + "/users", "", "tenant: is missing"},
		{400, "GET", q + "/drops?reason=fulll", "", `"parameter":"reason","detail":"is \"fulll\"","remedy":"want one of full rule expired`},
		{400, "GET", q + "/lane?tenant=t", "", "user: is missing"},
		{400, "GET", q + "/tenants?n=%zz", "", "cannot be read"},
		{400, "POST", q + "/pause", `{"for":"1h","why":"x"}`, `"pointer":"/why","line":1,"column":13,"detail":"unknown field"`},
		{400, "POST", q + "/pause", `{"for":5}`, `want a time such as`},
		{400, "POST", q + "/pause", `[]`, `want an object`},
		{400, "POST", q + "/pause", `{"for":"1h"} {}`, `not JSON`},
		{400, "POST", q + "/pause", `{"until":"tomorrow"}`, `want an instant`},
		{422, "POST", q + "/pause", `{}`, `it is not said until when`},
		{422, "POST", q + "/pause", `{"for":"1h","until":"2036-01-01T00:00:00Z"}`, `one of them`},
		{422, "POST", q + "/pause", `{"for":"5ms"}`, `want at least 1s`},
		{422, "POST", q + "/pause", `{"until":"2016-01-01T00:00:00Z"}`, `has passed`},
		{422, "POST", q + "/pause", `{"for":"1h","user":"u"}`, `want the tenant of the user`},
		{400, "POST", q + "/pause", `{"for":"1h","tenant":""}`, `"pointer":"/tenant","line":1,"column":13,"detail":"is empty"`},
		{400, "POST", q + "/pause", `{"for":"1h","tenant":"t","user":""}`, `"pointer":"/user","line":1,"column":26,"detail":"is empty"`},
		{400, "POST", q + "/resume", `{"tenant":""}`, `"pointer":"/tenant"`},
		{422, "POST", q + "/purge", `{"tenant":""}`, `want the name of a tenant`},
		{400, "POST", q + "/purge", `{}`, `"pointer":"/tenant","line":1,"column":1,"detail":"is missing"`},
		{400, "POST", q + "/cancel", `{"ids":["a",7]}`, `item 1 is a number`},
		{422, "POST", q + "/revive", `{"entries":["x"]}`, `want DeadJob.Entry`},
		{422, "POST", q + "/cancel", `{"ids":["` + strings.Repeat(`x","`, 1000) + `"]}`, `want at most 1000`},
		{405, "POST", q + "/overrides", `{}`, "want DELETE or GET or PUT"},
		{400, "PUT", q + "/overrides", `{"rules":["leak 5/s"],"for":"1h"}`, `"parameter":"limit","detail":"is missing"`},
		{400, "PUT", q + "/overrides?limit=tennant&key=t", `{"rules":["leak 5/s"],"for":"1h"}`, `"parameter":"limit","detail":"there is no limit \"tennant\"","remedy":"did you mean tenant?"`},
		{400, "PUT", q + "/overrides?limit=domain&key=t", `{"rules":["leak 5/s"],"for":"1h"}`, `there are queue, tenant, user`},
		{400, "PUT", q + "/overrides?limit=user&key=t", `{"rules":["leak 5/s"],"for":"1h"}`, `"parameter":"key","detail":"has 1 value","remedy":"want one for each of tenant, user, as key=…\u0026key=…"`},
		{400, "PUT", q + "/overrides?limit=queue&key=t", `{"rules":["leak 5/s"],"for":"1h"}`, `want none: limit queue has no key`},
		{400, "PUT", q + "/overrides?limit=tenant&key=", `{"rules":["leak 5/s"],"for":"1h"}`, `"parameter":"key","detail":"is empty"`},
		{400, "PUT", q + "/overrides?limit=tenant&limit=user&key=t", `{"rules":["leak 5/s"],"for":"1h"}`, `appears twice`},
		{400, "PUT", q + "/overrides?limit=tenant&key=t", `{"rule":"leak 5/s","for":"1h"}`, `want rules, concurrency, capacity, for, until, author, reason`},
		{400, "PUT", q + "/overrides?limit=tenant&key=t", `{"rules":"leak 5/s","for":"1h"}`, `want a list of strings`},
		{400, "PUT", q + "/overrides?limit=tenant&key=t", `{"capacity":-1,"for":"1h"}`, `"pointer":"/capacity"`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"rules":["leak 5/s","laek 5/s"],"for":"1h"}`, `"pointer":"/rules/1","detail":"invalid rule \"laek 5/s\": unknown kind \"laek\"","remedy":"want leak`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"concurrency":"many","for":"1h"}`, `"pointer":"/concurrency","detail":"is \"many\""`},
		{422, "PUT", q + "/overrides?limit=queue", `{"capacity":5,"for":"1h"}`, `"pointer":"/capacity","detail":"the queue has none"`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"for":"1h"}`, `replaces nothing`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"rules":["leak 5/s"]}`, `it is not said until when`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"rules":["leak 5/s"],"for":"5ms"}`, `want at least 1s`},
		{422, "PUT", q + "/overrides?limit=tenant&key=t", `{"rules":["leak 5/s"],"until":"2016-01-01T00:00:00Z"}`, `has passed`},
		{400, "DELETE", q + "/overrides", "", `"parameter":"limit"`},
		{400, "DELETE", q + "/overrides?limit=tennant&key=t", "", `did you mean tenant?`},
		{400, "DELETE", q + "/overrides?limit=tenant&key=t&key=u", "", `has 2 values`},
		{400, "DELETE", q + "/overrides?limit=tenant&key=t&why=x", "", `want limit, key, author, reason`},
		{422, "PUT", q + "/policies", `{"source":"polices: {}","version":0}`, `policies:1: polices: unknown key`},
		{400, "PUT", q + "/policies", `{"source":"default: x"}`, `"pointer":"/version"`},
		{400, "PUT", q + "/policies", `{"source":"default: x","version":-1}`, `want a whole number`},
		{422, "POST", q + "/plan", `{"source":"default: x\npolicies: {x: {}}","offers":[]}`, `has 0 items`},
		{422, "POST", q + "/plan", `{"source":"default: x\npolicies: {x: {}}","offers":[{"tenant":"t"}]}`, `"pointer":"/offers/0"`},
		{413, "POST", q + "/jobs", strings.Repeat(" ", 17<<20), `want several requests`},
		{413, "POST", q + "/jobs", "[" + strings.Repeat("{},", 10_000) + "{}]", `want at most 10000`},
	} {
		a := s.send(s.request(test.method, strings.ReplaceAll(test.path, " ", "%20"), "application/json", test.body))
		if a.status != test.status || !strings.Contains(a.text, test.want) {
			t.Errorf("%s %s %.60s: %d, %.300s; want %d and %s", test.method, test.path, test.body, a.status, a.text, test.status, test.want)
		}
	}
	if a := s.send(s.request("POST", q+"/jobs", "application/x-www-form-urlencoded", "{}")); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("a form: %d, %s", a.status, a.text)
	}
	if a := s.send(s.request("GET", "/v1/queues/a%2Fb/health", "", "")); a.status != http.StatusOK {
		t.Errorf("a queue with a slash: %s", a.text)
	}
	if keys, err := s.rdb.Keys(t.Context(), "*").Result(); err != nil || len(keys) > 0 {
		t.Errorf("keys in Redis: %q, %v", keys, err)
	}
}

// While Redis is away, requests say so, and nothing of what Redis has said.
func TestRedisIsAway(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := open(t, server.Client(t), func(cfg *api.Config) { cfg.Timeout = 300 * time.Millisecond })
	server.Kill()
	for _, r := range []*http.Request{
		s.request("GET", "/v1/queues/push", "", ""),
		s.request("POST", "/v1/queues/push/jobs", "application/json", `{"tenant":"t","user":"u","type":"push"}`),
	} {
		a := s.send(r)
		if a.status != http.StatusServiceUnavailable && a.status != http.StatusGatewayTimeout || strings.Contains(a.text, server.Addr) {
			t.Errorf("%s: %d, %s", r.URL.Path, a.status, a.text)
		}
	}
	if !strings.Contains(s.log.String(), "level=ERROR") {
		t.Errorf("nothing is logged: %s", s.log)
	}
}

// At most so many requests are answered at a time; the others are told to come again.
func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	s := open(t, redistest.Mini(t), nil)
	handler, err := api.New(api.Config{Redis: s.rdb, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	begun, end := make(chan struct{}), make(chan struct{})
	ended := make(chan int)
	const most = 64
	for range most {
		r := s.request("POST", "/v1/queues/push/jobs", "application/json", "")
		r.Body = &slow{begun, end, false}
		go func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			ended <- w.Code
		}()
	}
	for range most {
		<-begun
	}
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, s.request("GET", "/v1/queues/push", "", ""))
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" {
		t.Errorf("%d, %v", w.Code, w.Header())
	}
	close(end)
	for range most {
		if status := <-ended; status != http.StatusBadRequest {
			t.Errorf("status %d", status)
		}
	}
	w = httptest.NewRecorder()
	handler.ServeHTTP(w, s.request("GET", "/v1/queues/push", "", ""))
	if w.Code != http.StatusOK {
		t.Errorf("afterwards: %d", w.Code)
	}
}

// slow is a body that does not come.
type slow struct {
	begun, end chan struct{}
	told       bool
}

func (s *slow) Read([]byte) (int, error) {
	if !s.told {
		s.told = true
		s.begun <- struct{}{}
	}
	<-s.end
	return 0, errors.New("cut off")
}

func (s *slow) Close() error { return nil }

// Whatever a body holds: the answer is JSON, it is no failure of the server, and what is
// accepted waits.
func FuzzBodies(f *testing.F) {
	f.Add("jobs", "application/json", []byte(`[{"tenant":"t","user":"u","type":"push","payload":{"a":1},"id":"7"}]`))
	f.Add("jobs", "application/x-ndjson", []byte("{\"tenant\":\"\\ud83d\"}\n\n{}"))
	f.Add("pause", "application/json", []byte(`{"tenant":"t","user":"u","for":"1h","until":"2036-01-01T00:00:00Z","author":"a","reason":"b"}`))
	f.Add("policies/diff", "application/json", []byte(`{"source":"default: x\npolicies: {x: {user: {rules: [{window: 1/1s}]}}}"}`))
	f.Add("plan", "application/json", []byte(`{"source":"","offers":[{"at":1e9,"tenant":"t","user":"u","cost":3}],"takes":"1s","places":1}`))
	f.Add("revive", "application/json", []byte(`{"entries":["1-1"]}`))
	f.Add("cancel", "application/json", []byte(`{"ids":["\u0000"]}`))
	rdb := redistest.Mini(f)
	handler, err := api.New(api.Config{Redis: rdb, Token: token})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path, kind string, body []byte) {
		before := waiting(t, rdb)
		r := httptest.NewRequest("POST", "/v1/queues/push/x", bytes.NewReader(body))
		r.URL.Path = "/v1/queues/push/" + path
		r.Header.Set("Content-Type", kind)
		r.Header.Set("Authorization", "Bearer "+token)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code >= 500 || w.Code/100 == 2 && !json.Valid(w.Body.Bytes()) {
			t.Fatalf("%s %s %q: %d, %s", path, kind, body, w.Code, w.Body)
		}
		var got struct{ Receipts []queue.Receipt }
		_ = json.Unmarshal(w.Body.Bytes(), &got)
		accepted := int64(0)
		for _, receipt := range got.Receipts {
			if receipt.Status == queue.Accepted {
				accepted++
			}
		}
		if path == "jobs" && waiting(t, rdb)-before != accepted {
			t.Fatalf("%q: %s, and %d jobs more wait", body, w.Body, waiting(t, rdb)-before)
		}
	})
}

func waiting(t *testing.T, rdb redis.UniversalClient) int64 {
	inspector, err := watch.New(rdb, "push")
	if err != nil {
		t.Fatal(err)
	}
	stats, err := inspector.Stats(t.Context())
	if err != nil {
		t.Fatal(fmt.Errorf("reading: %w", err))
	}
	return stats.Waiting + stats.Later
}
