package queue_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

func TestShadowRulesOnlyWatch(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(2, time.Hour).AsShadow()}}))
		var got recorder
		runWorker(t, client, &got, queue.WorkerConfig{})
		enqueue(t, client, jobs("school", "teacher", 5)...)
		s.eventually(t, "all are done", func() bool { return stats(t, client).Done == 5 })
		if all := stats(t, client); len(all.Shadowed) != 1 || all.Shadowed["window 2/1h"] != 3 {
			t.Errorf("shadowed %v, want three by the window", all.Shadowed)
		}
	})
}

func TestCountingDroppedKeepsAFloodOut(t *testing.T) {
	t.Parallel()
	for counting, want := range map[bool]int{false: 6, true: 2} {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			rule := throttle.Window(2, 10*time.Second).OrDrop()
			if counting {
				rule = rule.CountingDropped()
			}
			setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{rule}}))
			var got recorder
			runWorker(t, client, &got, queue.WorkerConfig{})
			for range 27 {
				enqueue(t, client, jobs("school", "teacher", 1)...)
				time.Sleep(time.Second)
			}
			if got.count() != want {
				t.Errorf("counting dropped: %v: %d starts, want %d", counting, got.count(), want)
			}
		})
	}
}

func TestReceiptsEstimate(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		client := s.client
		setPolicies(t, client, policies(queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(10, time.Second)},
			User:   []throttle.Rule{throttle.Window(2, time.Minute)},
		}))
		var batch []queue.Job
		for user := range 5 {
			batch = append(batch, jobs("school", fmt.Sprint(user), 1)...)
		}
		batch = append(batch, jobs("school", "busy", 3)...)
		receipts := enqueue(t, client, batch...)
		begin := receipts[0].Start
		if ago := time.Since(begin); ago < 0 || ago > 5*time.Second {
			t.Errorf("the first job is said to start %v ago, want at once", ago)
		}
		for i, r := range receipts {
			want := begin.Add(time.Duration(i) * 100 * time.Millisecond)
			if i == 7 { // the third of its user
				want = begin.Add(time.Minute + grace)
			}
			if place := max(1, i-4); !r.Start.Equal(want) || r.Place != place {
				t.Errorf("job %d is said to be number %d and to start after %v, want %d and %v", i, r.Place, r.Start.Sub(begin), place, want.Sub(begin))
			}
		}
	})
}

func TestPoliciesAreLive(t *testing.T) {
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		tight := queue.Policy{User: []throttle.Rule{throttle.Window(1, time.Hour)}}
		loose := queue.Policy{User: []throttle.Rule{throttle.Window(2, time.Hour)}}
		setPolicies(t, s.client, policies(tight))
		var got recorder
		runWorker(t, s.client, &got, queue.WorkerConfig{})
		for user := range 20 {
			enqueue(t, s.client, jobs("school", fmt.Sprint(user), 2)...)
		}
		s.eventually(t, "the first of each has started", func() bool { return stats(t, s.client).Done == 20 })
		if s.virtual {
			time.Sleep(2 * time.Minute)
		}
		if n := got.count(); n != 20 {
			t.Fatalf("%d starts under the tight rule, want 20", n)
		}
		setPolicies(t, s.client, policies(loose))
		changed := time.Now()
		s.eventually(t, "all have started", func() bool { return stats(t, s.client).Done == 40 })
		if took := time.Since(changed); s.virtual && took > s.unit/10 {
			t.Errorf("the last start came %v after the change", took)
		}
		setPolicies(t, s.client, policies(tight))
		enqueue(t, s.client, jobs("school", "0", 1)...)
		enqueue(t, s.client, jobs("school", "new", 1)...)
		s.eventually(t, "whoever is new has started", func() bool { return stats(t, s.client).Done == 41 })
		if all := stats(t, s.client); all.Waiting != 1 || got.all()[40].User != "new" {
			t.Errorf("under the tight rule again: %+v, last start %+v", all, got.all()[40])
		}
	})
}

// The work per job must not depend on how many wait with it, nor on how long.
func TestWaitingCostsNothing(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	server := redistest.Start(t)
	perJob := map[int]float64{}
	for _, backlog := range []int{300, 10_000} {
		client := server.Client(t)
		client.FlushAll(t.Context())
		setPolicies(t, client, policies(leakOf(400)))
		for user := range backlog / 100 {
			enqueue(t, client, jobs("school", fmt.Sprint(user), 100)...)
		}
		var got recorder
		before := commands(t, client)
		stop := runWorker(t, server.Client(t), &got, queue.WorkerConfig{})
		redistest.Eventually(t, 10*time.Second, "250 have started", func() bool { return got.count() >= 250 })
		stop()
		perJob[backlog] = float64(commands(t, client)-before) / float64(got.count())
	}
	t.Logf("Redis commands per job, those inside of scripts included: %.1f with 300 waiting, %.1f with 10,000", perJob[300], perJob[10_000])
	if perJob[10_000] > 2*perJob[300] { // a busy machine costs some; what grows with the backlog would cost 33 times as much
		t.Errorf("%.1f commands per job with 10,000 waiting, %.1f with 300", perJob[10_000], perJob[300])
	}
}

