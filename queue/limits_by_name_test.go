package queue_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/simulate"
	"github.com/waterclock/waterclock/throttle"
)

// limitsOnly are policies with limits by name alone.
func limitsOnly(limits map[string]queue.Limit) queue.Policies { return queue.Policies{Limits: limits} }

// keyed gives jobs keys.
func keyed(jobs []queue.Job, name, value string) []queue.Job {
	for i := range jobs {
		jobs[i].Keys = map[string]string{name: value}
	}
	return jobs
}

// typed gives jobs a type.
func typed(jobs []queue.Job, typ string) []queue.Job {
	for i := range jobs {
		jobs[i].Type = typ
	}
	return jobs
}

// keeps checks, for each value of what limit returns, that never more than n are within a period, counted by what each
// costs: by the instants at which handlers began.
func keeps(t *testing.T, what string, starts []queue.Info, n int, period time.Duration, of func(queue.Info) (value string, cost int)) (most int) {
	t.Helper()
	for i, first := range starts {
		value, sum := "", 0
		for _, s := range starts[i:] {
			if s.Started.Sub(first.Started) >= period {
				break
			}
			v, cost := of(s)
			if sum == 0 {
				value = v
			}
			if cost > 0 && v == value && v != "" {
				sum += cost
			}
		}
		if most = max(most, sum); sum > n {
			t.Errorf("%s: %d of %q within %v from %v on, at most %d may", what, sum, value, period, first.Started, n)
			return most
		}
	}
	return most
}

// Marketing that may not go before tomorrow does not hold back the same user's chat.
func TestABlockedTypeHoldsBackNoOther(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, limitsOnly(map[string]queue.Limit{
			"marketing": {Types: []string{"marketing", "promo_*"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.Window(5, 24*time.Hour)}},
		}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		marketing := typed(jobs("school", "teacher", 20), "marketing")
		for i := range marketing[10:] {
			marketing[10+i].Type = "promo_x"
		}
		enqueue(t, s.client, marketing...)
		s.eventually(t, "five have started", func() bool { return got.count() == 5 })
		began := time.Now()
		enqueue(t, s.client, typed(jobs("school", "teacher", 30), "chat")...)
		s.eventually(t, "the chat has started", func() bool { return got.count() == 35 })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("the chat took %v", took)
		}
		var payloads []string
		for _, start := range got.all() {
			if start.Type != "chat" {
				payloads = append(payloads, start.Type)
			}
		}
		if len(payloads) != 5 {
			t.Errorf("started of marketing: %v", payloads)
		}
		explained, err := newInspector(t, s.client, "push").Explain(t.Context(), "school", "teacher")
		must(t, err)
		if b := explained.Binding; explained.Waiting != 15 || b == nil || b.Scope != queue.ScopeLimit || b.Name != "marketing" || b.Key != "school,teacher" || b.Rule != "window 5/24h" {
			t.Errorf("explained as %+v, bound by %+v", explained, b)
		}
	})
}

