package outbox

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"time"
)

// behind is the age of the oldest row from which on a relay says that it is behind.
const behind = time.Minute

const upkeepEvery = time.Minute

// keep looks after the table until ctx ends.
func (f *feed) keep(ctx context.Context) {
	for {
		f.upkeep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-time.After(upkeepEvery):
		}
	}
}

// upkeep says how far the relay is behind, deletes rows that were kept long enough, and warns of queues that no relay serves.
// What fails is tried again the next time; that the database cannot be reached, rounds say.
func (f *feed) upkeep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if lag, err := f.table.Lag(ctx, f.db, f.queue); err == nil && lag.Oldest >= behind {
		f.log.Warn("the outbox is behind", "rows", lag.Waiting, "oldest", lag.Oldest.Round(time.Second))
	}
	for _, state := range []State{Accepted, Dropped, Invalid, Unknown} {
		keep := f.config.KeepRefused
		if state == Accepted {
			keep = f.config.KeepAccepted
		}
		for keep > 0 {
			if more, err := f.forget(ctx, state, keep); err != nil || !more {
				break
			}
		}
	}
	if f == f.feeds[0] {
		_ = f.findStrays(ctx)
	}
}

// someRows is how many rows are deleted in one statement.
const someRows = 1000

// forget deletes some of the first rows of a state that ended so long ago, and reports whether there are likely more.
func (f *feed) forget(ctx context.Context, state State, keep time.Duration) (more bool, err error) {
	numbers, err := f.ended(ctx, state, keep)
	if err != nil || len(numbers) == 0 {
		return false, err
	}
	list, args := in(numbers)
	_, err = f.db.ExecContext(ctx, f.table.sql("DELETE FROM {table} WHERE seq IN "+list+" AND state = ?"), append(args, string(state))...)
	return len(numbers) == someRows, err
}

// ended returns which of the first rows of a state ended so long ago.
func (f *feed) ended(ctx context.Context, state State, keep time.Duration) (numbers []int64, err error) {
	rows, err := f.db.QueryContext(ctx, f.table.sql("SELECT seq, {now} - ended_at FROM {table} WHERE queue = ? AND state = ? ORDER BY seq LIMIT "+strconv.Itoa(someRows)),
		f.queue, string(state))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var seq int64
		var age sql.NullInt64 // none if somebody else has set the state
		if err := rows.Scan(&seq, &age); err != nil {
			return nil, err
		}
		if time.Duration(age.Int64)*time.Microsecond > keep {
			numbers = append(numbers, seq)
		}
	}
	return numbers, rows.Err()
}

// findStrays warns, once, of each queue whose rows wait and that no relay has ever served: its name may be misspelt.
func (r *Relay) findStrays(ctx context.Context) error {
	for name := ""; ; {
		var next sql.NullString
		if err := r.db.QueryRowContext(ctx, r.table.sql("SELECT MIN(queue) FROM {table} WHERE queue > ?"), name).Scan(&next); err != nil || !next.Valid {
			return err
		}
		name = next.String
		if slices.Contains(r.config.Queues, name) || r.strays[name] {
			continue
		}
		var served int
		if err := r.db.QueryRowContext(ctx, r.table.sql("SELECT COUNT(*) FROM {table}_relay WHERE queue = ?"), name).Scan(&served); err != nil {
			return err
		}
		if lag, err := r.table.Lag(ctx, r.db, name); err == nil && served == 0 && lag.Waiting > 0 {
			r.strays[name] = true
			r.config.Logger.Warn("rows of the outbox wait for a queue that no relay serves", "queue", name, "rows", lag.Waiting, "table", r.table.name())
		}
	}
}