// commands returns how many commands Redis has run, those inside of scripts included.
func commands(t *testing.T, client *redis.Client) (n int) {
	t.Helper()
	for line := range strings.Lines(client.Info(t.Context(), "commandstats").Val()) {
		if _, after, found := strings.Cut(line, ":calls="); found {
			calls, _, _ := strings.Cut(after, ",")
			k, err := strconv.Atoi(calls)
			if err != nil {
				t.Fatal(err)
			}
			n += k
		}
	}
	return n
}

func TestBlockedLanesAreNotPolled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		calls := map[int]int{}
		for _, backlog := range []int{10, 1000} {
			client := redistest.Mini(t)
			setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{throttle.Window(1, 24*time.Hour)}}))
			var got recorder
			counted := &redistest.Counter{}
			worker := client
			worker.AddHook(counted)
			stop := runWorker(t, hooked{worker}, &got, queue.WorkerConfig{})
			for user := range 10 {
				enqueue(t, client, jobs("school", fmt.Sprint(user), backlog/10)...)
			}
			time.Sleep(time.Minute)
			if got.count() != 10 {
				t.Fatalf("%d starts, want 10", got.count())
			}
			counted.Take()
			time.Sleep(10 * time.Minute)
			calls[backlog] = counted.Take()
			stop()
		}
		// The leader renews its lease and looks who works, and whether its notices are there: ten calls a second, whatever waits. When it does so varies by milliseconds.
		if calls[1000] > calls[10]+calls[10]/100 || calls[1000] > 10*600 {
			t.Errorf("commands in ten minutes of waiting: %v", calls)
		}
	})
}

// Jobs that come in quick succession share readings of the mail and commits, and start soon all
// the same.
func TestJobsThatComeOneByOne(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n, perMillisecond = 1000, 10
		server, calls := newMini(t), &redistest.Counter{}
		client, worker := redistest.MiniClient(t, server), redistest.MiniClient(t, server)
		var got recorder
		worker.AddHook(calls)
		runWorker(t, hooked{worker}, &got, queue.WorkerConfig{Concurrency: n})
		time.Sleep(time.Second)
		calls.Take()
		for i := range n {
			enqueue(t, client, jobs("school", fmt.Sprint(i), 1)...)
			time.Sleep(time.Millisecond / perMillisecond)
		}
		time.Sleep(5 * time.Millisecond)
		if got.count() != n {
			t.Fatalf("%d of %d jobs have started", got.count(), n)
		}
		for _, start := range got.all() {
			if start.Waited > 1500*time.Microsecond {
				t.Errorf("job %s has waited for %v", start.User, start.Waited)
			}
		}
		t.Logf("%d calls in %d ms", calls.Count(), n/perMillisecond)
		if most := 4 * n / perMillisecond; calls.Take() > most {
			t.Errorf("want %d calls at most", most)
		}
	})
}

func TestIdleWorkerIsWoken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		var got recorder
		for range 3 {
			runWorker(t, client, &got, queue.WorkerConfig{})
		}
		sleeps := 50
		if testing.Short() {
			sleeps = 10
		}
		for i := range sleeps {
			time.Sleep(13 * time.Second)
			enqueue(t, client, jobs("school", "teacher", 1)...)
			time.Sleep(time.Second)
			if got.count() != i+1 {
				t.Fatalf("job %d has not started", i)
			}
			if s := got.all()[i]; s.Waited > time.Millisecond {
				t.Errorf("job %d started %v after its offer", i, s.Waited)
			}
		}
	})
}

func TestEveryRuleHoldsInTheQueue(t *testing.T) {
	t.Parallel()
	rules := []throttle.Rule{
		throttle.Leak(3, time.Second), throttle.Window(5, 10*time.Second), throttle.Spacing(700 * time.Millisecond),
		throttle.TokenBucket(2, time.Second, 10), throttle.FixedWindow(20, 10*time.Second),
		throttle.SlidingCounter(20, 10*time.Second, 2), throttle.SlidingCounter(20, 10*time.Second, 6),
	}
	for _, rule := range sample.Draw(t, rules, 0, 3) {
		t.Run(rule.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client := redistest.Mini(t)
				setPolicies(t, client, policies(queue.Policy{User: []throttle.Rule{rule}}))
				var got recorder
				for range 2 {
					runWorker(t, client, &got, queue.WorkerConfig{})
				}
				enqueue(t, client, jobs("school", "teacher", 100)...)
				time.Sleep(5 * time.Minute)
				var slots []throttle.Event
				for _, s := range got.all() {
					slots = append(slots, throttle.Event{Subject: "u", At: s.Slot})
				}
				for _, v := range throttle.Verify(slots, []throttle.Rule{rule}) {
					t.Error(v)
				}
				if len(slots) != 100 {
					t.Errorf("%d starts in five minutes, want all 100", len(slots))
				}
			})
		})
	}
}
