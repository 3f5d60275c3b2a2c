package queue_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.yaml.in/yaml/v3"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
	"github.com/waterclock/waterclock/throttle"
	"github.com/waterclock/waterclock/throttle/limits"
)

// shared is a limit that counts jobs of several queues.
func shared(rules ...throttle.Rule) queue.Limit {
	return queue.Limit{Shared: true, Counts: "jobs", Rules: rules}
}

// account are policies with one shared limit.
func account(rules ...throttle.Rule) queue.Policies {
	return limitsOnly(map[string]queue.Limit{"account": shared(rules...)})
}

// outside decides by the limit of account as a program does that has no queue.
func outside(t *testing.T, rdb redis.UniversalClient, p queue.Policies) *limits.Set {
	t.Helper()
	text, err := yaml.Marshal(p)
	must(t, err)
	set, err := limits.Parse("limits.yaml", text, throttle.New(throttle.NewRedisStore(rdb, limits.SharedKeys)))
	must(t, err)
	return set
}

// busiest returns the largest number of instants within a period.
func busiest(at []time.Time, period time.Duration) (n int) {
	slices.SortFunc(at, time.Time.Compare)
	first := 0
	for i := range at {
		for at[i].Sub(at[first]) >= period {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// starts are when something started, by who started it.
type starts struct {
	mu sync.Mutex
	by map[string][]time.Time
}

func (s *starts) add(who string, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.by == nil {
		s.by = make(map[string][]time.Time)
	}
	s.by[who] = append(s.by[who], at)
}

func (s *starts) all() (all []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, some := range s.by {
		all = append(all, some...)
	}
	return all
}

func (s *starts) of(who string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.by[who])
}

// under lets a worker run the jobs of a queue under policies.
func (s *starts) under(t *testing.T, client redis.UniversalClient, p queue.Policies, name string, cfg queue.WorkerConfig) {
	t.Helper()
	must(t, newInspector(t, client, name).SetPolicies(t.Context(), p))
	cfg.Queues = []string{name}
	runWorker(t, client, &recorder{then: func(_ context.Context, info queue.Info) error {
		s.add(name, info.Started)
		return nil
	}}, cfg)
}

// Two queues and a program without a queue spend one limit together. All of them never do more than it says, nearly all that it says is
// done, and each of them does its part.
func TestASharedLimit(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		const per, window, lasts = 50, 450, 12
		p := account(throttle.Leak(per, s.units(1)), throttle.Window(window, s.units(10)))
		var started starts
		for _, name := range []string{"push", "mail"} {
			started.under(t, s.client, p, name, queue.WorkerConfig{})
			var all []queue.Job
			for i := range per * lasts {
				all = append(all, jobs(fmt.Sprint("t", i%3), fmt.Sprint("u", i%7), 1)...)
			}
			_, err := newClient(t, s.client, name).Enqueue(t.Context(), all...)
			must(t, err)
		}
		set, end := outside(t, s.client, p), time.Now().Add(s.units(lasts))
		for time.Now().Before(end) {
			d, err := set.Reserve(t.Context(), limits.Fields{})
			must(t, err)
			started.add("outside", d.Slot)
			time.Sleep(max(d.RetryAfter, time.Microsecond))
		}
		all := started.all()
		t.Logf("%d by push, %d by mail, %d outside", started.of("push"), started.of("mail"), started.of("outside"))
		if n := busiest(all, s.units(10)); n > window {
			t.Errorf("%d starts within %v, want at most %d", n, s.units(10), window)
		}
		if !s.virtual {
			return
		}
		for i := range all[1:] {
			if apart, least := all[i+1].Sub(all[i]), s.units(1)/per-limitsSlack; apart < least {
				t.Errorf("two starts are %v apart, want at least %v", apart, least)
			}
		}
		if n := busiest(all, s.units(10)); n < window*98/100 {
			t.Errorf("%d starts within %v, want about %d", n, s.units(10), window)
		}
		for _, who := range []string{"push", "mail", "outside"} {
			if n := started.of(who); n < len(all)/6 {
				t.Errorf("%s has %d of %d starts", who, n, len(all))
			}
		}
	})
}

