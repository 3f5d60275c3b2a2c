package main

import (
	"context"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/throttle"
)

const (
	exactRate    = 5_000 // starts a second
	exactTenants = 50
)

// runExactness compares each start with the slot that was given to it, at 5,000 starts a
// second, and the same of tasks that asynq is asked to process at such instants. Redis's
// clock is this machine's, so the handler's own look at it is an independent one.
func runExactness(ctx context.Context, b *bench) error {
	seconds := b.size(10, 3)
	ours, theirs := b.newPunctuality("waterclock"), b.newPunctuality("asynq, ProcessAt")
	var ourLast, theirLast []float64
	for range b.rounds {
		var err error
		if ourLast, err = b.startAtSlots(ctx, seconds); err != nil {
			return fmt.Errorf("waterclock: %w", err)
		}
		ours.add(ourLast)
		if theirLast, err = b.startAtInstants(ctx, seconds); err != nil {
			return fmt.Errorf("asynq: %w", err)
		}
		theirs.add(theirLast)
		b.note("p99: waterclock %s ms, asynq %s ms", figure(quantile(ourLast, 0.99)), figure(quantile(theirLast, 0.99)))
	}
	ours.p99.wantAtMost(2)
	ours.early.wantAtMost(0)
	return nil
}

// Punctuality is how far from their slots the starts were.
type punctuality struct {
	least, p50, p99, p999, early *row
}

func (b *bench) newPunctuality(name string) *punctuality {
	return &punctuality{
		least: b.row(name+", start − slot, least", "ms"),
		p50:   b.row(name+", start − slot, p50", "ms"),
		p99:   b.row(name+", start − slot, p99", "ms"),
		p999:  b.row(name+", start − slot, p99.9", "ms"),
		early: b.row(name+", started before the slot", "%"),
	}
}

// add adds a round's times, which are sorted.
func (p *punctuality) add(late []float64) {
	early := 0
	for early < len(late) && late[early] < 0 {
		early++
	}
	p.least.add(late[0])
	p.p50.add(quantile(late, 0.5))
	p.p99.add(quantile(late, 0.99))
	p.p999.add(quantile(late, 0.999))
	p.early.add(100 * float64(early) / float64(len(late)))
}

// startAtSlots lets waterclock drain a backlog that lasts so many seconds. The tenants'
// leaks differ, or all of them would start jobs at the same instants.
func (b *bench) startAtSlots(ctx context.Context, seconds int) ([]float64, error) {
	policies := queue.Policies{Policies: map[string]queue.Policy{}, Tenants: map[string]string{}}
	var jobs []job
	for i := range exactTenants {
		inTwoSeconds := 2*exactRate/exactTenants - exactTenants + 1 + 2*i
		tenant := fmt.Sprint("tenant-", i)
		policies.Tenants[tenant] = tenant
		policies.Policies[tenant] = queue.Policy{
			Tenant: []throttle.Rule{throttle.Leak(inTwoSeconds, 2*time.Second)},
			User:   []throttle.Rule{throttle.Window(perLane, time.Minute), throttle.Spacing(time.Millisecond)},
		}
		n := inTwoSeconds * seconds / 2
		for k := range n {
			jobs = append(jobs, newJob(tenant, fmt.Sprint("user-", k%max(1, n/perLane+1))))
		}
	}
	c := b.waterclockOn(b.addr, 2, policies)
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	if err := c.prepare(ctx); err != nil {
		return nil, err
	}
	if err := c.offerAll(ctx, jobs); err != nil {
		return nil, err
	}
	var late samples
	done := newTally(len(jobs))
	stop, err := b.startWorkers(ctx, fleet{b.addr, 2, 2 * places}, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		now := time.Now()
		info, _ := queue.FromContext(ctx)
		late.add(now.Sub(info.Slot))
		return done.ProcessTask(ctx, t)
	}))
	if err != nil {
		return nil, err
	}
	defer stop()
	return waitAll(ctx, done, &late, seconds)
}

// startAtInstants asks asynq to process tasks at evenly spaced instants.
func (b *bench) startAtInstants(ctx context.Context, seconds int) ([]float64, error) {
	if err := b.empty(ctx); err != nil {
		return nil, err
	}
	c, client := b.asynqOn(b.addr, 4), asynq.NewClientFromRedisClient(b.client)
	jobs := make([]job, exactRate*seconds)
	// Time enough to have enqueued them all by then.
	first := time.Now().Add(2*time.Second + time.Duration(seconds)*time.Second/2)
	for i := range jobs {
		at := first.Add(time.Duration(i) * time.Second / exactRate)
		jobs[i].payload = stamp(at)
	}
	c.offer = func(ctx context.Context, jobs []job) error {
		for _, j := range jobs {
			task := asynq.NewTask("push", j.payload)
			if _, err := client.EnqueueContext(ctx, task, asynq.Queue(queueName), asynq.ProcessAt(instant(j.payload))); err != nil {
				return err
			}
		}
		return nil
	}
	if err := c.offerAll(ctx, jobs); err != nil {
		return nil, err
	}
	var late samples
	done := newTally(len(jobs))
	stop, err := c.serve(ctx, asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		late.add(time.Since(instant(t.Payload())))
		return done.ProcessTask(ctx, t)
	}))
	if err != nil {
		return nil, err
	}
	defer stop()
	return waitAll(ctx, done, &late, seconds)
}

// waitAll returns the times, sorted, when all jobs have started.
func waitAll(ctx context.Context, done *tally, late *samples, seconds int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+time.Minute)
	defer cancel()
	if err := done.wait(ctx); err != nil {
		return nil, err
	}
	return late.sorted(), nil
}
