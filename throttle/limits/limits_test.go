package limits_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

func parse(t testing.TB, text string, store throttle.Store) *limits.Set {
	t.Helper()
	set, err := limits.Parse("limits.yaml", []byte(text), throttle.New(store))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// onStores runs a test in virtual time with each store whose time that can be.
func onStores(t *testing.T, test func(t *testing.T, store throttle.Store)) {
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, throttle.NewMemoryStore()) })
	})
	t.Run("miniredis", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { test(t, throttle.NewRedisStore(redistest.ExactMini(t), "{l}")) })
	})
}

// A start is what a textbook needs to know of one.
type start struct {
	at        time.Time
	marketing bool
}

// within counts the starts of the last 24 hours, and the marketing ones among them.
func within(log []start, now time.Time) (all, marketing int) {
	for _, s := range log {
		if now.Sub(s.at) < 24*time.Hour {
			all++
			if s.marketing {
				marketing++
			}
		}
	}
	return all, marketing
}

// Each number gets 5 marketing messages a day, and 100 messages in all: the second example of
// github.com/envoyproxy/ratelimit. What is let through, and what is not, is as somebody says who counts.
func TestMarketingAndAllMessagesOfANumber(t *testing.T) {
	onStores(t, func(t *testing.T, store throttle.Store) {
		set := parse(t, `
limits:
  marketing: {jobs: {type: marketing}, key: keys.to_number, counts: jobs, rules: [{window: 5/24h, over: drop}]}
  number:    {key: keys.to_number, counts: jobs, rules: [{window: 100/24h, over: drop}]}
`, store)
		random, log := rand.New(rand.NewPCG(7, 7)), make(map[string][]start)
		byMarketing, byNumber := 0, 0
		for range 3000 {
			time.Sleep(time.Duration(random.Int64N(int64(90 * time.Second))))
			number, typ := fmt.Sprint("+4912345", random.IntN(4)*random.IntN(4)), []string{"chat", "chat", "chat", "marketing"}[random.IntN(4)]
			d, err := set.Allow(t.Context(), limits.Fields{Type: typ, Keys: map[string]string{"to_number": number}})
			if err != nil {
				t.Fatal(err)
			}
			now := time.Now()
			all, marketing := within(log[number], now)
			fits := all < 100 && (typ != "marketing" || marketing < 5)
			if admitted := d.Outcome == throttle.Admitted; admitted != fits {
				t.Fatalf("%s to %s: %+v, after %d messages and %d of marketing", typ, number, d, all, marketing)
			}
			if fits {
				log[number] = append(log[number], start{now, typ == "marketing"})
				continue
			}
			want := "number"
			if typ == "marketing" && marketing == 5 {
				want = "marketing"
				byMarketing++
			} else {
				byNumber++
			}
			if d.Outcome != throttle.Dropped || d.Limit != want || len(d.Key) != 1 || d.Key[0] != number {
				t.Errorf("%s to %s: %+v, want %s to be to blame", typ, number, d, want)
			}
		}
		if byMarketing < 100 || byNumber < 100 {
			t.Errorf("%d were dropped by marketing, %d by number: the test shows little", byMarketing, byNumber)
		}
	})
}

