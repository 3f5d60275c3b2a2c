package api_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue/api"
)

// acquire asks for a slot of a limit.
func (s *site) acquire(limit, body string) api.Decision {
	s.Helper()
	var d api.Decision
	s.expect(s.send(s.request("POST", "/v1/limits/"+limit+"/acquire", "application/json", body)), &d)
	return d
}

const acquired = `
limits:
  account: {shared: true, counts: jobs, rules: [{leak: 20/s}]}
  domain:  {key: keys.domain, counts: tokens, rules: [{window: 100/1h}]}
  once:    {key: [tenant, user], counts: jobs, rules: [{window: 1/1h, over: drop}]}
  bulk:    {jobs: {type: bulk}, key: tenant, concurrency: 3}
`

// Callers that wait have an answer when their slot has come, each one of its own; those for whom it would come too late have theirs at
// once, and take nothing.
func TestAcquire(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Start(t).Client(t), acquired)
	if d := s.acquire("account", `{}`); !d.Allowed || d.Outcome != "admitted" || d.Limit != "account" || d.Rule != "leak 20/s" {
		t.Errorf("the first: %+v", d)
	}
	began := time.Now()
	var all sync.WaitGroup
	var mu sync.Mutex
	var at []time.Duration
	for range 20 {
		all.Go(func() {
			d := s.acquire("account", `{"within_ms":10000}`)
			mu.Lock()
			defer mu.Unlock()
			if at = append(at, time.Since(began)); !d.Allowed || d.WaitMS != 0 {
				t.Errorf("%+v", d)
			}
		})
	}
	redistest.Eventually(t, 10*time.Second, "all wait", func() bool {
		d := s.acquire("account", `{"within_ms":10}`)
		return !d.Allowed && d.Outcome == "deferred" && d.WaitMS > 300
	})
	all.Wait()
	for i, d := range at {
		if earliest := time.Duration(i+1)*50*time.Millisecond - 60*time.Millisecond; d < earliest { // began lies after the first's slot
			t.Errorf("answer %d after %v; want at least %v", i, d, earliest)
		}
	}
	for _, want := range []string{"admitted", "dropped"} {
		if d := s.acquire("once", `{"tenant":"t","user":"u","within_ms":5000}`); d.Outcome != want || d.Allowed != (want == "admitted") {
			t.Errorf("%+v, want it %s", d, want)
		}
	}
	if d := s.acquire("domain", `{"keys":{"domain":"x.org"},"costs":{"tokens":30}}`); !d.Allowed || d.Remaining != 70 || len(d.Key) != 1 || d.Key[0] != "x.org" {
		t.Errorf("%+v", d)
	}
}

// A caller that hangs up takes no slot.
func TestACallerThatHangsUpTakesNothing(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Start(t).Client(t), "limits: {account: {counts: jobs, rules: [{window: 1/10s}]}}")
	s.acquire("account", `{}`)
	before, _ := s.decide(`{"mode":"peek"}`)
	ctx, hangUp := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() {
		_, err := http.DefaultClient.Do(s.request("POST", "/v1/limits/account/acquire", "application/json", `{"within_ms":15000}`).WithContext(ctx))
		ended <- err
	}()
	redistest.Eventually(t, 5*time.Second, "it waits for its slot", func() bool {
		d, _ := s.decide(`{"mode":"peek"}`)
		return d.When.After(before.When)
	})
	hangUp()
	if err := <-ended; err == nil {
		t.Error("it has an answer")
	}
	redistest.Eventually(t, 5*time.Second, "nothing is taken", func() bool {
		d, _ := s.decide(`{"mode":"peek"}`)
		return !d.When.After(before.When)
	})
}

// What nobody can acquire.
func TestBadAcquisitions(t *testing.T) {
	t.Parallel()
	s, _, _ := limited(t, redistest.Start(t).Client(t), acquired)
	for _, tt := range []struct {
		limit, body string
		status      int
		kind, want  string
	}{
		{"nobody", `{}`, 404, "no-such-limit", `the file of limits has no limit "nobody"`},
		{"tenant", `{}`, 404, "no-such-limit", `the file of limits has no limit "tenant"`},
		{"domain", `{"costs":{"tokens":1}}`, 422, "invalid-action", "limit domain is not about it, or has no rules for it; look at its jobs, key and counts"},
		{"bulk", `{"type":"bulk","tenant":"t"}`, 422, "invalid-action", "limit bulk is not about it, or has no rules for it; look at its jobs, key and counts"},
		{"domain", `{"keys":{"domain":"x"},"costs":{"tokens":101}}`, 422, "invalid-action", ""},
		{"account", `{"within_ms":15001}`, 422, "invalid-value", "/within_ms: is 15001; want at most 15000"},
		{"account", `{"within_ms":-1}`, 400, "invalid-body", ""},
		{"account", `{"mode":"allow"}`, 400, "invalid-body", "the body is wrong: mode: unknown field; want tenant, user, type, keys, cost, costs, within_ms"},
		{"account", `[{}]`, 400, "invalid-body", ""},
	} {
		a := s.send(s.request("POST", "/v1/limits/"+tt.limit+"/acquire", "application/json", tt.body))
		if a.status != tt.status || a.problem.Type != "urn:waterclock:"+tt.kind || tt.want != "" && a.problem.Detail != tt.want {
			t.Errorf("%s %s: %d %s", tt.limit, tt.body, a.status, a.text)
		}
	}
	if d := s.acquire("account", `{}`); !d.Allowed {
		t.Errorf("something was taken: %+v", d)
	}
	plain := open(t, s.rdb, nil)
	if a := plain.send(plain.request("POST", "/v1/limits/account/acquire", "application/json", `{}`)); a.status != 404 || a.problem.Type != "urn:waterclock:no-limits" {
		t.Error(fmt.Sprint(a.status), a.text)
	}
}
