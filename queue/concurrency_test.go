package queue_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// A runs log is written by handlers, when they begin and when they end, by the clock of the
// machine.
type runs struct {
	mu  sync.Mutex
	all []throttle.Run
	of  []queue.Info
}

// handle runs for a time.
func (r *runs) handle(d func(queue.Info) time.Duration) asynq.HandlerFunc {
	return func(ctx context.Context, _ *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		r.mu.Lock()
		i := len(r.all)
		r.all, r.of = append(r.all, throttle.Run{From: time.Now()}), append(r.of, info)
		r.mu.Unlock()
		<-time.After(d(info))
		r.mu.Lock()
		r.all[i].Until = time.Now()
		r.mu.Unlock()
		return nil
	}
}

func (r *runs) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.all)
}

// judge checks that at most n run at once of each subject, and that as many did.
func (r *runs) judge(t *testing.T, what string, n int, subject func(queue.Info) string) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	log := make([]throttle.Run, len(r.all))
	for i, run := range r.all {
		log[i] = run
		log[i].Subject = subject(r.of[i])
	}
	for _, e := range throttle.VerifyConcurrency(log, n) {
		t.Errorf("%s: %v, want %d", what, e, n)
	}
	if n > 1 && len(throttle.VerifyConcurrency(log, n-1)) == 0 {
		t.Errorf("%s: never %d at once", what, n)
	}
}

func ofQueue(queue.Info) string       { return "queue" }
func ofTenant(info queue.Info) string { return info.Tenant }
func ofUser(info queue.Info) string   { return info.Tenant + "\x00" + info.User }

func lasting(d time.Duration) func(queue.Info) time.Duration {
	return func(queue.Info) time.Duration { return d }
}

// At most so many jobs run at once, of the queue, of each tenant and of each user, whatever
// the number of workers; and as many as may do.
func TestConcurrency(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	onStages(t, func(t *testing.T, s stage) {
		p := policies(queue.Policy{
			TenantConcurrency: queue.Concurrency{Percent: 25}, UserConcurrency: queue.Concurrency{Jobs: 2},
		})
		p.Concurrency = queue.Concurrency{Jobs: 8}
		setPolicies(t, s.client, p)
		for tenant := range 3 {
			for user := range 4 {
				enqueue(t, s.client, jobs(fmt.Sprint("school-", tenant), fmt.Sprint(user), 20*(tenant+1))...)
			}
		}
		enqueue(t, s.client, jobs("school-3", "alone", 100)...)
		var got runs
		for range 2 {
			runWorker(t, s.client, got.handle(lasting(s.unit/4)), queue.WorkerConfig{Concurrency: 8})
		}
		s.eventually(t, "all have run", func() bool { return got.count() == 100+4*20*(1+2+3) && drained(t, s.client)() })
		got.judge(t, "queue", 8, ofQueue)
		got.judge(t, "tenant", 4, ofTenant)
		got.judge(t, "user", 2, ofUser)
	})
}

// A user whose jobs go one at a time does not wait longer than the job: its end is told at
// once, by whichever worker had it.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{UserConcurrency: queue.Concurrency{Jobs: 1}}))
		const count = 300
		enqueue(t, s.client, jobs("school", "teacher", count)...)
		var got runs
		for range 3 {
			runWorker(t, s.client, got.handle(lasting(10*time.Millisecond)), queue.WorkerConfig{Concurrency: 2})
		}
		s.eventually(t, "all have run", func() bool { return got.count() == count && drained(t, s.client)() })
		got.judge(t, "user", 1, ofUser)
		log := got.all
		least := 75.0
		if !s.virtual {
			least = 40 // whatever else the machine does
		}
		rate := count / log[count-1].From.Sub(log[0].From).Seconds()
		t.Logf("%.0f starts a second", rate)
		if rate < least {
			t.Errorf("%.0f starts a second, want %.0f", rate, least)
		}
	})
}

// blocking is a handler whose jobs last until they are told to end.
type blocking struct {
	recorder
	end chan struct{}
}

func newBlocking() *blocking {
	b := &blocking{end: make(chan struct{})}
	b.then = func(ctx context.Context, _ queue.Info) error {
		select {
		case <-b.end:
		case <-ctx.Done():
		}
		return nil
	}
	return b
}

