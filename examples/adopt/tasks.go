package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// queueName is the asynq queue of the service, and the waterclock queue of the same name.
const queueName = "mail"

// The types of tasks.
const (
	typeMail   = "mail:single"
	typeDigest = "mail:digest"
)

// mail is the payload of a task.
type mail struct {
	ID, School, Parent, Text string
}

// service is the program.
type service struct {
	rdb  redis.UniversalClient
	sent func(mail) // stands for the provider
}

func task(kind string, m mail) *asynq.Task {
	payload, err := json.Marshal(m)
	if err != nil {
		panic(err) // four strings
	}
	return asynq.NewTask(kind, payload)
}

// enqueue enqueues one mail, as the service has always done. Its result is kept for an hour.
func (s service) enqueue(ctx context.Context, m mail, options ...asynq.Option) error {
	options = append([]asynq.Option{asynq.Queue(queueName), asynq.Retention(time.Hour), asynq.Timeout(time.Minute)}, options...)
	_, err := asynq.NewClientFromRedisClient(s.rdb).EnqueueContext(ctx, task(typeMail, m), options...)
	return err
}

// remind enqueues a mail of which one is enough: asynq.ErrDuplicateTask while another waits.
func (s service) remind(ctx context.Context, m mail) error {
	return s.enqueue(ctx, m, asynq.Unique(time.Hour), asynq.Retention(0))
}

// schedule returns a scheduler that sends a school its digest again and again.
func (s service) schedule(every string, m mail, enqueued func(*asynq.TaskInfo, error)) (*asynq.Scheduler, error) {
	scheduler := asynq.NewSchedulerFromRedisClient(s.rdb, &asynq.SchedulerOpts{
		PostEnqueueFunc: enqueued, LogLevel: asynq.ErrorLevel,
	})
	_, err := scheduler.Register(every, task(typeDigest, m), asynq.Queue(queueName))
	return scheduler, err
}
