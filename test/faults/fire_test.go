package faults

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/internal/sample"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

// The queue under fire: so many jobs of so many tenants, so many a second, of which one in
// badOneIn is malformed.
const (
	fireTenants = 50
	fireUsers   = 10
	fireRate    = 2000
	badOneIn    = 100
)

// A fire is one run of the queue.
type fire struct {
	t       *testing.T
	client  *redis.Client
	forger  *forger
	dir     string // of the commands
	rng     *rand.Rand
	workers []string // their names

	mu       sync.Mutex
	ran      map[string]int // by ID, or "tenant user" for one that is bad
	waits    []time.Duration
	archived int             // tasks that are to be archived
	lanes    map[string]bool // "tenant user" of bad jobs that are in their lanes
}

// TestUnderFire lets a queue work with jobs that are malformed in every way, and without.
// Each of the others starts once and as soon, and of each bad one it is told what became.
func TestUnderFire(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	jobs := int(setting(t, "WATERCLOCK_FIRE_JOBS", int64(sample.Size(0, 6000, 20_000))))
	dir := commands(t)
	const tries = 3 // the machine may be busy with something else
	for try := 1; ; try++ {
		calm, hot := burn(t, dir, jobs, false), burn(t, dir, jobs, true)
		t.Logf("p99 %v without bad jobs, %v with them", calm, hot)
		if hot <= 2*max(calm, 10*time.Millisecond) {
			return
		}
		if try == tries {
			t.Fatal("bad jobs delay the others")
		}
	}
}

// burn runs the queue once and returns the 99th percentile of how long good jobs waited.
func burn(t *testing.T, dir string, jobs int, bad bool) time.Duration {
	client := redistest.Start(t).Client(t)
	f := &fire{t: t, client: client, dir: dir, rng: rand.New(rand.NewPCG(7, 7)), ran: make(map[string]int), lanes: make(map[string]bool)}
	f.forger = newForger(t, client)
	err := newInspector(t, client, queueName).SetPolicies(t.Context(), queue.Policies{
		Default: "p", Policies: map[string]queue.Policy{"p": {
			Tenant: []throttle.Rule{throttle.Leak(100, time.Second)}, User: []throttle.Rule{throttle.Window(100, time.Second)},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := f.work()
	defer stop()
	var spoiling sync.WaitGroup
	if bad {
		spoiling.Go(func() { f.spoil(jobs / badOneIn) })
	}
	f.offer(jobs)
	spoiling.Wait()
	f.account(jobs)
	slices.Sort(f.waits)
	return f.waits[len(f.waits)*99/100]
}

// work lets two workers run, one of them with an inbox.
func (f *fire) work() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for _, inbox := range []bool{true, false} {
		worker, err := queue.NewWorker(f.client, queue.WorkerConfig{Queues: []string{queueName}, Inbox: inbox, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			f.t.Fatal(err)
		}
		running.Go(func() {
			if err := worker.Run(ctx, asynq.HandlerFunc(f.handle)); err != nil {
				f.t.Error(err)
			}
		})
	}
	redistest.Eventually(f.t, 10*time.Second, "both work", func() bool {
		f.workers = f.client.ZRange(ctx, "wc:{push}:workers", 0, -1).Val()
		return len(f.workers) == 2
	})
	return func() { cancel(); running.Wait() }
}

func (f *fire) handle(ctx context.Context, _ *asynq.Task) error {
	now := time.Now()
	info, _ := queue.FromContext(ctx)
	f.mu.Lock()
	defer f.mu.Unlock()
	if lane := info.Tenant + " " + info.User; strings.HasPrefix(info.User, "bad") {
		f.ran[lane]++
		return nil
	}
	f.ran[info.ID]++
	f.waits = append(f.waits, now.Sub(info.Offered))
	return nil
}

// offer offers good jobs, evenly.
func (f *fire) offer(jobs int) {
	const every = 10 * time.Millisecond
	client := newClient(f.t, f.client, queueName)
	tick := time.NewTicker(every)
	defer tick.Stop()
	for n := 0; n < jobs; {
		<-tick.C
		var batch []queue.Job
		for range min(fireRate*int(every/time.Millisecond)/1000, jobs-n) {
			batch = append(batch, queue.Job{
				ID: "good-" + strconv.Itoa(n), Type: "push", Tenant: fmt.Sprint("t", n%fireTenants), User: fmt.Sprint("u", n/fireTenants%fireUsers),
			})
			n++
		}
		receipts, err := client.Enqueue(f.t.Context(), batch...)
		if err != nil {
			f.t.Errorf("offering good jobs: %v", err)
		}
		for _, r := range receipts {
			if r.Status != queue.Accepted {
				f.t.Errorf("a good job: %+v", r)
			}
		}
	}
}

// spoil makes bad jobs of every kind in turn, evenly.
func (f *fire) spoil(count int) {
	tick := time.NewTicker(time.Second * badOneIn / fireRate)
	defer tick.Stop()
	ways := spoilers()
	for n := range count {
		<-tick.C
		ways[n%len(ways)](f, n)
	}
}

// account checks what became of every job.
func (f *fire) account(jobs int) {
	t, ctx := f.t, f.t.Context()
	inspector, tasks := newInspector(t, f.client, queueName), asynq.NewInspectorFromRedisClient(f.client)
	redistest.Eventually(t, time.Minute, "all has ended", func() bool {
		stats, err := inspector.Stats(ctx)
		f.mu.Lock()
		defer f.mu.Unlock()
		return err == nil && stats.Running == 0 && stats.Waiting == 0 && stats.Later == 0 && len(f.waits) >= jobs
	})
	if f.archived > 0 {
		redistest.Eventually(t, time.Minute, "bad tasks are archived", func() bool {
			info, err := tasks.GetQueueInfo(queueName)
			return err == nil && info.Archived == f.archived && info.Size == f.archived
		})
		archived, err := tasks.ListArchivedTasks(queueName, asynq.PageSize(f.archived))
		for _, task := range archived {
			if task.LastErr == "" {
				t.Errorf("task %s is archived without a reason", task.ID)
			}
		}
		if err != nil || len(archived) != f.archived {
			t.Errorf("%d tasks are archived, %v, want %d", len(archived), err, f.archived)
		}
	}
	for n := range jobs {
		if id := "good-" + strconv.Itoa(n); f.ran[id] != 1 {
			t.Errorf("%s ran %d times", id, f.ran[id])
		}
	}
	f.accountBad(inspector)
}

// accountBad checks that each bad job in a lane ran, was dropped or is dead, with a reason.
func (f *fire) accountBad(inspector *queue.Inspector) {
	t, ctx := f.t, f.t.Context()
	became := make(map[string]string)
	drops, err := inspector.Drops(ctx, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range drops {
		became[d.Tenant+" "+d.User] += " dropped: " + string(d.Reason)
	}
	dead, err := inspector.Dead(ctx, "", 100_000)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dead {
		if d.Error == "" {
			t.Errorf("%s is dead for no reason", d.User)
		}
		became[d.Tenant+" "+d.User] += " dead: " + d.Error
	}
	kinds := make(map[string]int)
	for lane := range f.lanes {
		if f.ran[lane] > 0 {
			became[lane] += " ran"
		}
		if became[lane] == "" || f.ran[lane] > 1 {
			t.Errorf("nobody knows what became of the job of %s: it ran %d times", lane, f.ran[lane])
		}
		kinds[became[lane]]++
	}
	for what, count := range kinds {
		t.Logf("%4d bad jobs%s", count, what)
	}
}
