package databases

import (
	"bytes"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/waterclock/waterclock/internal/redistest"
	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// Jobs of a transaction that commits reach the queue in their order, and their rows are gone. Those of one that is rolled back do not.
func TestCommitAndRollback(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		var ids []string
		for i := range 3 {
			ids = append(ids, s.insert(job(fmt.Sprint("a", i)), job(""), job(fmt.Sprint("b", i)))...)
			tx := s.begin()
			if _, err := s.table.Insert(t.Context(), tx, "push", job(fmt.Sprint("never", i))); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		s.relay(outbox.RelayConfig{BatchSize: 2})
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), ids)
		s.refused(nil)
	})
}

// A row of a transaction that commits late is offered when it commits, though rows with greater numbers went before; the open
// transaction delays nobody.
func TestCommitsOutOfOrder(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		if d.dialect == outbox.SQLite {
			t.Skip("has one writer at a time")
		}
		s := newScene(t, d)
		s.relay(outbox.RelayConfig{})
		late := s.begin()
		defer late.Rollback()
		if _, err := s.table.Insert(t.Context(), late, "push", job("late")); err != nil {
			t.Fatal(err)
		}
		s.insert(job("early"))
		redistest.Eventually(t, 5*time.Second, "the row that is committed is offered", func() bool { return len(s.accepted("school-7", "ann")) == 1 })
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		redistest.Eventually(t, 5*time.Second, "the other row is offered", func() bool { return len(s.accepted("school-7", "ann")) == 2 })
		want(t, "accepted", s.accepted("school-7", "ann"), []string{"early", "late"})
	})
}

// Every field of a job survives, whatever bytes its names and its payload have, and so do payloads of a megabyte.
func TestFieldsSurvive(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		full := queue.Job{
			ID: "order-17 ✓", Tenant: "school-7", User: "ann", Type: "\x00 \u2028 😀", Payload: []byte("\x00\xff\n'\"\\"), Headers: map[string]string{"traceparent": "00-…", "": "x"},
			Cost: 3, Keys: map[string]string{"domain": "пример"}, Costs: map[string]int{"tokens": 812, "calls": 0}, StartBy: at, FinishBy: at.Add(time.Second),
			Priority: queue.High, CollapseKey: "weather", MaxAttempts: 6, Timeout: 90 * time.Second, Callback: queue.Callback{URL: "https://shop.example/hooks", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
		}
		large := job("large")
		large.Cost, large.MaxAttempts = 1, 26 // as by default
		large.Priority, large.Payload = queue.Low, bytes.Repeat([]byte{0xff}, 1<<20)
		var many []queue.Job
		for i := range 10 {
			many = append(many, large)
			many[i].ID, many[i].User = fmt.Sprint("large", i), "bob"
		}
		s.insert(full, large)
		s.insert(many...)
		later := job("later")
		later.NotBefore = at
		s.insert(later)
		s.relay(outbox.RelayConfig{})
		s.drained()
		s.refused(nil)
		inspector, err := queue.NewInspector(s.rdb, "push")
		if err != nil {
			t.Fatal(err)
		}
		lane, err := inspector.Lane(t.Context(), "school-7", "ann", 0, 10)
		if err != nil || len(lane) != 2 {
			t.Fatalf("%d jobs wait: %v", len(lane), err)
		}
		for i, job := range []queue.Job{full, large} {
			if diff := cmp.Diff(job, lane[i].Job, cmp.Transformer("instant", func(t time.Time) int64 { return t.UnixMicro() })); diff != "" {
				t.Errorf("-want +got:\n%.1000s", diff)
			}
		}
		if n := len(s.accepted("school-7", "bob")); n != 10 {
			t.Errorf("%d large jobs were accepted, want 10", n)
		}
		if later, err := inspector.Later(t.Context(), 0, 10); err != nil || len(later) != 1 || !later[0].At.Equal(at) {
			t.Errorf("later come %+v, want one at %v: %v", later, at, err)
		}
	})
}

// Programs in other languages insert rows with a line of JSON, and the database gives them an ID.
func TestRowsOfOtherPrograms(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		s.exec(`INSERT INTO waterclock_outbox (queue, job) VALUES ('push', '{"tenant":"school-7","user":"ann","type":"push","payload":{"title":"Hello"}}')`)
		s.exec(`INSERT INTO waterclock_outbox (queue, id, job) VALUES ('push', 'order-17', '{"tenant":"school-7","user":"ann","type":"push"}')`)
		ids := s.rows(outbox.Waiting)
		if len(ids) != 2 || len(ids[0]) < 30 || ids[1] != "order-17" {
			t.Fatalf("IDs %q", ids)
		}
		s.relay(outbox.RelayConfig{})
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), ids)
		s.refused(nil)
	})
}