// In a cluster the limit and the queues are on servers of their own, whose clocks are told apart.
func TestASharedLimitInACluster(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	const window, n = 200, 500
	cluster := redistest.StartCluster(t, 3)
	p := account(throttle.Window(window, time.Second))
	var started starts
	began := time.Now()
	names := []string{"push", "mail", "news"}
	for _, name := range names {
		started.under(t, cluster, p, name, queue.WorkerConfig{})
		_, err := newClient(t, cluster, name).Enqueue(t.Context(), jobs("school", "teacher", n)...)
		must(t, err)
	}
	redistest.Eventually(t, time.Minute, "all have started", func() bool { return len(started.all()) == n*len(names) })
	least := time.Duration(n*len(names)/window-1) * time.Second
	if took := time.Since(began); took < least {
		t.Errorf("it took %v, want at least %v", took, least)
	} else {
		t.Logf("it took %v of at least %v", took, least)
	}
	if most := busiest(started.all(), time.Second); most > window {
		t.Errorf("%d starts within a second, want at most %d", most, window)
	}
}

// limitsSlack is how much later than its slot a job starts at most that a shared limit counts.
const limitsSlack = 20 * time.Millisecond

// What a queue was granted and has not used, others get: nothing of a window is lost to a worker that has no place for its jobs.
func TestUnusedGrantsAreGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := account(throttle.Window(100, time.Hour))
		var started starts
		must(t, newInspector(t, client, "push").SetPolicies(t.Context(), p))
		runWorker(t, client, &recorder{then: func(_ context.Context, info queue.Info) error {
			started.add("push", info.Started)
			time.Sleep(500 * time.Millisecond)
			return nil
		}}, queue.WorkerConfig{Concurrency: 1})
		enqueue(t, client, jobs("school", "teacher", 30)...)
		enqueue(t, client, jobs("school", "parent", 30)...)
		time.Sleep(20 * time.Minute)
		set := outside(t, client, p)
		for range 50 {
			d, err := set.Allow(t.Context(), limits.Fields{})
			must(t, err)
			if d.Outcome == throttle.Admitted {
				started.add("outside", d.Slot)
			}
		}
		if push, others := started.of("push"), started.of("outside"); push != 60 || others != 40 {
			t.Errorf("%d jobs and %d others, want 60 and 40", push, others)
		}
	})
}

// A job that another limit keeps waiting takes nothing of a shared one.
func TestOtherLimitsComeBeforeAShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := limitsOnly(map[string]queue.Limit{
			"account": shared(throttle.Window(100, 10*time.Hour)),
			"rare":    {Counts: "jobs", Rules: []throttle.Rule{throttle.Spacing(time.Minute)}},
		})
		var started starts
		started.under(t, client, p, "push", queue.WorkerConfig{})
		enqueue(t, client, jobs("school", "teacher", 20)...)
		enqueue(t, client, jobs("home", "parent", 20)...)
		time.Sleep(9*time.Minute + 30*time.Second)
		d, err := outside(t, client, account(throttle.Window(100, 10*time.Hour))).Peek(t.Context(), limits.Fields{})
		must(t, err)
		if n := started.of("push"); n != 10 || d.Remaining != 90 {
			t.Errorf("%d have started, want 10; %d are left, want 90", n, d.Remaining)
		}
	})
}

