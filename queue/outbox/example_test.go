package outbox_test

import (
	"context"
	"database/sql"
	"log/slog"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// An order and its confirmation are one transaction. queue/outbox/databases has an example that runs, with SQLite.
func ExampleTable_Insert() {
	jobs := outbox.Table{Dialect: outbox.Postgres}
	save := func(ctx context.Context, db *sql.DB, order, customer string) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (id, customer) VALUES ($1, $2)", order, customer); err != nil {
			return err
		}
		job := queue.Job{ID: "confirm-" + order, Tenant: "shop-7", User: customer, Type: "confirmation"}
		if _, err := jobs.Insert(ctx, tx, "mail", job); err != nil {
			return err
		}
		return tx.Commit()
	}
	_ = save
}

// A relay runs beside a worker, in its program or in another.
func ExampleRelay() {
	run := func(ctx context.Context, db *sql.DB, rdb redis.UniversalClient) error {
		jobs := outbox.Table{Dialect: outbox.Postgres}
		if err := jobs.Create(ctx, db); err != nil { // or a migration, see Table.Schema
			return err
		}
		relay, err := outbox.NewRelay(db, jobs, rdb, outbox.RelayConfig{
			Queues:  []string{"mail"},
			Refused: func(r outbox.Refusal) { slog.Error("job refused", "id", r.ID, "state", r.State, "reason", r.Reason) },
		})
		if err != nil {
			return err
		}
		return relay.Run(ctx)
	}
	_ = run
}