// Rows that are no jobs are marked with the reason, told once, and hold back no others.
func TestBadRows(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		raw := func(id, job string) {
			s.insert(gentle(id))
			query := "INSERT INTO waterclock_outbox (queue, id, job) VALUES ('push', ?, ?)"
			if d.dialect == outbox.Postgres {
				query = "INSERT INTO waterclock_outbox (queue, id, job) VALUES ('push', $1, $2)"
			}
			s.exec(query, id, job)
		}
		const fine = `{"tenant":"t","user":"u","type":"push"`
		raw("no-json", `tenant: t`)
		raw("no-user", `{"tenant":"t","type":"push"}`)
		raw("misspelt", fine+`,"user_id":"u"}`)
		raw("two-ids", fine+`,"id":"7"}`)
		raw("payload", fine+`,"payload":"`+strings.Repeat("x", 1<<20)+`"}`)
		raw("endless", fine+`,"payload":"`+strings.Repeat("x", 3<<20)+`"}`)
		raw(strings.Repeat("i", 1024), fine+`}`) // as long as an ID may be
		reasons := map[string]string{
			"no-json":  "not JSON: invalid character 'e' in literal true (expecting 'r') (byte 2)",
			"no-user":  "user is missing",
			"misspelt": "user_id: unknown key; want ",
			"two-ids":  "id: stands in the job; want it in the column id",
			"payload":  "payload: 1048578 bytes; want at most 1048576",
			"endless":  "id, job and payload have 3145787 bytes; at most 2162688",
		}
		var mu sync.Mutex
		var refusals []outbox.Refusal
		s.relay(outbox.RelayConfig{BatchSize: 5, Refused: func(r outbox.Refusal) {
			mu.Lock()
			defer mu.Unlock()
			refusals = append(refusals, r)
		}})
		s.drained()
		if got := s.accepted("school-7", "ann"); len(got) != 7 {
			t.Errorf("%q were accepted, want the 7 that are jobs", got)
		}
		if got := s.accepted("t", "u"); len(got) != 1 {
			t.Errorf("%d were accepted, want the one with a long ID", len(got))
		}
		redistest.Eventually(t, 5*time.Second, "all are told", func() bool { mu.Lock(); defer mu.Unlock(); return len(refusals) == len(reasons) })
		for _, r := range refusals {
			if r.State != outbox.Invalid || reasons[r.ID] == "" || !strings.HasPrefix(r.Reason, reasons[r.ID]) || r.Queue != "push" {
				t.Errorf("told: %+.200v, want %q", r, reasons[r.ID])
			}
			if n := strings.Count(s.log.String(), "id="+r.ID+" "); n != 1 {
				t.Errorf("%s is logged %d times, want once", r.ID, n)
			}
		}
		if got := s.rows(outbox.Invalid); len(got) != len(reasons) {
			t.Errorf("%q are invalid, want %d", got, len(reasons))
		}
		for id, want := range s.reasons() {
			if !strings.HasPrefix(want, reasons[id]) {
				t.Errorf("%s has the reason %q, want %q", id, want, reasons[id])
			}
		}
	})
}

// gentle is a job of ann with an ID of its own.
func gentle(of string) queue.Job {
	if len(of) > 100 {
		of = of[:100]
	}
	return job("beside-" + of)
}

