package outbox

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// A Lag is how far relays are behind.
type Lag struct {
	Waiting int64         // rows that wait
	Oldest  time.Duration // since the first of them was inserted, by the database's clock
	Refused int64         // rows in the table that are dropped, invalid or unknown
}

// Lag returns how far relays of a queue are behind. It counts rows in an index.
func (t Table) Lag(ctx context.Context, db *sql.DB, queueName string) (Lag, error) {
	if err := t.check(); err != nil {
		return Lag{}, err
	}
	var lag Lag
	var micros int64
	err := db.QueryRowContext(ctx, t.sql(`SELECT
		(SELECT COUNT(*) FROM {table} WHERE queue = ? AND state = 'waiting'),
		COALESCE((SELECT {now} - created_at FROM {table} WHERE queue = ? AND state = 'waiting' ORDER BY seq LIMIT 1), 0),
		(SELECT COUNT(*) FROM {table} WHERE queue = ? AND state IN ('dropped', 'invalid', 'unknown'))`),
		queueName, queueName, queueName).Scan(&lag.Waiting, &micros, &lag.Refused)
	if err != nil {
		return Lag{}, fmt.Errorf("outbox: reading table %s: %w", t.name(), err)
	}
	lag.Oldest = max(0, time.Duration(micros)*time.Microsecond)
	return lag, nil
}
