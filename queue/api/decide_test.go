package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue/api"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// limited serves the API with the limits of a file.
func limited(t *testing.T, rdb redis.UniversalClient, text string) (s *site, file *limits.File, name string) {
	name = filepath.Join(t.TempDir(), "limits.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := limits.OpenFile(name, throttle.New(throttle.NewRedisStore(rdb, "wc:{:limits}")))
	if err != nil {
		t.Fatal(err)
	}
	return open(t, rdb, func(cfg *api.Config) { cfg.Limits = file.Set }), file, name
}

// decide asks about one action.
func (s *site) decide(body string) (api.Decision, http.Header) {
	s.Helper()
	var got api.Decisions
	a := s.send(s.request("POST", "/v1/decide", "application/json", body))
	if s.expect(a, &got); len(got.Decisions) != 1 {
		s.Fatalf("%s", a.text)
	}
	return got.Decisions[0], a.header
}

// 1,000 callers ask at the same time, about four users with 10 in any second each, one by one and in batches, and ask again when they
// are told to. By the instants on Redis's clock nobody gets more than 10 in any second, and everybody gets all that fits.
func TestManyCallersNeverExceedAWindow(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const callers, most, window = 1000, 10, time.Second
	s, _, _ := limited(t, redistest.Start(t).Client(t), "limits: {sends: {key: [tenant, user], counts: jobs, rules: [{window: 10/1s}]}}")
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: callers, MaxIdleConnsPerHost: callers}}
	defer client.CloseIdleConnections()
	ask := func(body string) (got api.Decisions) {
		r := s.request("POST", "/v1/decide", "application/json", body)
		reply, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return got
		}
		defer reply.Body.Close()
		if err := json.NewDecoder(reply.Body).Decode(&got); err != nil || reply.StatusCode != http.StatusOK {
			t.Errorf("%s, %v", reply.Status, err)
		}
		return got
	}
	var mu sync.Mutex
	granted := make(map[string][]time.Time)
	var all sync.WaitGroup
	begin := time.Now()
	ends := begin.Add(3 * time.Second)
	goesOn := func() bool { // until all have got enough; on a busy machine that takes longer
		mu.Lock()
		defer mu.Unlock()
		fewest := 2 * most
		for user := range 4 {
			fewest = min(fewest, len(granted[fmt.Sprint("user-", user)]))
		}
		return time.Now().Before(ends) || fewest < 2*most && time.Since(begin) < 30*time.Second
	}
	for i := range callers {
		all.Go(func() {
			user := fmt.Sprint("user-", i%4)
			body := fmt.Sprintf(`{"tenant":"school","user":%q}`, user)
			if i%10 == 0 {
				body = "[" + body + "," + body + "," + body + "]"
			}
			for goesOn() {
				got := ask(body)
				wait := 20 * time.Millisecond
				mu.Lock()
				for _, d := range got.Decisions {
					if d.Allowed {
						granted[user] = append(granted[user], d.When)
					}
					wait = max(wait, time.Duration(d.WaitMS)*time.Millisecond)
				}
				mu.Unlock()
				timer := time.NewTimer(wait)
				<-timer.C
			}
		})
	}
	all.Wait()
	lasted := time.Since(begin)
	for user, at := range granted {
		slices.SortFunc(at, time.Time.Compare)
		for i := most; i < len(at); i++ {
			if d := at[i].Sub(at[i-most]); d < window {
				t.Errorf("%s: %d within %v", user, most+1, d)
			}
		}
		if len(at) < 2*most || len(at) > most*(int(lasted/window)+1) {
			t.Errorf("%s: %d in %v", user, len(at), lasted)
		}
	}
	if len(granted) != 4 {
		t.Errorf("%d users", len(granted))
	}
}