// One limit over all tenants: its rate is used up, in turns, and never exceeded. Who is subject to no limit does not wait.
func TestALimitSharedByTenants(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, limitsOnly(map[string]queue.Limit{
			"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Leak(50, time.Second)}, Each: map[string]queue.Limit{"*.free": {Unlimited: true}}},
		}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		var all []queue.Job
		for _, tenant := range []string{"a", "b", "c", "d"} {
			for user := range 5 {
				all = append(all, keyed(jobs(tenant, fmt.Sprint("u", user), 20), "domain", "mail.example")...)
			}
		}
		all = append(all, keyed(jobs("a", "u0", 50), "domain", "x.free")...)
		all = append(all, jobs("b", "u0", 50)...)
		enqueue(t, s.client, all...)
		limited := func() (starts []queue.Info) {
			for _, start := range got.all() {
				if start.Keys["domain"] == "mail.example" {
					starts = append(starts, start)
				}
			}
			return starts
		}
		s.eventually(t, "who is not limited has started", func() bool { return got.count()-len(limited()) == 100 })
		const known = 20 // the leader reads one tenant after the other, and those that it has read have the first turns
		s.eventually(t, "more than a second's worth has started", func() bool { return len(limited()) >= known+60 })
		starts := limited()[known : known+60]
		turns := map[string]int{}
		for i, start := range starts {
			turns[start.Tenant]++
			if i == 0 {
				continue
			}
			if gap := start.Slot.Sub(starts[i-1].Slot); gap < 20*time.Millisecond || s.virtual && gap > 20*time.Millisecond { // a machine may be late
				t.Errorf("slot %d lies %v after the one before, want 20ms", i, gap)
			}
		}
		off := 1
		if !s.virtual { // a job that its worker got too late came back, and has its turn later
			off = 4
		}
		for tenant, n := range turns {
			if n < 15-off || n > 15+off {
				t.Errorf("%s had %d of 60 turns: %v", tenant, n, turns)
			}
		}
	})
}

// Requests and tokens of a model: a job is counted by both, or by none.
func TestRequestsAndTokens(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, limitsOnly(map[string]queue.Limit{
			"requests": {Key: []string{"tenant"}, Counts: "jobs", Rules: []throttle.Rule{throttle.Window(8, time.Second)}},
			"tokens":   {Key: []string{"tenant"}, Counts: "tokens", Rules: []throttle.Rule{throttle.Window(1000, time.Second)}, Refuse: true},
		}))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		var all []queue.Job
		for i := range 40 {
			j := jobs("org", fmt.Sprint("u", i%4), 1)[0]
			j.Costs = map[string]int{"tokens": []int{10, 400, 90, 250}[(i/4)%4]}
			all = append(all, j)
		}
		enqueue(t, s.client, all...)
		s.eventually(t, "all have started", func() bool { return got.count() == 40 })
		starts := got.all()
		requests := keeps(t, "requests", starts, 8, time.Second, func(i queue.Info) (string, int) { return i.Tenant, 1 })
		tokens := keeps(t, "tokens", starts, 1000, time.Second, func(i queue.Info) (string, int) { return i.Tenant, i.Costs["tokens"] })
		if requests < 3 || tokens < 700 {
			t.Errorf("at most %d requests and %d tokens a second", requests, tokens)
		}
		_, err := newClient(t, s.client, "push").Enqueue(t.Context(), jobs("org", "u", 1)...)
		if want := "limit tokens needs costs.tokens, and it is missing"; !errors.Is(err, queue.ErrInvalidJob) || !strings.Contains(err.Error(), want) {
			t.Errorf("a job without tokens: %v", err)
		}
	})
}

// A rule with over: drop refuses only jobs that its limit is about, and a dropped job is counted by no other limit.
func TestALimitThatDrops(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		p := limitsOnly(map[string]queue.Limit{
			"marketing": {Types: []string{"marketing"}, Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.Window(5, 24*time.Hour).OrDrop()}},
			"number":    {Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.Window(12, 24*time.Hour).OrDrop()}},
		})
		setPolicies(t, s.client, p)
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		enqueue(t, s.client, typed(jobs("shop", "u", 9), "marketing")...)
		s.eventually(t, "they are decided", func() bool { return stats(t, s.client).Dropped == 4 })
		enqueue(t, s.client, typed(jobs("shop", "u", 9), "receipt")...)
		s.eventually(t, "they are decided", func() bool { return stats(t, s.client).Dropped == 6 })
		s.eventually(t, "the others have started", func() bool { return got.count() == 12 })
		drops, err := newInspector(t, s.client, "push").Drops(t.Context(), 10)
		must(t, err)
		rules := map[string]int{}
		for _, d := range drops {
			rules[string(d.Reason)+" "+d.Rule]++
		}
		if rules["rule marketing: window 5/24h"] != 4 || rules["rule number: window 12/24h"] != 2 {
			t.Errorf("dropped by %v", rules)
		}
	})
}