// Jobs that wait for another limit as well take no instants of the shared one that others could use meanwhile.
func TestOthersUseWhatAQueueMayNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lasts, per = 10 * time.Second, 200
		client := redistest.Mini(t)
		p := limitsOnly(map[string]queue.Limit{
			"account": shared(throttle.Leak(per, time.Second)), "other": {Counts: "jobs", Rules: []throttle.Rule{throttle.Leak(per/2, time.Second)}},
		})
		var started starts
		started.under(t, client, p, "push", queue.WorkerConfig{})
		for i := range 4 {
			enqueue(t, client, jobs("school", fmt.Sprint("teacher", i), per*3)...)
		}
		set, end := outside(t, client, account(throttle.Leak(per, time.Second))), time.Now().Add(lasts)
		var callers sync.WaitGroup
		for range 3 {
			callers.Go(func() {
				for time.Now().Before(end) {
					d, err := set.Acquire(t.Context(), "account", limits.Fields{}, time.Second)
					must(t, err)
					started.add("outside", d.Slot)
				}
			})
		}
		callers.Wait()
		push, others := started.of("push"), started.of("outside")
		t.Logf("%d by push, %d outside", push, others)
		if all := int(lasts.Seconds()) * per; push+others < all*95/100 || push < all/6 {
			t.Errorf("%d have started, want about %d", push+others, all)
		}
	})
}

// Jobs that several shared limits count start at instants that all of these allow, whoever else has spent of any of them. Many keys of one
// limit that have another one in common do not ask for it all the time.
func TestSeveralSharedLimits(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	for name, test := range map[string]struct{ domains, perDomain, least int }{
		"the common one binds": {60, 10, 380}, "those of the keys bind": {5, 10, 190}, "both": {12, 10, 340},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				var asked redistest.Counter
				client.AddHook(&asked)
				account, domain := shared(throttle.Leak(100, time.Second)), shared(throttle.Window(test.perDomain, time.Second))
				domain.Key = []string{"keys.domain"}
				p := limitsOnly(map[string]queue.Limit{"account": account, "domain": domain})
				var started starts
				by := make(map[string][]time.Time)
				for _, name := range []string{"push", "mail"} {
					must(t, newInspector(t, client, name).SetPolicies(t.Context(), p))
					runWorker(t, client, &recorder{then: func(_ context.Context, info queue.Info) error {
						started.add(name, info.Started)
						started.add("at "+info.Keys["domain"], info.Started)
						return nil
					}}, queue.WorkerConfig{Queues: []string{name}})
					all := jobs("school", "teacher", 2*test.domains)
					for i := range all {
						all[i].User, all[i].Keys = fmt.Sprint("teacher-", i%test.domains), map[string]string{"domain": fmt.Sprint("d", i%test.domains)}
					}
					for range 500/len(all) + 1 {
						_, err := newClient(t, client, name).Enqueue(t.Context(), all...)
						must(t, err)
					}
				}
				asked.Take()
				time.Sleep(4 * time.Second)
				commands := asked.Take()
				started.mu.Lock()
				defer started.mu.Unlock()
				var all []time.Time
				for who, at := range started.by {
					if who == "push" || who == "mail" {
						all = append(all, at...)
						continue
					}
					by[who] = at
				}
				t.Logf("%d started, %d by push, with %d commands", len(all), len(started.by["push"]), commands)
				// Slots of a leak are as far apart as it says, and starts come up to 20 ms later: those within a second have slots within 1.02.
				if n := busiest(all, time.Second); n > 103 {
					t.Errorf("%d starts within a second, want at most 103", n)
				}
				for who, at := range by {
					if n := busiest(at, time.Second); n > test.perDomain {
						t.Errorf("%d starts within a second %s, want at most %d", n, who, test.perDomain)
					}
				}
				if len(all) < test.least {
					t.Errorf("%d have started, want at least %d", len(all), test.least)
				}
				if each := commands / max(1, len(all)); each > 40 {
					t.Errorf("%d commands for each start", each)
				}
			})
		})
	}
}