// What each mode answers and counts, and the limit that binds.
func TestModes(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Start(t).Client(t), `
limits:
  marketing: {jobs: {type: marketing}, key: [tenant, user], counts: jobs, rules: [{window: 2/1h, over: drop}]}
  domain:    {key: keys.domain, counts: jobs, rules: [{window: 3/1h}]}
  tokens:    {counts: tokens, key: [tenant], rules: [{token_bucket: 1000/1h, burst: 1000}]}
`)
	check := func(what string, d api.Decision, allowed bool, outcome, limit, key string, remaining int) {
		t.Helper()
		if d.Allowed != allowed || d.Outcome != outcome || d.Limit != limit || strings.Join(d.Key, ",") != key || d.Remaining != remaining {
			t.Errorf("%s: %+v", what, d)
		}
	}
	const plain = `{"tenant":"t","user":"u","keys":{"domain":"x.org"}%s}`
	ask := func(more string) api.Decision { t.Helper(); d, _ := s.decide(fmt.Sprintf(plain, more)); return d }
	for range 3 {
		check("peek counts nothing", ask(`,"mode":"peek"`), true, "admitted", "domain", "x.org", 3)
	}
	check("allow counts", ask(""), true, "admitted", "domain", "x.org", 2)
	check("reserve counts", ask(`,"mode":"reserve"`), true, "admitted", "domain", "x.org", 1)
	d := ask(`,"mode":"allow"`)
	if check("the third", d, true, "admitted", "domain", "x.org", 0); d.WaitMS != 0 || d.Quota != 3 || d.Rule != "window 3/1h" || d.MoreAfterMS < 3_500_000 || time.Since(d.When).Abs() > time.Minute {
		t.Errorf("%+v", d)
	}
	d = ask("")
	if check("the fourth", d, false, "deferred", "domain", "x.org", 0); d.WaitMS < 3_500_000 || d.WaitMS > 3_600_000 || time.Until(d.When).Round(time.Hour) != time.Hour {
		t.Errorf("%+v", d)
	}
	if d := ask(`,"mode":"reserve"`); !d.Allowed || d.Outcome != "deferred" || d.WaitMS < 3_500_000 {
		t.Errorf("reserved: %+v", d)
	}
	marketing := `{"tenant":"t","user":"u","type":"marketing"}`
	for i := range 2 {
		d, _ := s.decide(marketing)
		check("marketing", d, true, "admitted", "marketing", "t,u", 1-i)
	}
	d, header := s.decide(marketing)
	if check("too much marketing", d, false, "dropped", "marketing", "t,u", 0); d.WaitMS < 3_500_000 || time.Until(d.When).Round(time.Hour) != time.Hour {
		t.Errorf("%+v", d)
	}
	if got := header.Get("RateLimit"); !strings.HasPrefix(got, `"marketing window 2/1h";r=0;t=3`) {
		t.Errorf("RateLimit: %s", got)
	}
	if got := header.Get("RateLimit-Policy"); !strings.Contains(got, `;q=2;w=3600`) || strings.Contains(got, "domain") {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if d, header := s.decide(`{"type":"free"}`); !d.Allowed || d.Rule != "" || d.Limit != "" || header.Get("RateLimit") != "" {
		t.Errorf("no limit is about it: %+v, %v", d, header)
	}
	d, _ = s.decide(`{"tenant":"t","costs":{"tokens":812}}`)
	check("tokens", d, true, "admitted", "tokens", "t", 188)
	if keys, err := s.rdb.Keys(t.Context(), "*").Result(); err != nil || slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, "wc:{") }) {
		t.Errorf("keys %q, %v", keys, err)
	}
}

// Several actions are decided each by itself, in their order, also where one of them is over its limit.
func TestSeveralActions(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Start(t).Client(t), "limits: {domain: {key: keys.domain, counts: jobs, rules: [{window: 2/1h}]}}")
	for _, mode := range []string{"", `,"mode":"reserve"`} {
		var actions []string
		for i := range 30 {
			domain := fmt.Sprint("d", i/2, mode)
			if i%10 == 9 { // one in ten asks a third time for the first domain
				domain = "d0" + mode
			}
			text, _ := json.Marshal(domain)
			actions = append(actions, fmt.Sprintf(`{"keys":{"domain":%s}%s}`, text, mode))
		}
		var got api.Decisions
		a := s.send(s.request("POST", "/v1/decide", "application/json", "["+strings.Join(actions, ",")+"]"))
		if s.expect(a, &got); len(got.Decisions) != 30 || a.header.Get("RateLimit") != "" {
			t.Fatalf("%s", a.text)
		}
		for i, d := range got.Decisions {
			if over := i%10 == 9; (d.Outcome == "deferred") != over || d.Allowed == (over && mode == "") {
				t.Errorf("%s %d: %+v", mode, i, d)
			}
		}
	}
}