// As many jobs run at once as a limit by name lets, for each value of its key, also when another worker takes over.
func TestConcurrencyByName(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, limitsOnly(map[string]queue.Limit{
			"endpoint": {Key: []string{"keys.endpoint"}, Concurrency: queue.Concurrency{Jobs: 3}},
		}))
		var got runs
		handler := got.handle(func(queue.Info) time.Duration { return 50 * time.Millisecond })
		stop := runWorker(t, s.client, handler, queue.WorkerConfig{})
		var all []queue.Job
		for i := range 10 {
			all = append(all, keyed(jobs("t", fmt.Sprint("u", i), 6), "endpoint", []string{"x", "y"}[i%2])...)
		}
		enqueue(t, s.client, all...)
		s.eventually(t, "some have started", func() bool { return got.count() > 15 })
		runWorker(t, s.client, handler, queue.WorkerConfig{})
		stop()
		s.eventually(t, "all are done", func() bool { return stats(t, s.client).Done == 60 })
		got.judge(t, "endpoint", 3, func(i queue.Info) string { return i.Keys["endpoint"] })
	})
}

// A limit's key is paused: its jobs wait, others of the same users do not.
func TestPauseALimitsKey(t *testing.T) {
	t.Parallel()
	for _, rules := range [][]throttle.Rule{{throttle.Leak(1000, time.Second)}, nil} {
		synctest.Test(t, func(t *testing.T) { pauseALimitsKey(t, rules) })
	}
}

func pauseALimitsKey(t *testing.T, rules []throttle.Rule) {
	client := redistest.Mini(t)
	setPolicies(t, client, limitsOnly(map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: rules}}))
	var got recorder
	var paused atomic.Bool
	got.then = func(_ context.Context, info queue.Info) error {
		if info.Keys["domain"] == "down.example" && paused.CompareAndSwap(false, true) {
			return queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "down.example", For: time.Minute, Cause: errors.New("it is down")}
		}
		return nil
	}
	runWorker(t, client, &got, queue.WorkerConfig{})
	inspector := newInspector(t, client, "push")
	must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "a,b", For: time.Hour}))
	must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "odd%2C%25", For: time.Hour}))
	for i := range 5 {
		user := fmt.Sprint("u", i)
		enqueue(t, client, keyed(jobs("t", user, 2), "domain", "down.example")...)
		enqueue(t, client, keyed(jobs("t", user, 2), "domain", "odd,%")...)
		enqueue(t, client, keyed(jobs("t", user, 2), "domain", "up.example")...)
	}
	time.Sleep(30 * time.Second)
	count := func(domain string) (n int) {
		for _, start := range got.all() {
			if start.Keys["domain"] == domain {
				n++
			}
		}
		return n
	}
	if up, odd := count("up.example"), count("odd,%"); up != 10 || odd != 0 || count("down.example") > 10 {
		t.Errorf("started: %d of 10 to who is up, %d to who is paused", up, odd)
	}
	before := count("down.example")
	pauses, err := inspector.Pauses(t.Context())
	must(t, err)
	if !slices.ContainsFunc(pauses, func(p queue.Pause) bool {
		return p.Scope == queue.ScopeLimit && p.Limit == "domain" && p.Key == "down.example" && p.Reason == "it is down"
	}) {
		t.Errorf("paused: %+v", pauses)
	}
	time.Sleep(time.Minute)
	if after := count("down.example"); after != 11 || before >= after {
		t.Errorf("%d starts to who was down before its pause has ended, %d after", before, after)
	}
	must(t, inspector.Resume(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: "domain", Key: "odd%2C%25"}))
	time.Sleep(time.Second)
	if odd := count("odd,%"); odd != 10 {
		t.Errorf("%d of 10 started after the pause was lifted", odd)
	}
}