// A value of a key whose state cannot be read holds its own jobs, and nobody else's: others are asked about in the same question.
func TestOneBadSharedLimitAmongGood(t *testing.T) {
	t.Parallel()
	const domains, each, bad = 20, 20, "d7"
	for name, all := range map[string]map[string]queue.Limit{
		"alone":    {},
		"together": {"account": shared(throttle.Leak(1000, time.Second))},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			domain := shared(throttle.Window(10, time.Second))
			domain.Key = []string{"keys.domain"}
			all["domain"] = domain
			inspector := newInspector(t, client, "push")
			must(t, inspector.SetPolicies(t.Context(), limitsOnly(all)))
			must(t, client.LPush(t.Context(), limits.SharedKeys+":l:domain:"+bad, "of another type").Err())
			var started starts
			log := new(redistest.Buffer)
			runWorker(t, client, &recorder{then: func(_ context.Context, info queue.Info) error {
				started.add(info.Keys["domain"], info.Started)
				return nil
			}}, queue.WorkerConfig{Queues: []string{"push"}, Logger: slog.New(slog.NewTextHandler(log, nil))})
			for i := range domains {
				some := jobs("school", fmt.Sprint("teacher-", i), each)
				for k := range some {
					some[k].Keys = map[string]string{"domain": fmt.Sprint("d", i)}
				}
				enqueue(t, client, some...)
			}
			redistest.Eventually(t, 30*time.Second, "all others have started", func() bool { return len(started.all()) == (domains-1)*each })
			if n := started.of(bad); n > 0 {
				t.Errorf("%d jobs have started that nobody could decide about", n)
			}
			var warnings []string
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "level=WARN") {
					warnings = append(warnings, line)
				}
			}
			if len(warnings) != 1 || !strings.Contains(warnings[0], "l:domain:"+bad) {
				t.Errorf("want one warning, about %s: %q", bad, warnings)
			}
			now, err := inspector.Limits(t.Context(), 100)
			must(t, err)
			for _, l := range now.Limits {
				for _, key := range l.Keys {
					if key.Next.IsZero() != (key.Key == bad) {
						t.Errorf("%s %s: %+v", l.Name, key.Key, key)
					}
				}
			}
		})
	}
}

// A limit can become a shared one, one of several, and be one no more, while jobs wait for it. A pause of any of several holds them all.
func TestALimitBecomesShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		leak := func(n int) []throttle.Rule { return []throttle.Rule{throttle.Leak(n, time.Second)} }
		alone := limitsOnly(map[string]queue.Limit{"account": {Counts: "jobs", Rules: leak(10)}})
		several := func(pool int) queue.Policies {
			return limitsOnly(map[string]queue.Limit{"account": shared(leak(10)...), "pool": shared(leak(pool)...), "other": {Counts: "jobs", Rules: leak(50)}})
		}
		var started starts
		started.under(t, client, alone, "push", queue.WorkerConfig{})
		for i := range 5 {
			enqueue(t, client, jobs("school", fmt.Sprint("teacher", i), 400)...)
		}
		inspector := newInspector(t, client, "push")
		for i, step := range []struct {
			queue.Policies
			pause string // a limit that is paused for half of the time
			want  int
		}{
			{alone, "", 100}, {account(leak(20)...), "", 200}, {alone, "", 100}, {several(5), "", 50}, {several(8), "", 80}, {several(5), "pool", 25},
			{account(leak(10)...), "", 100}, {account(leak(10)...), "account", 50}, {several(20), "account", 50}, {several(20), "other", 50},
			{several(8), "", 80}, {several(8), "pool", 40}, {several(8), "", 80},
		} {
			if before, err := inspector.Policies(t.Context()); err != nil || fmt.Sprint(before.Policies) != fmt.Sprint(step.Policies) {
				must(t, inspector.SetPolicies(t.Context(), step.Policies))
			}
			if step.pause != "" {
				must(t, inspector.Pause(t.Context(), queue.Pause{Scope: queue.ScopeLimit, Limit: step.pause, For: 5 * time.Second}))
			}
			before := started.of("push")
			time.Sleep(10 * time.Second)
			if n := started.of("push") - before; n < step.want*95/100-1 || n > step.want+3 {
				t.Errorf("%d have started in the %d. ten seconds, want %d", n, i+1, step.want)
			}
		}
		must(t, inspector.SetPolicies(t.Context(), limitsOnly(nil)))
		time.Sleep(20 * time.Second)
		if n := started.of("push"); n != 2000 {
			t.Errorf("%d have started in the end, want all 2000", n)
		}
	})
}