// Jobs that the queue drops, and those that its policies call invalid, are marked with the reason; one in seven is, and the others are
// accepted. A row that is set to waiting again is offered again.
func TestRefusedJobs(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		policies, err := queue.ParsePolicies("policies.yaml", []byte(`
default: standard
policies: {standard: {tenant: {capacity: 3, overflow: drop_newest}}, wide: {tenant: {rules: [{leak: 50/s}]}}}
tenants: {school-7: wide}
limits: {domain: {jobs: {type: mail}, key: keys.domain, missing: refuse, rules: [{leak: 10/s}]}}
`))
		if err != nil {
			t.Fatal(err)
		}
		inspector, err := queue.NewInspector(s.rdb, "push")
		if err != nil {
			t.Fatal(err)
		}
		if err := inspector.SetPolicies(t.Context(), policies); err != nil {
			t.Fatal(err)
		}
		var fine, full, lacking []string
		for i := range 70 {
			j := job(fmt.Sprint("job-", i))
			switch i % 7 {
			case 0:
				j.Tenant = "small"
				if i >= 3*7 {
					full = append(full, j.ID)
				}
			case 3:
				j.Type = "mail"
				lacking = append(lacking, j.ID)
			default:
				fine = append(fine, j.ID)
			}
			s.insert(j)
		}
		registry := prometheus.NewRegistry()
		s.relay(outbox.RelayConfig{Registerer: registry})
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), fine)
		want(t, "dropped", s.rows(outbox.Dropped), full)
		want(t, "invalid", s.rows(outbox.Invalid), lacking)
		for id, reason := range s.reasons() {
			if slices.Contains(full, id) && reason != "full" || slices.Contains(lacking, id) && !strings.Contains(reason, "keys.domain") {
				t.Errorf("%s has the reason %q", id, reason)
			}
		}
		const counted = `
# HELP waterclock_outbox_rows_total Rows by how they ended: accepted, replaced (accepted in the place of a job with its collapse key), duplicate (its ID was accepted before), dropped, invalid, unknown.
# TYPE waterclock_outbox_rows_total counter
waterclock_outbox_rows_total{outcome="accepted",queue="push"} 53
waterclock_outbox_rows_total{outcome="dropped",queue="push"} 7
waterclock_outbox_rows_total{outcome="duplicate",queue="push"} 0
waterclock_outbox_rows_total{outcome="invalid",queue="push"} 10
waterclock_outbox_rows_total{outcome="replaced",queue="push"} 0
waterclock_outbox_rows_total{outcome="unknown",queue="push"} 0
`
		redistest.Eventually(t, 5*time.Second, "the rows are counted", func() bool { return testutil.GatherAndCompare(registry, strings.NewReader(counted)) == nil })
		lag, err := s.table.Lag(t.Context(), s.db, "push")
		if err != nil || lag != (outbox.Lag{Refused: 17}) {
			t.Errorf("lag %+v, %v", lag, err)
		}
		if err := inspector.SetPolicies(t.Context(), queue.Policies{}); err != nil {
			t.Fatal(err)
		}
		s.exec("UPDATE waterclock_outbox SET state = 'waiting', offered_at = NULL WHERE state = 'dropped'")
		s.drained()
		if n := len(s.accepted("small", "ann")); n != 10 {
			t.Errorf("%d jobs of the small tenant were accepted, want 10", n)
		}
	})
}

// A row whose answer was lost a day ago is not offered again, since the queue may have forgotten its ID. A person decides. One whose
// answer was lost less long ago is offered again, and is a duplicate.
func TestAnswersLostLongAgo(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		client, err := queue.NewClient(s.rdb, "push")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := client.Enqueue(t.Context(), job("recent")); err != nil { // by a relay that died
			t.Fatal(err)
		}
		s.insert(job("recent"), job("old"), job("new"))
		micros := func(age time.Duration) string {
			return fmt.Sprintf("UPDATE waterclock_outbox SET offered_at = created_at - %d", age.Microseconds())
		}
		s.exec(micros(22*time.Hour+59*time.Minute) + " WHERE id = 'recent'")
		s.exec(micros(23*time.Hour+time.Second) + " WHERE id = 'old'")
		registry := prometheus.NewRegistry()
		s.relay(outbox.RelayConfig{Registerer: registry})
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), []string{"recent", "new"})
		want(t, "unknown", s.rows(outbox.Unknown), []string{"old"})
		if got := s.reasons()["old"]; !strings.HasPrefix(got, "first offered 23h0m0s ago, and the answer was lost") {
			t.Errorf("reason %q", got)
		}
		s.exec("UPDATE waterclock_outbox SET state = 'waiting', offered_at = NULL WHERE id = 'old'")
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), []string{"recent", "new", "old"})
	})
}