// A handler is told which limits count its job, and for which values: by the worker that leads and by the others.
func TestAHandlerKnowsTheLimitsOfItsJob(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, limitsOnly(map[string]queue.Limit{
			"domain": {Key: []string{"tenant", "keys.domain"}, Rules: []throttle.Rule{throttle.Leak(1000, time.Second)}, Each: map[string]queue.Limit{"*free.example": {Unlimited: true}}},
			"mail":   {Types: []string{"mail"}, Concurrency: queue.Concurrency{Jobs: 50}},
			"route":  {Key: []string{"keys.route"}},
		}))
		var first, second recorder
		both := func() int { return first.count() + second.count() }
		for _, r := range []*recorder{&first, &second} {
			r.then = func(context.Context, queue.Info) error { <-time.After(s.unit / 2); return nil }
			runWorker(t, s.client, r, queue.WorkerConfig{Concurrency: 10})
		}
		s.eventually(t, "both workers are there", func() bool {
			workers, err := newWatcher(t, s.client, "push").Workers(t.Context())
			must(t, err)
			return len(workers) == 2
		})
		for i := range 30 {
			enqueue(t, s.client, typed(keyed(jobs("t", fmt.Sprint("m", i), 1), "domain", "a,b"), "mail")...)
			enqueue(t, s.client, keyed(jobs("t", fmt.Sprint("f", i), 1), "domain", "free.example")...)
			enqueue(t, s.client, keyed(jobs("t", fmt.Sprint("r", i), 1), "route", "fcm")...)
		}
		s.eventually(t, "all have started", func() bool { return both() == 90 })
		if first.count() == 0 || second.count() == 0 {
			t.Fatalf("one worker has run all: %d, %d", first.count(), second.count())
		}
		want := map[byte][]queue.JobLimit{
			'm': {{Limit: "domain", Fields: []string{"tenant", "keys.domain"}, Key: "t,a%2Cb"}, {Limit: "mail"}},
			'r': {{Limit: "route", Fields: []string{"keys.route"}, Key: "fcm"}},
		}
		for _, start := range append(first.all(), second.all()...) {
			if diff := cmp.Diff(want[start.User[0]], start.Limits()); diff != "" {
				t.Errorf("user %s (-want +got):\n%s", start.User, diff)
			}
		}
	})
}

// A handler that pauses a limit which does not count its job, or that there is not, is not called again before the end of the
// pause, as with any other: its user waits. Other users do not.
func TestAPauseThatIsNotAboutItsJob(t *testing.T) {
	t.Parallel()
	for _, wrong := range []queue.Pause{{Limit: "domian", Key: "down.example"}, {Limit: "domain", Key: "other.example"}, {Limit: "domain", Key: "a,b"}, {}} {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			setPolicies(t, client, limitsOnly(map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Leak(1000, time.Second)}}}))
			wrong.Scope, wrong.For = queue.ScopeLimit, time.Minute
			var got recorder
			got.then = func(_ context.Context, info queue.Info) error {
				if info.User == "wrong" && got.count() < 1000 {
					return wrong
				}
				return nil
			}
			runWorker(t, client, &got, queue.WorkerConfig{})
			enqueue(t, client, keyed(jobs("t", "wrong", 3), "domain", "down.example")...)
			enqueue(t, client, keyed(jobs("t", "right", 3), "domain", "down.example")...)
			time.Sleep(10*time.Minute - time.Second)
			n := make(map[string]int)
			for _, start := range got.all() {
				n[start.User]++
			}
			// Handlers run side by side, so all three of a user may have started when the first of them pauses.
			if n["right"] != 3 || n["wrong"] < 10 || n["wrong"] > 30 {
				t.Errorf("limit %q, key %q: in ten minutes %d starts of three jobs that pause for a minute, %d of 3 others", wrong.Limit, wrong.Key, n["wrong"], n["right"])
			}
		})
	}
}

