package outbox

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/waterclock/waterclock/internal/jobline"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The bounds of one INSERT.
const (
	insertRows  = 64
	insertBytes = 1 << 20 // or one row; MySQL refuses statements of 16 MiB or more
)

// Insert inserts jobs for a queue and returns their IDs: each job's own, or one that Insert has made. They wait for a relay from
// the commit of tx on. If one of them is invalid none is inserted, and the error, wrapping [queue.ErrInvalidJob], says which and
// why; an invalid name of the queue is an error that wraps [queue.ErrInvalidArgument].
//
// Beside invalid jobs, Insert refuses those that a row cannot carry: with names or headers that are not UTF-8, or with a zero byte
// in the ID. Limits by name may refuse a job later, and so may a capacity: what becomes of its row, package outbox says.
//
// With a *sql.DB, jobs may be committed when others of the call are not: use a transaction for more than one.
func (t Table) Insert(ctx context.Context, tx Execer, queueName string, jobs ...queue.Job) (ids []string, err error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	if err := store.CheckQueue(queueName); err != nil {
		return nil, fmt.Errorf("outbox: %w: %w", queue.ErrInvalidArgument, err)
	}
	rows := make([]insertRow, len(jobs))
	for i, j := range jobs {
		if rows[i], err = encode(j); err != nil {
			return nil, fmt.Errorf("job %d of %d: %w", i+1, len(jobs), err)
		}
		ids = append(ids, rows[i].id)
	}
	for len(rows) > 0 {
		n := insertable(rows)
		query := "INSERT INTO {table} (queue, id, job, payload) VALUES (?, ?, ?, ?)" + strings.Repeat(", (?, ?, ?, ?)", n-1)
		var args []any
		for _, r := range rows[:n] {
			args = append(args, queueName, r.id, r.job, r.payload)
		}
		if _, err := tx.ExecContext(ctx, t.sql(query), args...); err != nil {
			return nil, fmt.Errorf("outbox: inserting into table %s: %w", t.name(), err)
		}
		rows = rows[n:]
	}
	return ids, nil
}

// insertable returns how many of the rows go into one statement.
func insertable(rows []insertRow) (n int) {
	for size := 0; n < min(len(rows), insertRows); n++ {
		size += len(rows[n].job) + len(rows[n].payload)
		if n > 0 && size > insertBytes {
			break
		}
	}
	return n
}

// An insertRow is a job as the columns of a row.
type insertRow struct {
	id      string
	job     string
	payload []byte
}

// encode returns the row of a job. What a relay would not understand, it refuses.
func encode(j queue.Job) (insertRow, error) {
	if err := j.Validate(); err != nil {
		return insertRow{}, err
	}
	if field := notText(j); field != "" {
		return insertRow{}, fmt.Errorf("%w: %s is not UTF-8; a row of an outbox carries nothing else", queue.ErrInvalidJob, field)
	}
	row := insertRow{id: j.ID, payload: j.Payload}
	switch {
	case strings.ContainsRune(j.ID, 0):
		return row, fmt.Errorf("%w: id has a zero byte; a column of text carries none", queue.ErrInvalidJob)
	case j.ID == "":
		row.id = rand.Text()
	}
	j.ID = ""
	row.job = strings.TrimSuffix(string(jobline.Write(j)), "\n")
	if _, err := jobline.Parse([]byte(row.job)); err != nil {
		return row, fmt.Errorf("%w: %w", queue.ErrInvalidJob, err)
	}
	return row, nil
}

// notText returns which field of a job is not UTF-8, if one is not.
func notText(j queue.Job) string {
	fields := [][2]string{{"tenant", j.Tenant}, {"user", j.User}, {"type", j.Type}, {"id", j.ID}, {"collapse_key", j.CollapseKey}, {"digest_key", j.DigestKey}, {"zone", j.Zone}, {"quiet", j.Quiet}, {"callback", j.Callback.URL + j.Callback.Secret}}
	for _, name := range slices.Sorted(maps.Keys(j.Headers)) {
		fields = append(fields, [2]string{fmt.Sprintf("header %q", name), name + j.Headers[name]})
	}
	for _, name := range slices.Sorted(maps.Keys(j.Keys)) {
		fields = append(fields, [2]string{"keys." + name, j.Keys[name]})
	}
	for _, f := range fields {
		if !utf8.ValidString(f[1]) {
			return f[0]
		}
	}
	return ""
}
