// Command adopt is an asynq service that moves over to waterclock, as docs/migrate-from-asynq.md
// tells. Its tests take each step of that page, either way, and the way back.
//
//	tasks.go     what the service enqueues: single mails, unique ones, a schedule
//	handlers.go  the mux, its middleware, and results; the same before and after
//	before.go    servers of asynq run them
//	after.go     a worker runs them, under limits
//
//	go run ./examples/adopt server      # before
//	go run ./examples/adopt worker      # after
//	go run ./examples/adopt produce     # enqueues a mail, before and after
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/redis/go-redis/v9"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:6379"})
	defer rdb.Close()
	s := service{rdb: rdb, sent: func(m mail) { fmt.Println("sent", m) }}
	if err := s.run(ctx, os.Args[1:]); err != nil {
		log.Fatal(err)
	}
}

func (s service) run(ctx context.Context, args []string) error {
	if len(args) == 1 {
		switch args[0] {
		case "server":
			return s.runServer(ctx)
		case "worker":
			return s.runWorker(ctx)
		case "produce":
			return s.enqueue(ctx, mail{ID: "1", School: "oak", Parent: "ann", Text: "Welcome"})
		}
	}
	return fmt.Errorf("adopt %q: want server, worker or produce", args)
}
