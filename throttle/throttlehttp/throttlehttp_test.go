package throttlehttp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
	"github.com/waterclock/waterclock/throttle/throttlehttp"
)

func limited(t *testing.T, cfg throttlehttp.Config) http.Handler {
	t.Helper()
	middleware, err := throttlehttp.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "served") }))
}

func get(h http.Handler, from, key string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.RemoteAddr = from
	if key != "" {
		r.Header.Set("Authorization", key)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func rules() []throttlehttp.Limit {
	return []throttlehttp.Limit{
		{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: []throttle.Rule{
			throttle.Window(3, time.Minute), throttle.Spacing(time.Millisecond).AsShadow(),
		}},
		{Name: "address", Key: throttlehttp.Address, Rules: []throttle.Rule{throttle.TokenBucket(10, time.Second, 50)}},
	}
}

// What the fields promise of a rule: its quota and window, and how long it takes until there is
// more than is left. That is not the time until all is there.
func TestFieldsOfEachKind(t *testing.T) {
	for name, tt := range map[string]struct {
		rule         throttle.Rule
		policy       string
		first, later string // at 0 s and, for a second request, at 50 s
	}{
		"window":               {throttle.Window(100, time.Minute), "q=100;w=60", "r=99;t=60", "r=98;t=10"},
		"bucket":               {throttle.TokenBucket(7, time.Minute, 7), "q=7;w=60", "r=6;t=9", "r=6;t=9"},
		"bucket of thirds":     {throttle.TokenBucket(3, time.Second, 3), "q=3;w=1", "r=2;t=1", "r=2;t=1"},
		"slow bucket":          {throttle.TokenBucket(1, time.Minute, 3), "q=3;w=180", "r=2;t=60", "r=1;t=10"},
		"bucket between":       {throttle.TokenBucket(7, time.Minute, 10), "q=10", "r=9;t=9", "r=9;t=9"},
		"fixed window":         {throttle.FixedWindow(5, time.Minute), "q=5;w=60", "r=4;t=60", "r=3;t=10"},
		"spacing":              {throttle.Spacing(30 * time.Second), "q=1;w=30", "r=0;t=30", "r=0;t=30"},
		"leak":                 {throttle.Leak(2, time.Minute), "q=2;w=60", "r=0;t=30", "r=0;t=30"},
		"sliding counter of 6": {throttle.SlidingCounter(4, time.Minute, 6), "q=4;w=60", "r=3;t=60", "r=2;t=10"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := []throttlehttp.Limit{{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: []throttle.Rule{tt.rule}}}
				h := limited(t, throttlehttp.Config{Limiter: throttle.New(throttle.NewMemoryStore()), Limits: limits, OnTrouble: throttlehttp.Closed})
				item := fmt.Sprintf("%q;", "key "+tt.rule.String())
				for _, want := range []string{tt.first, tt.later} {
					w := get(h, "192.0.2.1:1", "secret")
					if got := w.Header().Get("RateLimit"); got != item+want {
						t.Errorf("%s, want %s", got, item+want)
					}
					if got := w.Header().Get("RateLimit-Policy"); got != item+tt.policy {
						t.Errorf("%s, want %s", got, item+tt.policy)
					}
					time.Sleep(50 * time.Second)
				}
			})
		})
	}
}

// The fields say what the limits are and what is left; waiting for Retry-After is enough.
func TestFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := limited(t, throttlehttp.Config{Limiter: throttle.New(throttle.NewMemoryStore()), Limits: rules(), OnTrouble: throttlehttp.Closed})
		const policy = `"key window 3/1m";q=3;w=60, "address token_bucket 10/1s burst 50";q=50;w=5`
		for i, want := range []string{`"key window 3/1m";r=2;t=60`, `"key window 3/1m";r=1;t=60`, `"key window 3/1m";r=0;t=60`} {
			w := get(h, "192.0.2.1:1234", "secret")
			if w.Code != http.StatusOK || w.Body.String() != "served" || w.Header().Get("RateLimit") != want || w.Header().Get("RateLimit-Policy") != policy {
				t.Errorf("request %d: %d, %q", i+1, w.Code, w.Header())
			}
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(20*time.Second - 30*time.Millisecond)
		w := get(h, "192.0.2.1:1234", "secret")
		var body struct {
			Type     string
			Status   int
			Violated []string `json:"violated-policies"`
		}
		if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
			t.Fatal(err)
		}
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") != "40" || w.Header().Get("RateLimit") != `"key window 3/1m";r=0;t=40` ||
			w.Header().Get("Content-Type") != "application/problem+json" || body.Status != 429 || !strings.HasSuffix(body.Type, "#quota-exceeded") || len(body.Violated) != 1 {
			t.Errorf("%d, %q, %s", w.Code, w.Header(), w.Body)
		}
		if other := get(h, "192.0.2.1:1234", "another"); other.Code != http.StatusOK {
			t.Errorf("another key: %d", other.Code)
		}
		// Over the other limit its rule is named, as in the policy.
		for i := range 60 {
			w = get(h, "192.0.2.9:1", fmt.Sprint("key ", i))
		}
		if got := w.Header().Get("RateLimit"); got != `"address token_bucket 10/1s burst 50";r=0;t=1` || w.Code != http.StatusTooManyRequests {
			t.Errorf("%d, %q", w.Code, got)
		}
		time.Sleep(40 * time.Second)
		if again := get(h, "192.0.2.1:1234", "secret"); again.Code != http.StatusOK {
			t.Errorf("after Retry-After: %d, %q", again.Code, again.Header())
		}
	})
}

