package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/watch"
)

// queueName is the queue of all scenarios, of waterclock and of asynq.
const queueName = "bench"

// places is how many handlers each contender may run at once, over all its workers.
const places = 100

// A contender carries jobs from an offer to an [asynq.Handler], which is the same for
// all.
type contender struct {
	name      string
	producers int // goroutines that offer best
	batch     int // jobs in one offer
	prepare   func(ctx context.Context) error
	offer     func(ctx context.Context, jobs []job) error
	serve     func(ctx context.Context, h asynq.Handler) (stop func() error, err error)
}

// A job is what all contenders carry.
type job struct {
	tenant, user string
	payload      []byte
}

// payloadSize is that of a short notification.
const payloadSize = 120

// newJobs returns jobs in lanes of that length: the users of the tenants take turns, as
// if all had been busy at the same time. The payload begins with tenant and user, for
// handlers that know nothing else.
func newJobs(n, tenants, perLane int) []job {
	lanes := (n + perLane - 1) / perLane
	return someJobs(0, n, func(i int) job { return laneJob(i%lanes, tenants) })
}

// laneJob returns a job of one of the lanes that so many tenants share.
func laneJob(lane, tenants int) job {
	return newJob(fmt.Sprint("tenant-", lane%tenants), fmt.Sprint("user-", lane/tenants))
}

func newJob(tenant, user string) job {
	payload := tenant + " " + user + " "
	return job{tenant, user, []byte(payload + strings.Repeat(".", max(0, payloadSize-len(payload))))}
}

// clientOf returns a client of a queue.
func clientOf(rdb redis.UniversalClient, name string) *queue.Client {
	client, err := queue.NewClient(rdb, name)
	if err != nil {
		panic(err) // names are constants
	}
	return client
}

// inspectorOf returns an inspector of a queue.
func inspectorOf(rdb redis.UniversalClient, name string) *watch.Watcher {
	inspector, err := watch.New(rdb, name)
	if err != nil {
		panic(err) // names are constants
	}
	return inspector
}

// waterclockOn returns waterclock with that many workers, which reach Redis at the
// address.
func (b *bench) waterclockOn(addr string, workers int, policies queue.Policies) contender {
	c := b.waterclockIn(queueName, policies)
	c.name = fmt.Sprintf("waterclock, %s", plural(workers, "worker"))
	c.serve = func(ctx context.Context, h asynq.Handler) (func() error, error) {
		return b.startWorkers(ctx, fleetOn(addr, workers), h)
	}
	return c
}

// waterclockIn returns waterclock in a queue of that name, which nobody drains.
func (b *bench) waterclockIn(name string, policies queue.Policies) contender {
	client, inspector := clientOf(b.client, name), inspectorOf(b.client, name)
	return contender{
		producers: 4, batch: 100,
		prepare: func(ctx context.Context) error {
			return inspector.SetPolicies(ctx, policies)
		},
		offer: func(ctx context.Context, jobs []job) error {
			offered := make([]queue.Job, len(jobs))
			for i, j := range jobs {
				offered[i] = queue.Job{Tenant: j.tenant, User: j.user, Type: "push", Payload: j.payload}
			}
			receipts, err := client.Enqueue(ctx, offered...)
			for _, r := range receipts {
				if r.Status != queue.Accepted {
					err = errors.Join(err, fmt.Errorf("a job was %s: %s", r.Status, r.Reason))
				}
			}
			return err
		},
	}
}

// A fleet is workers, or servers, that reach Redis at the address.
type fleet struct {
	addr        string
	size        int
	concurrency int // of each
}

// fleetOn is a fleet that shares the places.
func fleetOn(addr string, size int) fleet { return fleet{addr, size, max(1, places/size)} }

// startWorkers starts workers of waterclock, each with connections of its own.
func (b *bench) startWorkers(ctx context.Context, f fleet, h asynq.Handler) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var group errgroup.Group
	var clients []*redis.Client
	stop = sync.OnceValue(func() error {
		cancel()
		err := group.Wait()
		for _, c := range clients {
			c.Close()
		}
		return err
	})
	for range f.size {
		client := redis.NewClient(&redis.Options{Addr: f.addr})
		clients = append(clients, client)
		worker, err := queue.NewWorker(client, queue.WorkerConfig{
			Queues: []string{queueName}, Concurrency: f.concurrency, Logger: b.logger(),
		})
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		group.Go(func() error { return worker.Run(ctx, h) })
	}
	return stop, nil
}

