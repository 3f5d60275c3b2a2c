package main

import (
	"context"
	"encoding/json"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// keyOf says whose job a task is: the tenant is the school, the user the parent.
func keyOf(t *asynq.Task) (tenant, user string, err error) {
	var m mail
	err = json.Unmarshal(t.Payload(), &m)
	return m.School, m.Parent, err
}

func (s service) runWorker(ctx context.Context) error {
	worker, err := queue.NewWorker(s.rdb, queue.WorkerConfig{
		Queues: []string{queueName}, Concurrency: 20, Inbox: true,
		InboxKey: keyOf,
	})
	if err != nil {
		return err
	}
	return worker.Run(ctx, s.mux())
}