// One limit refuses, and the other is not spent.
func TestAllOrNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := []throttlehttp.Limit{
			{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: []throttle.Rule{throttle.Window(1, time.Hour)}},
			{Name: "address", Key: throttlehttp.Address, Rules: []throttle.Rule{throttle.Window(2, time.Hour)}},
		}
		h := limited(t, throttlehttp.Config{Limiter: throttle.New(throttle.NewMemoryStore()), Limits: limits, OnTrouble: throttlehttp.Closed})
		codes := []int{}
		for _, key := range []string{"one", "one", "one", "two", "three"} {
			codes = append(codes, get(h, "[2001:db8::1]:1", key).Code)
			time.Sleep(time.Second)
		}
		if fmt.Sprint(codes) != "[200 429 429 200 429]" {
			t.Error(codes)
		}
		if far := get(h, "[2001:db8::ffff]:1", "four").Code; far != http.StatusTooManyRequests {
			t.Errorf("an address of the same network: %d", far)
		}
		if far := get(h, "[2001:db8:0:1::1]:1", "four").Code; far != http.StatusOK {
			t.Errorf("an address of another network: %d", far)
		}
	})
}

// A policy file limits requests by what they are about, and the fields name the limits that are about each.
func TestLimitsOfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, err := limits.Parse("limits.yaml", []byte(`
limits:
  posts: {jobs: {type: post}, key: [keys.account], counts: jobs, rules: [{window: 2/1m}]}
  calls: {key: [keys.account], missing: refuse, rules: [{window: 5/1m}], each: {vip: unlimited}}
`), throttle.New(throttle.NewMemoryStore()))
		if err != nil {
			t.Fatal(err)
		}
		h := limited(t, throttlehttp.Config{
			Set: set, OnTrouble: throttlehttp.Open, XRateLimit: true,
			Fields: func(r *http.Request) (limits.Fields, error) {
				if r.Header.Get("Authorization") == "broken" {
					return limits.Fields{}, errors.New("the token cannot be read")
				}
				return limits.Fields{Type: strings.ToLower(r.Method), Keys: map[string]string{"account": r.Header.Get("Authorization")}}, nil
			},
		})
		ask := func(method, account string) string {
			r := httptest.NewRequest(method, "/", nil)
			r.Header.Set("Authorization", account)
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			f := w.Header()
			return fmt.Sprint(w.Code, " ", f.Get("RateLimit-Policy"), " | ", f.Get("RateLimit"), " | ", f.Get("X-RateLimit-Limit"), " ",
				f.Get("X-RateLimit-Remaining"), " ", f.Get("X-RateLimit-Reset"), " ", f.Get("Retry-After"))
		}
		const calls, both = `"calls window 5/1m";q=5;w=60`, `"calls window 5/1m";q=5;w=60, "posts window 2/1m";q=2;w=60`
		for i, step := range []struct{ method, account, want string }{
			{"GET", "a", `200 ` + calls + ` | "calls window 5/1m";r=4;t=60 | 5 4 60 `},
			{"POST", "a", `200 ` + both + ` | "posts window 2/1m";r=1;t=60 | 2 1 60 `},
			{"POST", "a", `200 ` + both + ` | "posts window 2/1m";r=0;t=60 | 2 0 60 `},
			{"POST", "a", `429 ` + both + ` | "posts window 2/1m";r=0;t=60 | 2 0 60 60`},
			{"GET", "a", `200 ` + calls + ` | "calls window 5/1m";r=1;t=60 | 5 1 60 `},
			{"POST", "b", `200 ` + both + ` | "posts window 2/1m";r=1;t=60 | 2 1 60 `},
			{"GET", "vip", "200  |  |    "},
			{"GET", "", "400  |  |    "},
			{"GET", "broken", "400  |  |    "},
		} {
			if got := ask(step.method, step.account); got != step.want {
				t.Errorf("%d: %s of %q:\n got %s\nwant %s", i, step.method, step.account, got, step.want)
			}
		}
	})
}

func TestCost(t *testing.T) {
	limits := []throttlehttp.Limit{{Name: "all", Key: func(*http.Request) (string, error) { return "all", nil }, Rules: []throttle.Rule{throttle.Window(10, time.Hour)}}}
	h := limited(t, throttlehttp.Config{
		Limiter: throttle.New(throttle.NewMemoryStore()), Limits: limits, OnTrouble: throttlehttp.Open, Cost: func(*http.Request) int { return 4 },
	})
	for i, want := range []int{200, 200, 429} {
		if w := get(h, "192.0.2.1:1", ""); w.Code != want {
			t.Errorf("request %d: %d, want %d", i+1, w.Code, want)
		}
	}
}