// Of several relays one works: rows are offered once, in their order, whichever relay that is. One that is stopped hands over at once.
func TestSeveralRelays(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		registries, stops := []*prometheus.Registry{}, []func(){}
		for range 3 {
			r := prometheus.NewRegistry()
			registries = append(registries, r)
			stops = append(stops, s.relay(outbox.RelayConfig{Registerer: r, BatchSize: 20, Lease: time.Minute}))
		}
		var ids []string
		counted := make([]float64, 3) // of each relay
		for turn := range 3 {
			for range 20 {
				ids = append(ids, s.insert(slices.Repeat([]queue.Job{job("")}, 10)...)...)
			}
			redistest.Eventually(t, 20*time.Second, "all are counted", func() bool {
				all := 0.0
				for _, r := range registries {
					all += outcomes(t, r)["accepted"]
				}
				return int(all) == len(ids)
			})
			worked := -1
			for i, r := range registries {
				n := outcomes(t, r)
				if n["duplicate"] > 0 {
					t.Errorf("%v rows were offered twice", n["duplicate"])
				}
				if n["accepted"] == counted[i] {
					continue
				}
				if worked >= 0 {
					t.Errorf("two relays have worked in turn %d", turn)
				}
				worked, counted[i] = i, n["accepted"]
			}
			stops[worked]()
		}
		want(t, "accepted", s.accepted("school-7", "ann"), ids)
	})
}

// outcomes returns what a relay has counted.
func outcomes(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%d families of metrics: %v", len(families), err)
	}
	counts := make(map[string]float64)
	for _, m := range families[0].Metric {
		counts[m.Label[0].GetValue()] = m.Counter.GetValue()
	}
	return counts
}

// While Redis is away, or the table is, the log says so once, and all goes on when it is back.
func TestTrouble(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		s.redis.Kill()
		s.relay(outbox.RelayConfig{Lease: 100 * time.Millisecond})
		s.insert(job("1"))
		s.log.await(t, "cannot be offered", 1)
		lag, err := s.table.Lag(t.Context(), s.db, "push")
		if err != nil || lag.Waiting != 1 || lag.Oldest <= 0 || lag.Oldest > time.Minute {
			t.Errorf("lag %+v, %v", lag, err)
		}
		first := s.number("SELECT offered_at FROM waterclock_outbox")
		lease := s.number("SELECT held_until FROM waterclock_outbox_relay")
		redistest.Eventually(t, 5*time.Second, "the row is offered again", func() bool { return s.number("SELECT held_until FROM waterclock_outbox_relay") > lease })
		if again := s.number("SELECT offered_at FROM waterclock_outbox"); first == 0 || again != first {
			t.Errorf("first offered at %d, later at %d", first, again)
		}
		s.redis.Resume()
		s.log.await(t, "are offered again", 1)
		want(t, "accepted", s.accepted("school-7", "ann"), []string{"1"})
		s.exec("ALTER TABLE waterclock_outbox RENAME TO away")
		s.log.await(t, "cannot be offered", 2)
		s.exec("ALTER TABLE away RENAME TO waterclock_outbox")
		s.insert(job("2"))
		s.log.await(t, "are offered again", 2)
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), []string{"1", "2"})
		if n := strings.Count(s.log.String(), "cannot be offered"); n != 2 {
			t.Errorf("logged %d times, want twice:\n%s", n, s.log.String())
		}
	})
}

// A worker starts each job of a committed row once, however often relays die.
func TestWorkersStartEachJobOnce(t *testing.T) {
	p := newProof(t, newSQLite(t))
	worker, err := queue.NewWorker(p.rdb, queue.WorkerConfig{Queues: []string{"push"}, Concurrency: 20})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	started := make(map[string]int)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- worker.Run(ctx, asynq.HandlerFunc(func(ctx context.Context, _ *asynq.Task) error {
			info, _ := queue.FromContext(ctx)
			mu.Lock()
			defer mu.Unlock()
			started[info.ID]++
			return nil
		}))
	}()
	var ids []string
	for range 40 {
		ids = append(ids, p.insert(job(""), job(""), job(""), job(""), job(""))...)
		p.awaitAcceptance()
		p.relays[0].kill()
		p.relays[0].start()
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return len(started) }
	redistest.Eventually(t, 20*time.Second, "all have started", func() bool { return count() == len(ids) })
	p.drained()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, id := range ids {
		if started[id] != 1 {
			t.Errorf("%s was started %d times", id, started[id])
		}
	}
}

