package main

import (
	"context"
	"encoding/json"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// jobOf says whose job a task is: the tenant is the school, the user the parent.
func jobOf(t *asynq.Task) (queue.Job, error) {
	var m mail
	err := json.Unmarshal(t.Payload(), &m)
	return queue.Job{Tenant: m.School, User: m.Parent}, err
}

func (s service) runWorker(ctx context.Context) error {
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{
		Queues: []string{queueName}, Concurrency: 20, Inbox: true,
		InboxJob: jobOf,
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx, s.mux())
}