// A limit that is set counts the jobs that run already; lowered below what runs nothing
// starts until enough has ended; lifted, what waited starts at once.
func TestConcurrencyIsLive(t *testing.T) {
	sample.Slow(t)
	t.Parallel()
	onStages(t, func(t *testing.T, s stage) {
		limit := func(n int) {
			setPolicies(t, s.client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: n}}))
		}
		settles := func(what string, n int) {
			t.Helper()
			s.eventually(t, fmt.Sprint(what, ": ", n, " started"), func() bool { return stats(t, s.client).Started == int64(n) })
			<-time.After(s.units(5))
			if got := stats(t, s.client).Started; got != int64(n) {
				t.Errorf("%s: %d started, want %d", what, got, n)
			}
		}
		got := newBlocking()
		for range 2 {
			runWorker(t, s.client, got, queue.WorkerConfig{Concurrency: 20})
		}
		defer close(got.end)
		enqueue(t, s.client, jobs("school", "teacher", 4)...)
		settles("without a limit", 4)
		limit(6)
		enqueue(t, s.client, jobs("school", "teacher", 30)...)
		settles("a limit of 6 is set", 6)
		limit(8)
		settles("raised to 8", 8)
		limit(3)
		for range 5 {
			got.end <- struct{}{}
		}
		settles("lowered to 3 while 8 run, of which 5 end", 8)
		got.end <- struct{}{}
		settles("one more ends", 9)
		setPolicies(t, s.client, policies(queue.Policy{}))
		settles("lifted", 34)
	})
}

// What is blocked by a limit costs nothing, however much it is, and starts when a job ends.
func TestBlockedLanesCostNothing(t *testing.T) {
	t.Parallel()
	commands := func(waiting int) (n int) {
		synctest.Test(t, func(t *testing.T) {
			client := redistest.Mini(t)
			var counted redistest.Counter
			client.AddHook(&counted)
			setPolicies(t, client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: 1}, UserConcurrency: queue.Concurrency{Jobs: 1}}))
			got := newBlocking()
			runWorker(t, hooked{client}, got, queue.WorkerConfig{})
			for user := range waiting / 10 {
				enqueue(t, client, jobs("school", fmt.Sprint(user), 10)...)
			}
			time.Sleep(time.Minute)
			before := counted.Count()
			time.Sleep(time.Minute)
			n = counted.Count() - before
			began := time.Now()
			got.end <- struct{}{}
			for got.count() < 2 {
				time.Sleep(100 * time.Microsecond)
			}
			if took := time.Since(began); took > 5*time.Millisecond {
				t.Errorf("the next of %d starts %v after the end of the first", waiting, took)
			}
			close(got.end)
		})
		return n
	}
	few, many := commands(10), commands(10_000)
	if many > few+few/10 {
		t.Errorf("%d commands a minute with 10,000 waiting, %d with 10", many, few)
	}
	t.Logf("%d commands a minute with 10 waiting, %d with 10,000", few, many)
}

// A tenant with slow handlers takes all places; a limit on what runs of it leaves the others
// theirs. What counts is the time from the offer to the start: slots are given with places.
func TestSlowHandlersAreNotFelt(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes seconds")
	}
	const perSecond, places = 20, 50
	// In real time everything goes ten times as fast.
	waits := func(t *testing.T, s stage, pace int, beside bool, limit queue.Concurrency) time.Duration {
		scale := func(d time.Duration) time.Duration { return d / time.Duration(pace) }
		policy := queue.Policy{Tenant: []throttle.Rule{throttle.Leak(perSecond*pace, time.Second)}}
		slow := policy
		slow.TenantConcurrency = limit
		setPolicies(t, s.client, queue.Policies{
			Default: "fast", Tenants: map[string]string{"slow": "slow"}, Policies: map[string]queue.Policy{"fast": policy, "slow": slow},
		})
		var got runs
		handler := got.handle(func(info queue.Info) time.Duration {
			if info.Tenant == "slow" {
				return scale(20 * time.Second) // so long that few offers a second fill all places
			}
			return scale(5 * time.Millisecond)
		})
		var stop []func()
		for range 2 {
			stop = append(stop, runWorker(t, s.client, handler, queue.WorkerConfig{Concurrency: places, ShutdownTimeout: scale(time.Minute)}))
		}
		client, offered := newClient(t, s.client, "push"), make(map[string]time.Time)
		for i := range 15 * perSecond {
			if beside {
				_, err := client.Enqueue(t.Context(), queue.Job{Tenant: "slow", User: fmt.Sprint(i), Type: "push"})
				must(t, err)
			}
			id := fmt.Sprint("job-", i)
			offered[id] = time.Now()
			_, err := client.Enqueue(t.Context(), queue.Job{ID: fmt.Sprint(t.Name(), beside, limit, id), Tenant: "fast", User: fmt.Sprint(i), Type: "push"})
			must(t, err)
			<-time.After(scale(time.Second) / perSecond)
		}
		<-time.After(scale(5 * time.Second))
		var all []time.Duration
		got.mu.Lock()
		for i, info := range got.of {
			if info.Tenant == "fast" {
				_, id, _ := strings.Cut(info.ID, "job-")
				all = append(all, got.all[i].From.Sub(offered["job-"+id]))
			}
		}
		got.mu.Unlock()
		for len(all) < 15*perSecond {
			all = append(all, time.Hour) // it has not started yet
		}
		slices.Sort(all)
		for _, stop := range stop {
			stop()
		}
		must(t, s.client.FlushDB(t.Context()).Err())
		return all[len(all)*99/100]
	}
	onStages(t, func(t *testing.T, s stage) {
		pace, noise := 1, 2*time.Millisecond // for one a leader gathers what comes after a commit
		if !s.virtual {
			pace, noise = 10, 20*time.Millisecond
		}
		alone := waits(t, s, pace, false, queue.Concurrency{})
		most := alone*3/2 + noise
		limited := waits(t, s, pace, true, queue.Concurrency{Percent: 25})
		for again := 0; limited > most && !s.virtual && again < 2; again++ { // the machine may be late, too: three starts of 300 are enough
			limited = waits(t, s, pace, true, queue.Concurrency{Percent: 25})
		}
		starved := waits(t, s, pace, true, queue.Concurrency{})
		for again := 0; starved < time.Second/time.Duration(pace) && !s.virtual && again < 2; again++ { // a machine that is late fills the places later
			starved = waits(t, s, pace, true, queue.Concurrency{})
		}
		t.Logf("p99 from offer to start: %v alone, %v beside a slow tenant that is limited, %v beside one that is not", alone, limited, starved)
		if limited > most {
			t.Errorf("%v beside a slow tenant, %v alone", limited, alone)
		}
		if starved < time.Second/time.Duration(pace) {
			t.Errorf("%v without a limit: the test shows nothing", starved)
		}
	})
}