// A limit that is set while jobs wait is about them, too; one that is lifted holds nobody back.
func TestLimitsByNameAreLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, queue.Policies{Default: "p", Policies: map[string]queue.Policy{"p": leakOf(1)}})
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		enqueue(t, client, keyed(jobs("a", "u", 100), "domain", "x")...)
		enqueue(t, client, keyed(jobs("b", "u", 100), "domain", "x")...)
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if n := got.count(); n != 22 {
			t.Fatalf("%d starts in ten seconds of two tenants with one a second", n)
		}
		p := limitsOnly(map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Leak(10, time.Second)}}})
		setPolicies(t, client, p)
		before := got.count()
		time.Sleep(5 * time.Second)
		if n := got.count() - before; n < 48 || n > 52 {
			t.Errorf("%d starts in five seconds of a limit of ten a second", n)
		}
		setPolicies(t, client, queue.Policies{})
		time.Sleep(time.Second)
		if n := got.count(); n != 200 {
			t.Errorf("%d of 200 started when all limits were lifted", n)
		}
	})
}

// However many lanes wait for one limit that is used up, its next free instant starts one of them, and the others are not
// looked at.
func TestWaitersOfALimitCostNothing(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	sizes := []int{200, 5000}
	if sample.Whole() {
		sizes = []int{10_000, 100_000}
	}
	server := redistest.Start(t)
	perJob := map[int]float64{}
	for _, lanes := range sizes {
		client := server.Client(t)
		client.FlushAll(t.Context())
		setPolicies(t, client, limitsOnly(map[string]queue.Limit{
			"account": {Counts: "jobs", Rules: []throttle.Rule{throttle.Leak(50, time.Second)}},
		}))
		var all []queue.Job
		for i := range lanes {
			all = append(all, jobs(fmt.Sprint("t", i%20), fmt.Sprint("u", i), 1)...)
		}
		enqueue(t, client, all...)
		var got recorder
		stop := runWorker(t, server.Client(t), &got, queue.WorkerConfig{})
		// What twenty starts cost, the cheapest of five times: all lanes have to come into the line first, and a leader that is new,
		// which it can be on a busy machine, reads them all once more.
		perJob[lanes] = math.Inf(1)
		for range 5 {
			before, n := commands(t, client), got.count()
			redistest.Eventually(t, 20*time.Second, "twenty more have started", func() bool { return got.count() >= n+20 })
			perJob[lanes] = min(perJob[lanes], float64(commands(t, client)-before)/float64(got.count()-n))
		}
		stop()
	}
	t.Logf("Redis commands for each started job, those inside of scripts included: %.1f with %d lanes, %.1f with %d",
		perJob[sizes[0]], sizes[0], perJob[sizes[1]], sizes[1])
	if perJob[sizes[1]] > 1.5*perJob[sizes[0]] { // a busy machine costs some
		t.Error("it grows with the lanes")
	}
}