func TestNobodyToCountFor(t *testing.T) {
	h := limited(t, throttlehttp.Config{Limiter: throttle.New(throttle.NewMemoryStore()), Limits: rules(), OnTrouble: throttlehttp.Open})
	for name, w := range map[string]*httptest.ResponseRecorder{"no key": get(h, "192.0.2.1:1", ""), "no address": get(h, "@", "secret")} {
		if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "limit ") {
			t.Errorf("%s: %d %s", name, w.Code, w.Body)
		}
	}
}

// Without Redis requests are served or refused, as the service has chosen, and soon.
func TestTrouble(t *testing.T) {
	server := redistest.Start(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, MaxRetries: -1})
	defer client.Close()
	store := throttle.NewRedisStore(client, "api")
	ways := map[throttlehttp.Trouble]int{throttlehttp.Open: http.StatusOK, throttlehttp.Closed: http.StatusServiceUnavailable}
	for way := range ways {
		h := limited(t, throttlehttp.Config{Limiter: throttle.New(store), Limits: rules(), OnTrouble: way, Timeout: 10 * time.Second})
		if w := get(h, "192.0.2.1:1", fmt.Sprint(way)); w.Code != http.StatusOK || w.Header().Get("RateLimit") == "" {
			t.Errorf("with Redis: %d, %q", w.Code, w.Header())
		}
	}
	server.Kill()
	for way, want := range ways {
		h := limited(t, throttlehttp.Config{Limiter: throttle.New(store), Limits: rules(), OnTrouble: way})
		if w := get(h, "192.0.2.1:1", "secret"); w.Code != want || w.Header().Get("RateLimit") != "" {
			t.Errorf("without Redis: %d, want %d, %q", w.Code, want, w.Header())
		}
	}
}

func TestInvalidConfig(t *testing.T) {
	good := throttlehttp.Config{Limiter: throttle.New(throttle.NewMemoryStore()), Limits: rules(), OnTrouble: throttlehttp.Open}
	for want, spoil := range map[string]func(*throttlehttp.Config){
		"Limiter is nil":          func(c *throttlehttp.Config) { c.Limiter = nil },
		"Limits is empty":         func(c *throttlehttp.Config) { c.Limits = nil },
		"OnTrouble is not set":    func(c *throttlehttp.Config) { c.OnTrouble = 0 },
		"Timeout is -1s":          func(c *throttlehttp.Config) { c.Timeout = -time.Second },
		`Limits[0].Name is "a b"`: func(c *throttlehttp.Config) { c.Limits[0].Name = "a b" },
		"name of two limits":      func(c *throttlehttp.Config) { c.Limits[0].Name = "address" },
		`limit "key": Key is nil`: func(c *throttlehttp.Config) { c.Limits[0].Key = nil },
		`limit "key": Rules is`:   func(c *throttlehttp.Config) { c.Limits[0].Rules = nil },
		"throttle: invalid rule":  func(c *throttlehttp.Config) { c.Limits[0].Rules = []throttle.Rule{{}} },
		"Set stands beside":       func(c *throttlehttp.Config) { c.Set = new(limits.Set) },
		"Fields is nil":           func(c *throttlehttp.Config) { *c = throttlehttp.Config{Set: new(limits.Set)} },
		"Set is nil": func(c *throttlehttp.Config) {
			c.Fields = func(*http.Request) (limits.Fields, error) { return limits.Fields{}, nil }
		},
	} {
		bad := good
		bad.Limits = rules()
		spoil(&bad)
		if _, err := throttlehttp.New(bad); !errors.Is(err, throttlehttp.ErrInvalidConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// Waiting for Retry-After is enough, also after a rule has dropped the request rather than deferred it.
func TestDroppedRequestsComeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rules := []throttle.Rule{throttle.Window(2, time.Minute).OrDrop()}
		h := limited(t, throttlehttp.Config{
			Limiter: throttle.New(throttle.NewMemoryStore()), OnTrouble: throttlehttp.Closed,
			Limits: []throttlehttp.Limit{{Name: "key", Key: throttlehttp.Header("Authorization"), Rules: rules}},
		})
		get(h, "192.0.2.1:1", "secret")
		time.Sleep(10 * time.Second)
		get(h, "192.0.2.1:1", "secret")
		w := get(h, "192.0.2.1:1", "secret")
		if got := w.Header(); w.Code != http.StatusTooManyRequests || got.Get("Retry-After") != "50" || !strings.HasSuffix(got.Get("RateLimit"), ";r=0;t=50") {
			t.Fatalf("%d, %v", w.Code, got)
		}
		time.Sleep(50 * time.Second)
		if w := get(h, "192.0.2.1:1", "secret"); w.Code != http.StatusOK {
			t.Errorf("%d, %v", w.Code, w.Header())
		}
	})
}