// Requests and tokens are limits of one call: it counts in both or in none.
func TestRequestsAndTokens(t *testing.T) {
	onStores(t, func(t *testing.T, store throttle.Store) {
		set := parse(t, `
limits:
  requests: {counts: jobs, key: [tenant], rules: [{window: 3/1m}]}
  tokens:   {counts: tokens, key: [tenant], rules: [{window: 1000/1m}], each: {big: {rules: [{window: 5000/1m}]}}}
`, store)
		ask := func(tenant string, tokens int) limits.Decision {
			t.Helper()
			d, err := set.Allow(t.Context(), limits.Fields{Tenant: tenant, Costs: map[string]int{"tokens": tokens}})
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		if d := ask("a", 700); d.Outcome != throttle.Admitted {
			t.Errorf("%+v", d)
		}
		if d := ask("a", 400); d.Outcome != throttle.Deferred || d.Limit != "tokens" || d.Key[0] != "a" || d.RetryAfter != time.Minute {
			t.Errorf("%+v", d)
		}
		for range 2 { // the one that was refused has taken no request
			if d := ask("a", 1); d.Outcome != throttle.Admitted {
				t.Errorf("%+v", d)
			}
		}
		if d := ask("a", 1); d.Outcome != throttle.Deferred || d.Limit != "requests" {
			t.Errorf("%+v", d)
		}
		if d := ask("big", 4000); d.Outcome != throttle.Admitted {
			t.Errorf("%+v", d)
		}
		if _, err := set.Allow(t.Context(), limits.Fields{Tenant: "a", Costs: map[string]int{"tokens": 1001}}); !errors.Is(err, throttle.ErrImpossibleCost) {
			t.Errorf("1001 of 1000 tokens: %v", err)
		}
	})
}

// One file serves a queue and callers beside it: the queue's rules, those of tenants and users, and limits by name.
func TestAWholePolicyFile(t *testing.T) {
	onStores(t, func(t *testing.T, store throttle.Store) {
		set := parse(t, `
queue: {rules: [{leak: 1000/s}], concurrency: 20}
default: standard
policies:
  standard: {tenant: {rules: [{leak: 10/s}], capacity: 100}, user: {rules: [{spacing: 3s}]}, weight: 4}
limits:
  domain: {key: keys.domain, rules: [{leak: 1/s}], concurrency: 20}
  busy:   {key: keys.domain, concurrency: 20}
`, store)
		peek := func(f limits.Fields) string {
			t.Helper()
			d, err := set.Peek(t.Context(), f)
			if err != nil {
				t.Fatal(err)
			}
			return fmt.Sprintf("%v %s %v in %v", d.Outcome, d.Limit, d.Key, d.RetryAfter)
		}
		first := limits.Fields{Tenant: "school-7", User: "teacher-42", Keys: map[string]string{"domain": "x.org"}}
		if d, err := set.Reserve(t.Context(), first); err != nil || d.Outcome != throttle.Admitted {
			t.Fatal(d, err)
		}
		for want, f := range map[string]limits.Fields{
			"deferred user [school-7 teacher-42] in 3s": first,
			"deferred domain [x.org] in 1s":             {Keys: map[string]string{"domain": "x.org"}},
			"deferred tenant [school-7] in 100ms":       {Tenant: "school-7", User: "other"},
			"deferred queue [] in 1ms":                  {Tenant: "other", User: "teacher-42"},
		} {
			if got := peek(f); got != want {
				t.Errorf("%+v: %s, want %s", f, got, want)
			}
		}
		all, err := set.Of(first)
		if err != nil || len(all) != 4 || all[3].Name != "domain" || all[3].Key[0] != "x.org" { // the limit without rules is a queue's
			t.Errorf("%v, %v", all, err)
		}
	})
}

func TestErrors(t *testing.T) {
	limiter := throttle.New(throttle.NewMemoryStore())
	name := filepath.Join(t.TempDir(), "limits.yaml")
	if _, err := limits.FromFile(name, limiter); !errors.Is(err, limits.ErrInvalidFile) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	write := func(text string) {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("limits:\n  a: {keys: tenant}")
	_, err := limits.FromFile(name, limiter)
	if want := name + ":2: limits.a.keys: unknown key; want jobs, key, counts, rules, concurrency, capacity, each, missing, detailed or shared"; !errors.Is(err, limits.ErrInvalidFile) || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	write("limits:\n  a: {key: keys.route, missing: refuse, rules: [{leak: 1/s}]}")
	set, err := limits.FromFile(name, limiter)
	if err != nil {
		t.Fatal(err)
	}
	d, err := set.Allow(t.Context(), limits.Fields{Tenant: "t"})
	if want := "limits: invalid fields: limit a needs keys.route, and it is missing"; !errors.Is(err, limits.ErrInvalidFields) || err.Error() != want || d.Outcome != throttle.Undecided {
		t.Errorf("%v, %v, want %s", d, err, want)
	}
}