// Rows are kept for as long as they should be.
func TestKept(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		bad := "INSERT INTO waterclock_outbox (queue, id, job) VALUES ('push', 'bad', 'x')"
		config := outbox.RelayConfig{KeepAccepted: time.Hour, KeepRefused: 2 * time.Hour}
		s.insert(job("1"))
		s.exec(bad)
		stop := s.relay(config)
		s.drained()
		stop()
		s.relay(config)() // rows are deleted when it begins, and each minute
		want(t, "accepted", s.rows(outbox.Accepted), []string{"1"})
		want(t, "invalid", s.rows(outbox.Invalid), []string{"bad"})
		s.exec("UPDATE waterclock_outbox SET ended_at = ended_at - 3601000000") // an hour
		stop = s.relay(config)
		redistest.Eventually(t, 5*time.Second, "the accepted row is deleted", func() bool { return len(s.rows(outbox.Accepted)) == 0 })
		want(t, "invalid", s.rows(outbox.Invalid), []string{"bad"})
		stop()
		s.exec("UPDATE waterclock_outbox SET ended_at = ended_at - 3601000000")
		s.relay(config)
		redistest.Eventually(t, 5*time.Second, "the invalid row is deleted", func() bool { return len(s.rows(outbox.Invalid)) == 0 })
	})
}

// Rows of a queue whose name nobody serves are told.
func TestStrays(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		if _, err := s.table.Insert(t.Context(), s.db, "psuh", job("1")); err != nil {
			t.Fatal(err)
		}
		s.relay(outbox.RelayConfig{})
		s.log.await(t, "a queue that no relay serves\" queue=psuh rows=1", 1)
	})
}

// The tables can be created again, beside tables of other names, and in a schema.
func TestCreate(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		names := []string{"", "", "Jobs_2"}
		if d.dialect == outbox.Postgres {
			s.exec("CREATE SCHEMA app")
			names = append(names, "app.jobs")
		}
		for _, name := range names {
			s.table.Name = name
			if err := s.table.Create(t.Context(), s.db); err != nil {
				t.Fatal(err)
			}
			s.insert(job("of" + name))
			stop := s.relay(outbox.RelayConfig{})
			redistest.Eventually(t, 5*time.Second, "its row is offered", func() bool { return slices.Contains(s.accepted("school-7", "ann"), "of"+name) })
			stop()
		}
	})
}

// A collector tells the lag, and that the table cannot be read.
func TestCollector(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		s.insert(job("1"), job("2"))
		s.exec("UPDATE waterclock_outbox SET created_at = created_at - 60000000 WHERE id = '1'") // a minute
		metrics := func(table outbox.Table) map[string]float64 {
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(outbox.NewCollector(s.db, table, "push"))
			families, err := registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := make(map[string]float64)
			for _, f := range families {
				values[strings.TrimPrefix(f.GetName(), "waterclock_outbox_")] = f.Metric[0].Gauge.GetValue()
			}
			return values
		}
		got := metrics(s.table)
		if got["up"] != 1 || got["waiting_rows"] != 2 || got["refused_rows"] != 0 || got["oldest_seconds"] < 60 || got["oldest_seconds"] > 120 {
			t.Errorf("%v", got)
		}
		if got := metrics(outbox.Table{Dialect: d.dialect, Name: "nowhere"}); len(got) != 1 || got["up"] != 0 {
			t.Errorf("%v of a table that there is not", got)
		}
	})
}

// A transaction of pgx itself takes a wrapper of a few lines, as docs/outbox.md shows it.
func TestPgx(t *testing.T) {
	d := newPostgres(t)
	s := newScene(t, d)
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.table.Insert(t.Context(), pgxTx{tx}, "push", job("1"), job("2")); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.relay(outbox.RelayConfig{})
	s.drained()
	want(t, "accepted", s.accepted("school-7", "ann"), []string{"1", "2"})
}

type pgxTx struct{ tx pgx.Tx }

func (t pgxTx) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	tag, err := t.tx.Exec(ctx, query, args...)
	return driver.RowsAffected(tag.RowsAffected()), err
}

// An invalid job is refused, with all jobs of its call, and the transaction is as it was.
func TestInvalidJobsAreNotInserted(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		tx := s.begin()
		defer tx.Rollback()
		if _, err := s.table.Insert(t.Context(), tx, "push", job("1"), queue.Job{Tenant: "t"}); !errors.Is(err, queue.ErrInvalidJob) || err.Error() != "job 2 of 2: queue: invalid job: user is missing" {
			t.Errorf("error %v", err)
		}
		if _, err := s.table.Insert(t.Context(), tx, "push", job("2")); err != nil {
			t.Error(err)
		}
		if err := tx.Commit(); err != nil {
			t.Error(err)
		}
		want(t, "rows", s.rows(outbox.Waiting), []string{"2"})
	})
}
