package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/policyfile"
	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A flow is starts of one user at a pace, from an instant to another, in ms.
type flow struct{ from, to, every int }

// written writes the starts of a user as worker --sender log does, each 1 ms after its slot.
func written(begin time.Time, flows ...flow) string {
	var log strings.Builder
	for _, f := range flows {
		for at := f.from; at < f.to; at += f.every {
			slot := begin.Add(time.Duration(at) * time.Millisecond)
			fmt.Fprintf(&log, `{"id":"%d","tenant":"t","user":"u","slot":%q,"started_at":%q,"attempt":1,"keys":{"domain":"a"}}`+"\n",
				at, slot.Format(time.RFC3339Nano), slot.Add(time.Millisecond).Format(time.RFC3339Nano))
		}
	}
	return log.String()
}

// Each start is judged by the rules in force at its slot: those of an override while that lasts, those of the policies before
// and after it. An override was set 10 s after the beginning and lasts 10 s.
func TestVerifyKnowsOverrides(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	const (
		domain = "limits: {domain: {key: keys.domain, rules: [{leak: 10/s}]}}\n"
		user   = "default: x\npolicies: {x: {user: {rules: [{window: 10/1s}]}}}\n"
	)
	usual, before, after := 100, flow{0, 10_000, 100}, flow{20_090, 30_000, 100}
	for name, test := range map[string]struct {
		policies, limit, key, rule string
		ended                      int // ms; 0 for not before its time
		flows                      []flow
		want, blind                string // what is printed with and without knowledge of the override
	}{
		"a looser one":                {domain, "domain", `["a"]`, "leak 100/s", 0, []flow{before, {10_000, 20_000, 10}, after}, "", "leak 10/s broken"},
		"a stricter one":              {domain, "domain", `["a"]`, "leak 2/s", 0, []flow{before, {10_400, 20_000, 500}, after}, "", ""},
		"a stricter one that is not":  {domain, "domain", `["a"]`, "leak 2/s", 0, []flow{before, {10_400, 20_000, usual}, after}, "leak 2/s broken", ""},
		"a looser one beyond its end": {domain, "domain", `["a"]`, "leak 100/s", 0, []flow{before, {10_000, 20_020, 10}, after}, "leak 10/s broken at 2026-01-01T00:00:20Z", "leak 10/s broken"},
		"one of somebody else":        {domain, "domain", `["b"]`, "leak 100/s", 0, []flow{before, {10_000, 20_000, 10}}, "leak 10/s broken", "leak 10/s broken"},
		"claims before the beginning": {domain, "domain", `["a"]`, "leak 2/s", 0, []flow{before, {10_000, 10_100, 20}, {10_600, 20_000, 500}}, "", "leak 10/s broken"},
		"not only claims of before":   {domain, "domain", `["a"]`, "leak 2/s", 0, []flow{before, {10_000, 11_500, 20}, {12_000, 20_000, 500}}, "leak 2/s broken", "leak 10/s broken"},
		"ended before its time":       {domain, "domain", `["a"]`, "leak 100/s", 15_000, []flow{before, {10_000, 15_030, 10}, {15_120, 20_000, usual}}, "", "leak 10/s broken"},
		"long after it was ended":     {domain, "domain", `["a"]`, "leak 100/s", 15_000, []flow{before, {10_000, 17_000, 10}}, "leak 10/s broken", "leak 10/s broken"},
		"a rule of another kind":      {domain, "domain", `["a"]`, "window 3/1s", 0, []flow{before, {10_000, 20_000, 340}, after}, "", ""},
		"another kind, broken":        {domain, "domain", `["a"]`, "window 3/1s", 0, []flow{before, {10_000, 20_000, 300}, after}, "window 3/1s broken", ""},
		"of a user":                   {user, "user", `["t","u"]`, "window 100/1s", 0, []flow{before, {10_000, 20_000, 10}, {21_000, 30_000, 100}}, "", "window 10/1s broken"},
		"the window remembers":        {user, "user", `["t","u"]`, "window 100/1s", 0, []flow{before, {10_000, 20_000, 10}, {20_500, 30_000, 100}}, "window 10/1s broken", "window 10/1s broken"},
		"of the tenant and all users": {user, "tenant", `["t"]`, "leak 1/s", 0, []flow{before, {10_000, 20_000, 1000}, after}, "", ""},
		"of the tenant, broken":       {user, "tenant", `["t"]`, "leak 1/s", 0, []flow{before, {10_000, 20_000, 500}}, "t: leak 1/s broken", ""},
		"of the queue, broken":        {user, "queue", `[]`, "spacing 1s", 0, []flow{before, {10_000, 20_000, 500}}, "the queue: spacing 1s broken", ""},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			policies, log, overrides := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl"), filepath.Join(dir, "o.json")
			at := func(ms int) string { return begin.Add(time.Duration(ms) * time.Millisecond).Format(time.RFC3339Nano) }
			ended := ""
			if test.ended > 0 {
				ended = fmt.Sprintf(`,"ended":%q`, at(test.ended))
			}
			write(t, policies, test.policies)
			write(t, log, written(begin, test.flows...))
			write(t, overrides, fmt.Sprintf(`[{"limit":%q,"key":%s,"rules":[%q],"since":%q,"until":%q,"author":"ann"%s}]`, test.limit, test.key, test.rule, at(10_000), at(20_000), ended))
			judged := func(want string, flags ...string) {
				t.Helper()
				var out bytes.Buffer
				err := run(t.Context(), append([]string{"verify", "--policies", policies, log}, flags...), strings.NewReader(""), &out, &out)
				if !strings.Contains(out.String(), want) || (want == "") != (err == nil) {
					t.Errorf("%q: %v, printed %.500s; want %q", flags, err, &out, want)
				}
			}
			judged(test.want, "--overrides", overrides)
			judged(test.blind)
		})
	}
}