// One bad action among good ones: nothing is decided, and the answer says which, where and what would be right.
func TestOneBadAction(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Mini(t), `
limits:
  route:  {key: keys.route, counts: jobs, missing: refuse, rules: [{window: 2/1h}]}
  tokens: {counts: tokens, rules: [{window: 100/1h}]}
`)
	good := `{"keys":{"route":"x"}}`
	for _, test := range []struct {
		status     int
		body, want string
	}{
		{400, "[" + good + `,{"tenent":"t"}]`, `"pointer":"/1/tenent","line":1,"column":26,"detail":"unknown field","remedy":"want tenant, user, type, keys, cost, costs, mode"`},
		{400, "[" + good + `,{"mode":"wait"}]`, `"pointer":"/1/mode","line":1,"column":26,"detail":"\"wait\"","remedy":"want \"allow\", \"reserve\" or \"peek\""`},
		{400, "[" + good + `,{"cost":0}]`, `"pointer":"/1/cost"`},
		{400, "[" + good + `,{"costs":{"tokens":"1"}}]`, `"pointer":"/1/costs"`},
		{400, "[" + good + `,{"keys":{"route":7}}]`, `"pointer":"/1/keys"`},
		{400, "[" + good + `,7]`, `"pointer":"/1"`},
		{400, `{"keys":{"route":"x"},"keys":{}}`, "appears twice"},
		{400, ``, "not JSON"},
		{422, "[" + good + `,{"tenant":"t"}]`, `"pointer":"/1","detail":"limit route needs keys.route, and it is missing"`},
		{422, `{"tenant":"t"}`, `"detail":"limit route needs keys.route, and it is missing"`},
		{422, "[" + good + `,{"keys":{"route":"y"},"costs":{"tokens":101}}]`, "cost can never be admitted"},
		{422, `[]`, "has 0 actions"},
		{422, "[" + strings.Repeat(good+",", 1000) + good + "]", "want 1 to 1000"},
		{413, strings.Repeat(" ", 300<<10), "want several requests"},
	} {
		a := s.send(s.request("POST", "/v1/decide", "application/json", test.body))
		if a.status != test.status || !strings.Contains(a.text, test.want) {
			t.Errorf("%.80s: %d, %s; want %d and %s", test.body, a.status, a.text, test.status, test.want)
		}
	}
	if d, _ := s.decide(`{"keys":{"route":"x"},"mode":"peek"}`); d.Remaining != 2 {
		t.Errorf("something has counted: %+v", d)
	}
	if a := s.send(s.request("POST", "/v1/decide", "text/plain", good)); a.status != http.StatusUnsupportedMediaType {
		t.Errorf("%s", a.text)
	}
	none := open(t, s.rdb, nil)
	if a := none.send(none.request("POST", "/v1/decide", "application/json", good)); a.status != 404 || a.problem.Type != "urn:waterclock:no-limits" {
		t.Errorf("without limits: %s", a.text)
	}
}

// A changed file counts for the next action, and what was counted stays; a mistake in it changes nothing.
func TestChangedLimits(t *testing.T) {
	t.Parallel()
	s, file, path := limited(t, redistest.Mini(t), "limits: {all: {counts: jobs, rules: [{window: 2/1h}]}}")
	var log redistest.Buffer
	file.Logger = slog.New(slog.NewTextHandler(&log, nil))
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- file.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	for range 2 {
		s.decide("{}")
	}
	if d, _ := s.decide("{}"); d.Allowed {
		t.Fatalf("%+v", d)
	}
	name := filepath.Join(t.TempDir(), "new")
	change := func(text, said string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name, path); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 10*time.Second, said, func() bool { return strings.Contains(log.String(), said) })
	}
	change("limits: {all: {counts: jobs, rules: [{windw: 3/1h}]}}", "refused the limits; the old ones stay")
	if d, _ := s.decide("{}"); d.Allowed || !strings.Contains(log.String(), ":1: limits.all.rules[0]") {
		t.Errorf("%+v, %s", d, log.String())
	}
	change("limits: {all: {counts: jobs, rules: [{window: 3/1h}]}}", "new limits")
	if d, _ := s.decide("{}"); !d.Allowed || d.Remaining != 0 {
		t.Errorf("%+v", d)
	}
	if d, _ := s.decide("{}"); d.Allowed {
		t.Errorf("%+v", d)
	}
}

// Who waits as long as it says has waited long enough.
func TestWaitsAreRoundedUp(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Millisecond: 1, time.Millisecond + 1: 2, time.Hour + time.Microsecond: 3_600_001} {
		if got := api.Milliseconds(d); got != want {
			t.Errorf("%v: %d, want %d", d, got, want)
		}
	}
}