// What a shared limit says is what all who spend it have left of it.
func TestASharedLimitIsExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := account(throttle.Window(10, time.Hour), throttle.Spacing(time.Minute))
		var started starts
		started.under(t, client, p, "push", queue.WorkerConfig{})
		set := outside(t, client, p)
		reserve := func(n int) {
			for range n {
				_, err := set.Reserve(t.Context(), limits.Fields{})
				must(t, err)
			}
		}
		inspector := newInspector(t, client, "push")
		check := func(when string, in time.Duration, binding string, room int, full float64) {
			t.Helper()
			e, err := inspector.Explain(t.Context(), "school", "teacher")
			must(t, err)
			if wait := e.Start.Sub(e.Now); wait < in-time.Second || wait > in+time.Second || e.Binding == nil || e.Binding.Rule != binding || e.Binding.Name != "account" {
				t.Errorf("%s: it starts in %v by %+v; want it in %v by %s", when, wait, e.Binding, in, binding)
			}
			for _, r := range e.Rules {
				if r.Rule == "window 10/1h" && r.Remaining != room {
					t.Errorf("%s: %d of the window are left, want %d", when, r.Remaining, room)
				}
			}
			key, err := inspector.LimitKey(t.Context(), "account", "")
			must(t, err)
			if wait := key.Next.Sub(e.Now); wait < in-time.Second || wait > in+time.Second || key.Full != full {
				t.Errorf("%s: the limit is %v full and says %v; want %v and %v", when, key.Full, wait, full, in)
			}
			health, err := watch.New(client, "push")
			must(t, err)
			if h, err := health.Health(t.Context()); err != nil || h.Overdue > 0 {
				t.Errorf("%s: %+v, %v", when, h, err)
			}
		}
		reserve(3)
		enqueue(t, client, jobs("school", "teacher", 3)...)
		time.Sleep(time.Second)
		check("others were before", 3*time.Minute, "spacing 1m", 0, 1)
		reserve(7)
		time.Sleep(9*time.Minute + 30*time.Second)
		check("others have used it up", 50*time.Minute+29*time.Second, "window 10/1h", 0, 1)
	})
}

// Of several rules of one kind each is told by what it has counted itself.
func TestSharedRulesOfOneKindAreExplained(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := account(throttle.FixedWindow(10, time.Minute), throttle.FixedWindow(100, time.Hour), throttle.FixedWindow(50, time.Hour).AsShadow(),
			throttle.TokenBucket(60, time.Minute, 20), throttle.TokenBucket(60, time.Hour, 60))
		inspector := newInspector(t, client, "push")
		must(t, inspector.SetPolicies(t.Context(), p))
		set := outside(t, client, p)
		for range 2 {
			for range 5 {
				_, err := set.Reserve(t.Context(), limits.Fields{})
				must(t, err)
			}
			time.Sleep(time.Minute)
		}
		enqueue(t, client, jobs("school", "teacher", 1)...)
		e, err := inspector.Explain(t.Context(), "school", "teacher")
		must(t, err)
		left := make(map[string]int)
		for _, r := range e.Rules {
			left[r.Rule] = r.Remaining
		}
		want := map[string]int{"fixed_window 10/1m": 10, "fixed_window 100/1h": 90, "fixed_window 50/1h": 50, "token_bucket 60/1m burst 20": 20, "token_bucket 60/1h burst 60": 52}
		if diff := cmp.Diff(want, left); diff != "" {
			t.Errorf("what rules have left (- want):\n%s", diff)
		}
	})
}

// A job under a shared limit waits for it no longer than it may, and is not dropped before.
func TestLatestStartsUnderASharedLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		p := account(throttle.Spacing(10 * time.Second))
		var started starts
		started.under(t, client, p, "push", queue.WorkerConfig{})
		all := jobs("school", "teacher", 3)
		all[1].StartBy, all[2].StartBy = time.Now().Add(15*time.Second), time.Now().Add(15*time.Second)
		enqueue(t, client, all...)
		time.Sleep(time.Minute)
		checkOutcome(t, client, queue.Counters{Done: 2, Dropped: 1}, "")
	})
}