// A list of overrides that cannot be right is refused, since it proves nothing. What was in force at other times does not matter.
func TestVerifyRefusesOtherOverrides(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	policies, log := filepath.Join(dir, "p.yaml"), filepath.Join(dir, "d.jsonl")
	write(t, policies, "limits: {domain: {key: keys.domain, rules: [{leak: 10/s}]}}\n")
	write(t, log, written(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), flow{0, 1000, 100}))
	const span = `"since":"2025-12-31T00:00:00Z","until":"2026-01-02T00:00:00Z"`
	for text, want := range map[string]string{
		`{"items":[]}`:                                                                                          "--overrides -: want what limits list --all --json prints",
		`[{"limit":"domain","rule":"leak 5/s"}]`:                                                                `unknown field "rule"`,
		`[{"limit":"domain","rules":["laek 5/s"]}]`:                                                             `unknown kind "laek"`,
		`[{"limit":"domain","key":["a"],"rules":["leak 5/s"]}]`:                                                 "item 0, domain a: leak 5/s: want since, and an until that is later",
		`[{"limit":"domian","key":["a"],"rules":["leak 5/s"],` + span + `}]`:                                    "item 0, domian a: leak 5/s: the policies have no such limit; did you mean domain?",
		`[{"limit":"domain","key":["a","b"],"rules":["leak 5/s"],` + span + `}]`:                                "the limit has the key [keys.domain]; want 1 value of it",
		`[{"limit":"gone","rules":["leak 5/s"],"since":"2024-01-01T00:00:00Z","until":"2024-01-02T00:00:00Z"}]`: "",
		`[{"limit":"domain","key":["a"],"concurrency":"25%","capacity":3,` + span + `}]`:                        "",
	} {
		var out bytes.Buffer
		err := run(t.Context(), []string{"verify", "--policies", policies, "--overrides", "-", log}, strings.NewReader(text), &out, &out)
		if want == "" && (err != nil || !strings.Contains(out.String(), "0 overrides of rules in force meanwhile")) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, printed %s; want %q", text, err, &out, want)
		}
	}
}

