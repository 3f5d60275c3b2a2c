package databases

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// A scene is a table in a database, and a Redis.
type scene struct {
	t     *testing.T
	db    *sql.DB
	table outbox.Table
	redis *redistest.Server
	rdb   *redis.Client
	log   log
}

func newScene(t *testing.T, d database) *scene {
	s := &scene{t: t, db: d.open(t), table: outbox.Table{Dialect: d.dialect}, redis: redistest.Start(t)}
	s.rdb = s.redis.Client(t)
	if err := s.table.Create(t.Context(), s.db); err != nil {
		t.Fatal(err)
	}
	return s
}

// relay starts a relay, with a short interval and lease if the configuration has none, and returns what stops it.
func (s *scene) relay(config outbox.RelayConfig) (stop func()) {
	s.t.Helper()
	if config.Queues == nil {
		config.Queues = []string{"push"}
	}
	if config.Interval == 0 {
		config.Interval = 5 * time.Millisecond
	}
	config.Logger = slog.New(slog.NewTextHandler(&s.log, nil))
	relay, err := outbox.NewRelay(s.db, s.table, s.rdb, config)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- relay.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("Run: %v", err)
		}
	}
	s.t.Cleanup(stop)
	return stop
}

func (s *scene) begin() *sql.Tx {
	s.t.Helper()
	tx, err := s.db.BeginTx(s.t.Context(), nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return tx
}

// insert inserts jobs in a transaction of their own.
func (s *scene) insert(jobs ...queue.Job) []string {
	s.t.Helper()
	tx := s.begin()
	defer tx.Rollback()
	ids, err := s.table.Insert(s.t.Context(), tx, "push", jobs...)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		s.t.Fatal(err)
	}
	return ids
}

func (s *scene) exec(query string, args ...any) {
	s.t.Helper()
	if _, err := s.db.ExecContext(s.t.Context(), query, args...); err != nil {
		s.t.Fatal(err)
	}
}

// number returns the number that a query finds; 0 for NULL.
func (s *scene) number(query string) int64 {
	s.t.Helper()
	var n sql.NullInt64
	if err := s.db.QueryRowContext(s.t.Context(), query).Scan(&n); err != nil {
		s.t.Fatal(err)
	}
	return n.Int64
}

// rows returns the IDs of the table's rows of a state, in order.
func (s *scene) rows(state outbox.State) (ids []string) {
	s.t.Helper()
	rows, err := s.db.Query("SELECT id FROM waterclock_outbox WHERE state = '" + string(state) + "' ORDER BY seq")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// drained waits until no row waits.
func (s *scene) drained() {
	s.t.Helper()
	redistest.Eventually(s.t, 20*time.Second, "no row waits", func() bool { return len(s.rows(outbox.Waiting)) == 0 })
}

// accepted returns the IDs of the jobs in a lane of the queue, in their order.
func (s *scene) accepted(tenant, user string) (ids []string) {
	s.t.Helper()
	inspector, err := queue.NewInspector(s.rdb, "push")
	if err != nil {
		s.t.Fatal(err)
	}
	jobs, err := inspector.Lane(s.t.Context(), tenant, user, 0, 100_000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, j := range jobs {
		ids = append(ids, j.ID)
	}
	return ids
}

// want compares IDs, in their order.
func want(t *testing.T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %s, want %s", what, short(got), short(want))
	}
}

func short(ids []string) string {
	if len(ids) > 20 {
		return fmt.Sprintf("%d IDs, from %q on", len(ids), ids[:20])
	}
	return fmt.Sprintf("%q", ids)
}

// job returns a job of a user of school-7, with an ID or none.
func job(id string) queue.Job {
	return queue.Job{ID: id, Tenant: "school-7", User: "ann", Type: "push", Payload: []byte(`{"title":"Hello"}`)}
}

// refused wants the reasons of the rows that are not waiting: nil for none.
func (s *scene) refused(reasons map[string]string) {
	s.t.Helper()
	if got := s.reasons(); !maps.Equal(got, reasons) {
		s.t.Errorf("refused: %.500v, want %v", got, reasons)
	}
}

// reasons returns the reasons of the rows that have one, by their IDs.
func (s *scene) reasons() map[string]string {
	s.t.Helper()
	rows, err := s.db.Query("SELECT id, reason FROM waterclock_outbox WHERE reason IS NOT NULL")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	reasons := make(map[string]string)
	for rows.Next() {
		var id, reason string
		if err := rows.Scan(&id, &reason); err != nil {
			s.t.Fatal(err)
		}
		reasons[id] = reason
	}
	return reasons
}

// A log is what relays write.
type log struct{ redistest.Buffer }

// await waits until the log says something so often.
func (l *log) await(t *testing.T, text string, times int) {
	t.Helper()
	defer func() {
		if t.Failed() {
			t.Log(l.String())
		}
	}()
	redistest.Eventually(t, 10*time.Second, fmt.Sprintf("the log says %q", text), func() bool { return strings.Count(l.String(), text) >= times })
}
