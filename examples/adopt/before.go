package main

import (
	"context"

	"github.com/hibiken/asynq"
)

// server returns a server as the service has several of.
func (s service) server() *asynq.Server {
	return asynq.NewServerFromRedisClient(s.rdb, asynq.Config{
		Queues: map[string]int{queueName: 1}, Concurrency: 10, LogLevel: asynq.WarnLevel,
	})
}

func (s service) runServer(ctx context.Context) error {
	server := s.server()
	if err := server.Start(s.mux()); err != nil {
		return err
	}
	<-ctx.Done()
	server.Shutdown()
	return nil
}