// Limits that change all the time leave no lane behind, and no place that counts for ever.
func TestConcurrencyThatChanges(t *testing.T) {
	t.Parallel()
	sample.Slow(t)
	onStages(t, func(t *testing.T, s stage) {
		const most = 6
		var got runs
		var lasts atomic.Int64
		lasts.Store(int64(s.unit / 4))
		for range 3 {
			runWorker(t, s.client, got.handle(func(queue.Info) time.Duration { return time.Duration(lasts.Load()) }), queue.WorkerConfig{Concurrency: 10})
		}
		random := func() (c queue.Concurrency) {
			if n := rand.IntN(3); n > 0 {
				c.Jobs = n * most / 2
			} else {
				c.Percent = 100 * most / 30
			}
			return c
		}
		change := func() {
			p := policies(queue.Policy{TenantConcurrency: random(), UserConcurrency: random()})
			p.Concurrency = random()
			setPolicies(t, s.client, p)
		}
		change()
		for user := range 10 {
			enqueue(t, s.client, jobs("school", fmt.Sprint(user), 30)...)
		}
		for stats(t, s.client).Done < 200 {
			change()
			<-time.After(s.unit)
		}
		s.eventually(t, "everything has run", drained(t, s.client))
		got.judge(t, "queue", most, ofQueue)

		// None of them counts still: as many run at once as ever.
		before := got.count()
		lasts.Store(int64(4 * s.unit)) // for a busy machine
		setPolicies(t, s.client, policies(queue.Policy{TenantConcurrency: queue.Concurrency{Jobs: most}}))
		enqueue(t, s.client, jobs("school", "last", 5*most)...)
		s.eventually(t, "the last ones have run", drained(t, s.client))
		after := runs{all: got.all[before:], of: got.of[before:]}
		after.judge(t, "the last ones", most, ofTenant)
	})
}

// A job that goes back into its lane has left its place: it starts again as soon as it may.
func TestAReturnedJobLeavesItsPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		client := redistest.Mini(t)
		setPolicies(t, client, policies(queue.Policy{UserConcurrency: queue.Concurrency{Jobs: 1}}))
		got := recorder{}
		got.then = func(context.Context, queue.Info) error {
			if got.count() == 1 {
				return queue.Pause{Scope: queue.ScopeUser, Until: time.Now().Add(time.Second)}
			}
			return nil
		}
		runWorker(t, client, &got, queue.WorkerConfig{})
		enqueue(t, client, jobs("school", "teacher", 1)...)
		time.Sleep(3 * time.Second)
		if n := got.count(); n != 2 {
			t.Errorf("%d starts three seconds after a pause of one, want 2", n)
		}
	})
}