// logger is silent without --verbose: some scenarios are full of trouble.
func (b *bench) logger() *slog.Logger {
	if !b.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// asynqOn returns asynq with that many servers, at the intervals that suit it best.
func (b *bench) asynqOn(addr string, servers int) contender {
	client := asynq.NewClientFromRedisClient(b.client)
	return contender{
		name:      fmt.Sprintf("asynq, %s", plural(servers, "server")),
		producers: 16, batch: 1,
		prepare: func(context.Context) error { return nil },
		offer: func(ctx context.Context, jobs []job) error {
			for _, j := range jobs {
				if _, err := client.EnqueueContext(ctx, asynq.NewTask("push", j.payload), asynq.Queue(queueName)); err != nil {
					return err
				}
			}
			return nil
		},
		serve: func(_ context.Context, h asynq.Handler) (func() error, error) {
			return b.startServers(fleetOn(addr, servers), asynq.Config{}, h)
		},
	}
}

// startServers starts servers of asynq, each with connections of its own.
func (b *bench) startServers(f fleet, cfg asynq.Config, h asynq.Handler) (stop func() error, err error) {
	cfg.Concurrency = f.concurrency
	cfg.Queues = map[string]int{queueName: 1}
	cfg.TaskCheckInterval = 10 * time.Millisecond
	cfg.DelayedTaskCheckInterval = 100 * time.Millisecond
	if cfg.RetryDelayFunc == nil {
		cfg.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}
	cfg.LogLevel = asynq.FatalLevel
	if b.verbose {
		cfg.LogLevel = asynq.DebugLevel
	}
	var servers []*asynq.Server
	stop = sync.OnceValue(func() error {
		var group sync.WaitGroup
		for _, s := range servers {
			group.Go(s.Shutdown)
		}
		group.Wait()
		return nil
	})
	for range f.size {
		s := asynq.NewServer(asynq.RedisClientOpt{Addr: f.addr}, cfg)
		if err := s.Start(h); err != nil {
			return nil, errors.Join(fmt.Errorf("starting an asynq server: %w", err), stop())
		}
		servers = append(servers, s)
	}
	return stop, nil
}

// offerAll offers all jobs as fast as the contender takes them.
func (c contender) offerAll(ctx context.Context, jobs []job) error {
	return c.offerEach(ctx, len(jobs), func(i int) job { return jobs[i] })
}

// offerEach is offerAll for jobs that are made when they are offered: a million of them
// would keep the garbage collector busy while something is timed.
func (c contender) offerEach(ctx context.Context, n int, at func(i int) job) error {
	group, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range c.producers {
		group.Go(func() error {
			for {
				from := int(next.Add(int64(c.batch))) - c.batch
				if from >= n {
					return nil
				}
				if err := c.offer(ctx, someJobs(from, min(from+c.batch, n), at)); err != nil {
					return fmt.Errorf("offering: %w", err)
				}
			}
		})
	}
	return group.Wait()
}

func someJobs(from, to int, at func(i int) job) (some []job) {
	for i := from; i < to; i++ {
		some = append(some, at(i))
	}
	return some
}

// A tally is a handler that counts, and tells when it has counted them all.
type tally struct {
	want    int64
	handled atomic.Int64
	all     chan struct{}
}

func newTally(want int) *tally { return &tally{want: int64(want), all: make(chan struct{})} }

func (t *tally) ProcessTask(context.Context, *asynq.Task) error {
	if t.handled.Add(1) == t.want {
		close(t.all)
	}
	return nil
}

// wait returns when all jobs were handled.
func (t *tally) wait(ctx context.Context) error {
	select {
	case <-t.all:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%d of %d jobs were handled: %w", t.handled.Load(), t.want, context.Cause(ctx))
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