// Whatever is overridden, ended and replaced while a queue works: what it starts is right by the list of all overrides.
func TestVerifyAgreesWithQueues(t *testing.T) {
	t.Parallel()
	const policies = `
default: x
policies: {x: {tenant: {rules: [{leak: 20/s}]}, user: {rules: [{window: 4/1s}, {spacing: 50ms}]}}}
limits: {domain: {key: keys.domain, rules: [{window: 8/1s}]}, all: {rules: [{fixed_window: 50/1s}]}}
`
	for _, seed := range sample.Draw(t, []uint64{0, 1, 2, 3, 4}, 1, 2) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				starts, versions := overriddenQueue(t, policies, rand.New(rand.NewPCG(seed, 1)))
				text, err := json.Marshal(pastOverrides(versions))
				if err != nil {
					t.Fatal(err)
				}
				file, err := policyfile.Parse("p.yaml", []byte(policies))
				if err != nil {
					t.Fatal(err)
				}
				overrides, err := overridesOf(text, file, starts)
				if err != nil || len(overrides) < 10 || len(starts) < 100 {
					t.Fatalf("%d overrides, %d starts, %v", len(overrides), len(starts), err)
				}
				for _, v := range check(starts, file, overrides) {
					t.Error(v)
				}
				if len(check(starts, file, nil)) == 0 {
					t.Error("nothing is broken without overrides: the test tests nothing")
				}
			})
		})
	}
}

// overriddenQueue lets two workers work for a minute, while somebody overrides limits, and returns what has started.
func overriddenQueue(t *testing.T, source string, rnd *rand.Rand) (starts []start, history []queue.PolicyVersion) {
	rdb := redistest.Mini(t)
	inspector, err := queue.NewInspector(rdb, "push")
	if err != nil {
		t.Fatal(err)
	}
	policies, err := queue.ParsePolicies("p.yaml", []byte(source))
	if err == nil {
		err = inspector.SetPolicies(t.Context(), policies)
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for range 2 {
		worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"push"}})
		if err != nil {
			t.Fatal(err)
		}
		running.Go(func() {
			_ = worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
				i, _ := queue.FromContext(ctx)
				mu.Lock()
				defer mu.Unlock()
				starts = append(starts, start{ID: i.ID, Tenant: i.Tenant, User: i.User, Type: i.Type, Slot: i.Slot, Started: i.Started, Keys: i.Keys, Cost: i.Cost})
				return nil
			}))
		})
	}
	client, err := queue.NewClient(rdb, "push")
	if err != nil {
		t.Fatal(err)
	}
	var jobs []queue.Job
	for n := range 6000 {
		jobs = append(jobs, queue.Job{Tenant: fmt.Sprint("t", n%2), User: fmt.Sprint("u", n%6), Type: "push", Keys: map[string]string{"domain": fmt.Sprint("d", n%3)}})
	}
	if _, err := client.Enqueue(t.Context(), jobs...); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		overrideSomething(t, inspector, rnd)
		time.Sleep(time.Duration(rnd.IntN(3000)) * time.Millisecond)
	}
	cancel()
	running.Wait()
	if history, err = inspector.PolicyHistory(t.Context(), 1000); err != nil {
		t.Fatal(err)
	}
	return starts, history
}

// overrideSomething sets an override, or ends one.
func overrideSomething(t *testing.T, inspector *queue.Inspector, rnd *rand.Rand) {
	o := []queue.Override{
		{Limit: "queue"}, {Limit: "tenant", Key: []string{"t0"}}, {Limit: "user", Key: []string{"t1", "u1"}},
		{Limit: "domain", Key: []string{"d0"}}, {Limit: "domain", Key: []string{"d1"}}, {Limit: "all"},
	}[rnd.IntN(6)]
	var err error
	if rnd.IntN(4) == 0 {
		_, err = inspector.EndOverride(t.Context(), o.Limit, o.Key...)
	} else {
		n := 1 + rnd.IntN(40)
		o.For = time.Duration(1000+rnd.IntN(8000)) * time.Millisecond
		o.Rules = []throttle.Rule{[]throttle.Rule{
			throttle.Leak(n, time.Second), throttle.Window(n, time.Second), throttle.Window(n, 3*time.Second), throttle.Spacing(time.Duration(n) * 10 * time.Millisecond),
			throttle.TokenBucket(n, time.Second, n), throttle.FixedWindow(n, time.Second), throttle.SlidingCounter(n, time.Second, 2),
		}[rnd.IntN(7)]}
		err = inspector.Override(t.Context(), o)
	}
	if err != nil {
		t.Fatal(err)
	}
}
