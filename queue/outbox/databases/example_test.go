package databases

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// A shop saves orders in SQLite. The confirmation of an order that is rolled back is never sent.
func Example() {
	if err := shop(); err != nil {
		fmt.Println(err)
	}
	// Unordered output:
	// saved order-1 for ann
	// rolled back order-2 for bob
	// saved order-3 for cleo
	// ann gets a confirmation of order-1
	// cleo gets a confirmation of order-3
}

func shop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "shop-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "shop.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)")
	if err != nil {
		return err
	}
	defer db.Close()
	server, err := miniredis.Run() // your Redis
	if err != nil {
		return err
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()

	jobs := outbox.Table{Dialect: outbox.SQLite}
	if err := jobs.Create(ctx, db); err != nil {
		return err
	}
	if _, err := db.ExecContext(ctx, "CREATE TABLE orders (id TEXT PRIMARY KEY, customer TEXT NOT NULL)"); err != nil {
		return err
	}
	for i, customer := range []string{"ann", "bob", "cleo"} {
		if err := saveOrder(ctx, db, jobs, fmt.Sprint("order-", i+1), customer); err != nil {
			return err
		}
	}
	return confirm(ctx, db, jobs, rdb)
}

// saveOrder saves an order and its confirmation, or, for bob, neither.
func saveOrder(ctx context.Context, db *sql.DB, jobs outbox.Table, order, customer string) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after a commit
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES (?, ?)", order, customer); err != nil {
		return err
	}
	job := queue.Job{ID: "confirm-" + order, Tenant: "shop-7", User: customer, Type: "confirmation", Payload: []byte(order)}
	if _, err := jobs.Insert(ctx, tx, "mail", job); err != nil {
		return err
	}
	if customer == "bob" { // who cannot pay
		fmt.Println("rolled back", order, "for", customer)
		return nil
	}
	fmt.Println("saved", order, "for", customer)
	return tx.Commit()
}

// confirm runs a relay and a worker until two confirmations are sent.
func confirm(ctx context.Context, db *sql.DB, jobs outbox.Table, rdb redis.UniversalClient) error {
	quiet := slog.New(slog.DiscardHandler)
	relay, err := outbox.NewRelay(db, jobs, rdb, outbox.RelayConfig{Queues: []string{"mail"}, Logger: quiet})
	if err != nil {
		return err
	}
	worker, err := queue.NewWorker(rdb, queue.WorkerConfig{Queues: []string{"mail"}, Concurrency: 1, Logger: quiet})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	sent := 0
	err = worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		info, _ := queue.FromContext(ctx)
		fmt.Printf("%s gets a confirmation of %s\n", info.User, task.Payload())
		if sent++; sent == 2 {
			stop()
		}
		return nil
	}))
	stop()
	if failed := <-done; failed != nil {
		return failed
	}
	return err
}
