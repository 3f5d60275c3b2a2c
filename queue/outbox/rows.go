package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue"
)

// A waitingRow is what is read of a row before it is chosen.
type waitingRow struct {
	seq   int64
	id    string
	size  int           // of ID, job and payload, in bytes
	since time.Duration // its first offer; 0 if there was none
}

// find returns the first waiting rows.
func (f *feed) find(ctx context.Context) ([]waitingRow, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	rows, err := f.db.QueryContext(ctx, f.table.sql("SELECT seq, SUBSTR(id, 1, 1024), {size}, {now} - COALESCE(offered_at, {now}) FROM {table} "+
		"WHERE queue = ? AND state = 'waiting' ORDER BY seq LIMIT "+strconv.Itoa(f.config.BatchSize)), f.queue)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var found []waitingRow
	for rows.Next() {
		var r waitingRow
		var micros int64
		if err := rows.Scan(&r.seq, &r.id, &r.size, &micros); err != nil {
			return nil, err
		}
		r.since = time.Duration(micros) * time.Microsecond
		found = append(found, r)
	}
	return found, rows.Err()
}

// A claimedRow is a row that is to be offered.
type claimedRow struct {
	seq int64
	job queue.Job

	line    string // the job as it stands in the table
	payload []byte
}

// claim takes or renews the lease, notes that the rows are offered, and reads those that still wait. Without the lease it does
// nothing, and reports that.
func (f *feed) claim(ctx context.Context, numbers []int64) (claimed []claimedRow, held bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err = f.transact(ctx, func(tx *sql.Tx) error {
		if held, err = f.lease(ctx, tx); err != nil || !held || len(numbers) == 0 {
			return err
		}
		list, args := in(numbers)
		if _, err := tx.ExecContext(ctx, f.table.sql("UPDATE {table} SET offered_at = {now} WHERE seq IN "+list+" AND offered_at IS NULL"), args...); err != nil {
			return err
		}
		rows, err := tx.QueryContext(ctx, f.table.sql("SELECT seq, id, job, payload FROM {table} WHERE seq IN "+list+" AND state = 'waiting' ORDER BY seq"), args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var r claimedRow
			if err := rows.Scan(&r.seq, &r.job.ID, &r.line, &r.payload); err != nil {
				return err
			}
			claimed = append(claimed, r)
		}
		return rows.Err()
	})
	return claimed, held, err
}

// lease takes or renews the lease of the queue, and reports whether this relay has it.
func (f *feed) lease(ctx context.Context, tx *sql.Tx) (bool, error) {
	one := func(result sql.Result, err error) (bool, error) {
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n > 0, err
	}
	lease := f.config.Lease.Microseconds()
	held, err := one(tx.ExecContext(ctx, f.table.sql("UPDATE {table}_relay SET holder = ?, held_until = {now} + ? WHERE queue = ? AND (holder = ? OR held_until < {now})"),
		f.name, lease, f.queue, f.name))
	if held || err != nil {
		return held, err
	}
	ignore := f.table.dialect().ignore
	return one(tx.ExecContext(ctx, f.table.sql(ignore[0]+" {table}_relay (queue, holder, held_until) VALUES (?, ?, {now} + ?) "+ignore[1]),
		f.queue, f.name, lease))
}

// release ends the lease, so that another relay works at once.
func (f *feed) release(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), goodbye)
	defer cancel()
	_, _ = f.db.ExecContext(ctx, f.table.sql("UPDATE {table}_relay SET held_until = 0 WHERE queue = ? AND holder = ?"), f.queue, f.name) // else it runs out
}

// decode reads the jobs of rows, and returns those that can be offered, and how the others end.
func decode(rows []claimedRow) (jobs []claimedRow, refused []ending) {
	for _, r := range rows {
		job, err := r.parse()
		job.ID = r.job.ID
		r.job = job
		if err == nil {
			err = jobline.Complaint(job.Validate())
		}
		if err != nil {
			refused = append(refused, r.refused(Invalid, err.Error()))
			continue
		}
		jobs = append(jobs, r)
	}
	return jobs, refused
}

// parse reads the job of a row, all but its ID. The payload is that of the column, or of the line where the column has none.
func (r claimedRow) parse() (queue.Job, error) {
	job, err := jobline.Parse([]byte(r.line))
	switch {
	case err != nil:
		return job, err
	case job.ID != "":
		return job, errors.New("id: stands in the job; want it in the column id")
	case r.payload != nil && job.Payload != nil:
		return job, errors.New("payload: stands in the job and in the column payload; want one of them")
	case r.payload != nil:
		job.Payload = r.payload
	}
	return job, nil
}

// end notes how rows end, and tells of those that are refused.
func (f *feed) end(ctx context.Context, ends []ending) error {
	if len(ends) == 0 {
		return nil
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	if ctx.Err() != nil {
		within, cancel = context.WithTimeout(within, goodbye)
		defer cancel()
	}
	type end struct {
		state  State
		reason string
	}
	same := make(map[end][]int64)
	for _, e := range ends {
		same[end{e.state, e.reason}] = append(same[end{e.state, e.reason}], e.seq)
	}
	err := f.transact(within, func(tx *sql.Tx) error {
		for how, numbers := range same {
			if err := f.endAll(within, tx, numbers, how.state, how.reason); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("noting what became of %d rows: %w", len(ends), err)
	}
	f.report(ends)
	return nil
}

// endAll notes that rows have ended in the same way. Their reason may be what a person wrote into a row: any bytes.
func (f *feed) endAll(ctx context.Context, tx *sql.Tx, numbers []int64, state State, reason string) error {
	list, args := in(numbers)
	if state == Accepted && f.config.KeepAccepted == 0 {
		_, err := tx.ExecContext(ctx, f.table.sql("DELETE FROM {table} WHERE seq IN "+list), args...)
		return err
	}
	_, err := tx.ExecContext(ctx, f.table.sql("UPDATE {table} SET state = ?, reason = ?, ended_at = {now} WHERE seq IN "+list+" AND state = 'waiting'"),
		append([]any{string(state), storable(reason)}, args...)...)
	return err
}

// transact runs a transaction.
func (f *feed) transact(ctx context.Context, do func(tx *sql.Tx) error) error {
	tx, err := f.db.BeginTx(ctx, &sql.TxOptions{Isolation: f.table.dialect().isolation})
	if err != nil {
		return err
	}
	defer tx.Rollback() // nothing after a commit
	if err := do(tx); err != nil {
		return err
	}
	return tx.Commit()
}