// A rule of a limit by name has one name, whoever writes it: the door, a drop, the counters, the simulation.
func TestRulesOfALimitHaveOneName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := limitsOnly(map[string]queue.Limit{
			"burst": {Types: []string{"burst"}, Rules: []throttle.Rule{throttle.Window(1, 10*time.Minute).OrDrop()}},
			"mail":  {Types: []string{"mail"}, Rules: []throttle.Rule{throttle.Window(2, 10*time.Minute)}},
		})
		client := redistest.Mini(t)
		setPolicies(t, client, p)
		runWorker(t, client, new(recorder), queue.WorkerConfig{})
		all := append(typed(jobs("school", "teacher", 2), "burst"), typed(jobs("school", "parent", 4), "mail")...)
		all[5].Cost = 3
		receipts := enqueue(t, client, all...)
		if got := receipts[5].Rule; got != "mail: window 2/10m" {
			t.Errorf("the receipt says %q", got)
		}
		time.Sleep(20 * time.Minute)
		drops, err := newInspector(t, client, "push").Drops(t.Context(), 10)
		must(t, err)
		var rules []string
		for _, d := range drops {
			rules = append(rules, d.Rule)
		}
		slices.Sort(rules)
		if want := []string{"burst: window 1/10m", "mail: window 2/10m"}; !slices.Equal(rules, want) {
			t.Errorf("drops say %q, want %q", rules, want)
		}
		stats, err := newInspector(t, client, "push").Stats(t.Context())
		must(t, err)
		if stats.Blocked["mail: window 2/10m"] == 0 {
			t.Errorf("blocked: %v", stats.Blocked)
		}
		var offers []simulate.Offer
		for _, job := range all {
			offers = append(offers, simulate.Offer{At: time.Now(), Job: job})
		}
		results, err := simulate.Run(simulate.Config{Policies: p}, offers)
		must(t, err)
		if got := []string{results[1].Rule, results[5].Rule}; !slices.Equal(got, []string{"burst: window 1/10m", "mail: window 2/10m"}) {
			t.Errorf("the simulation says %q", got)
		}
	})
}

// A job that lacks what a limit needs is invalid where it is offered, and is not counted where it waits already.
func TestSimulatedJobsThatLackAKey(t *testing.T) {
	t.Parallel()
	p := limitsOnly(map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Refuse: true, Rules: []throttle.Rule{throttle.Window(1, time.Hour)}}})
	offers := []simulate.Offer{{At: time.Unix(0, 0), Job: jobs("school", "teacher", 1)[0]}}
	for accepted, want := range map[bool]queue.Reason{false: simulate.Invalid, true: ""} {
		results, err := simulate.Run(simulate.Config{Policies: p, Accepted: accepted}, offers)
		if err != nil || results[0].Reason != want {
			t.Errorf("accepted %v: %+v, %v", accepted, results, err)
		}
	}
}

// What the user has not seen takes nothing of a limit by name that counts each user in a unit of the job's own: whether the
// job is done, has failed, or waits for a pause.
func TestRefundOfAUnit(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]error{
		"done": nil, "failed": errors.New("not yet"), "paused": queue.Pause{Scope: queue.ScopeUser, For: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, queue.Policies{Limits: map[string]queue.Limit{
					"tokens": {Counts: "tokens", Key: []string{"tenant", "user"}, Rules: []throttle.Rule{throttle.Window(10, time.Hour)}},
				}})
				calls := 0
				got := recorder{then: func(context.Context, queue.Info) error {
					if calls++; calls == 1 {
						return queue.RefundUser{Err: end}
					}
					return nil
				}}
				runWorker(t, client, &got, queue.WorkerConfig{RetryDelay: after(time.Second)})
				job := jobs("school", "teacher", 1)[0]
				job.Costs = map[string]int{"tokens": 8}
				enqueue(t, client, job)
				if name == "done" {
					time.Sleep(time.Second)
					enqueue(t, client, job)
				}
				time.Sleep(5 * time.Second)
				if got.count() != 2 {
					t.Errorf("%d starts, want 2: the first one has taken nothing", got.count())
				}
			})
		})
	}
}

// Jobs that were offered before there was a limit wait in one lane, whatever their keys: the limit counts each for its own.
func TestALaneWithSeveralValuesOfAKey(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, queue.Policies{})
		enqueue(t, client, keyed(jobs("shop", "ann", 1), "domain", "a")...)
		enqueue(t, client, keyed(jobs("shop", "ann", 1), "domain", "b")...)
		setPolicies(t, client, limitsOnly(map[string]queue.Limit{"domain": {Key: []string{"keys.domain"}, Rules: []throttle.Rule{throttle.Window(1, time.Hour)}}}))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		time.Sleep(10 * time.Second)
		if got.count() != 2 {
			t.Errorf("%d starts, want one for each domain", got.count())
		}
	})
}
