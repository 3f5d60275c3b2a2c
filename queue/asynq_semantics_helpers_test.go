package queue_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// A way is how an asynq service runs its handlers with waterclock: behind the inbox, or in its
// fleet behind Forward.
type way struct {
	s     stage
	fleet bool
}

// settings are what a service has in its [asynq.Config], and what it gives to Forward.
type settings struct {
	errors    asynq.ErrorHandler
	isFailure func(error) bool
	base      context.Context
	aggregate func(group string, tasks []*asynq.Task) *asynq.Task
	forward   []asynq.Option
}

const fleetQueue = "fleet"

// serve runs the service until the test ends or the returned function is called.
func (w way) serve(t *testing.T, h asynq.Handler, c settings) (stop func()) {
	t.Helper()
	if c.base == nil {
		c.base = context.Background()
	}
	cfg := queue.WorkerConfig{Queues: []string{"push"}, Inbox: true}
	stopFleet := func() {}
	if w.fleet {
		stopFleet = w.serveFleet(t, h, c)
		h = queue.Forward(asynq.NewClientFromRedisClient(w.s.client), fleetQueue, c.forward...)
		c.base = context.Background()
	} else {
		cfg.ErrorHandler, cfg.IsFailure = c.errors, c.isFailure
		cfg.RetryDelay = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}
	worker, err := queue.NewWorker(w.s.client, cfg)
	must(t, err)
	ctx, cancel := context.WithCancel(c.base)
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, h) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(t, <-done)
		stopFleet()
	})
	t.Cleanup(stop)
	return stop
}

func (w way) serveFleet(t *testing.T, h asynq.Handler, c settings) (stop func()) {
	t.Helper()
	cfg := asynq.Config{
		Queues: map[string]int{fleetQueue: 1}, Concurrency: 10, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 50 * time.Millisecond, DelayedTaskCheckInterval: 100 * time.Millisecond,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Second },
		ErrorHandler:   c.errors, IsFailure: c.isFailure,
		BaseContext: func() context.Context { return c.base },
	}
	if c.aggregate != nil {
		cfg.GroupAggregator, cfg.GroupGracePeriod = asynq.GroupAggregatorFunc(c.aggregate), time.Second
	}
	server := asynq.NewServerFromRedisClient(w.s.client, cfg)
	must(t, server.Start(h))
	return server.Shutdown
}

// enqueue enqueues a task as the producer of the service does.
func (w way) enqueue(payload string, options ...asynq.Option) error {
	task := asynq.NewTaskWithHeaders("push", []byte(payload), queue.Headers("school", "teacher"))
	_, err := asynq.NewClientFromRedisClient(w.s.client).Enqueue(task, append(options, asynq.Queue("push"))...)
	return err
}

// holdsIf is a verdict.
func holdsIf(yes bool) string { return map[bool]string{true: "yes", false: "no"}[yes] }

// options holds for each row of the table in docs/migrate-from-asynq.md how to find out: yes if
// a service sees what it sees of asynq alone, partly with a difference, and no.
func options() map[string]func(t *testing.T, w way) string {
	return map[string]func(t *testing.T, w way) string{
		"Unique": uniqueHolds, "TaskID": taskIDHolds, "MaxRetry": maxRetryHolds, "Timeout": timeoutHolds,
		"Deadline": deadlineHolds, "ProcessAt": processAtHolds, "Retention": retentionHolds, "results": resultsHold,
		"Group": groupHolds, "periodic tasks": periodicTasksHold, "mux": muxHolds, "middleware": middlewareHolds,
		"a server's shutdown": shutdownHolds, "ErrorHandler": errorHandlerHolds, "IsFailure": isFailureHolds, "BaseContext": baseContextHolds,
	}
}
