package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/hibiken/asynq"

	"github.com/waterclock/waterclock/queue"
)

// mux is what servers and workers run.
func (s service) mux() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.Use(s.counted)
	mux.HandleFunc(typeMail, s.send)
	mux.HandleFunc(typeDigest, s.send)
	return mux
}

// counted is middleware: it counts what was sent, by type.
func (s service) counted(next asynq.Handler) asynq.Handler {
	return asynq.HandlerFunc(func(ctx context.Context, t *asynq.Task) error {
		err := next.ProcessTask(ctx, t)
		if err == nil {
			s.rdb.HIncrBy(ctx, "mail:count", t.Type(), 1)
		}
		return err
	})
}

func (s service) send(ctx context.Context, t *asynq.Task) error {
	var m mail
	if err := json.Unmarshal(t.Payload(), &m); err != nil {
		return fmt.Errorf("%w: %w", err, asynq.SkipRetry)
	}
	s.sent(m)
	return queue.WriteResult(ctx, t, []byte("sent at "+time.Now().Format(time.RFC3339)))
}
