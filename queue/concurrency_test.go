package queue_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

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
		var got runs
		for range 2 {
			runWorker(t, s.client, got.handle(lasting(s.unit/4)), queue.WorkerConfig{Concurrency: 8})
		}
		s.eventually(t, "all have run", func() bool { return got.count() == 4*20*(1+2+3) && drained(t, s.client)() })
		got.judge(t, "queue", 8, ofQueue)
		got.judge(t, "tenant", 4, ofTenant)
		got.judge(t, "user", 2, ofUser)
	})
}

// A user whose jobs go one at a time does not wait longer than the job: its end is told at
// once, by whichever worker had it.
func TestOneAtATime(t *testing.T) {
	onStages(t, func(t *testing.T, s stage) {
		setPolicies(t, s.client, policies(queue.Policy{UserConcurrency: queue.Concurrency{Jobs: 1}}))
		const count = 300
		enqueue(t, s.client, jobs("school", "teacher", count)...)
		var got runs
		for range 3 {
			runWorker(t, s.client, got.handle(lasting(10*time.Millisecond)), queue.WorkerConfig{Concurrency: 2})
		}
		begin := time.Now()
		s.eventually(t, "all have run", func() bool { return got.count() == count && drained(t, s.client)() })
		got.judge(t, "user", 1, ofUser)
		log := got.all
		if rate := count / log[count-1].From.Sub(log[0].From).Seconds(); rate < 75 {
			t.Errorf("%.0f starts a second, want 75", rate)
		} else {
			t.Logf("%.0f a second in %v", rate, time.Since(begin))
		}
	})
}
