package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/waterclock/waterclock/queue"
)

// Every field of a job is in its row, whatever fields jobs get, and instants stay what they are.
func TestEveryFieldIsInTheRow(t *testing.T) {
	at := time.Date(2026, 11, 22, 9, 0, 0, 123456789, time.FixedZone("", 3600))
	job := queue.Job{
		ID: "order-17", Tenant: "<школа>\x00", User: "\u2028", Type: "{}", Payload: []byte("\x00\xff"), Headers: map[string]string{"": "x"}, Cost: 3,
		Keys: map[string]string{"domain": "gmail.com"}, Costs: map[string]int{"tokens": 0}, NotBefore: at, StartBy: at.Add(1), FinishBy: at.Add(2),
		Priority: queue.Low, CollapseKey: "k", MaxAttempts: 1, Timeout: time.Nanosecond,
		Zone: "Europe/Paris", Quiet: "21:30-07:00",
		Callback: queue.Callback{URL: "https://shop.example/hooks", Secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
	}
	member := job // which starts with others, and not before some time
	member.DigestKey, member.NotBefore = "replies", time.Time{}
	for i, fields := 0, reflect.ValueOf(job); i < fields.NumField(); i++ {
		if fields.Field(i).IsZero() && reflect.ValueOf(member).Field(i).IsZero() {
			t.Errorf("the test gives the job no %s", fields.Type().Field(i).Name)
		}
	}
	for _, job := range []queue.Job{job, member, {ID: "7", Tenant: "t", User: "u", Type: "push"}, {ID: "8", Tenant: "t", User: "u", Type: "push", Payload: []byte{}}} {
		row, err := encode(job)
		if err != nil {
			t.Fatal(err)
		}
		read, refused := decode([]claimedRow{{job: queue.Job{ID: row.id}, line: row.job, payload: row.payload}})
		if len(refused) > 0 {
			t.Fatalf("%s: %s", row.job, refused[0].reason)
		}
		if diff := cmp.Diff(job, read[0].job); diff != "" {
			t.Errorf("%s (-want +got):\n%s", row.job, diff)
		}
	}
}

// A job without an ID gets one, another one each time.
func TestGeneratedIDs(t *testing.T) {
	seen := make(map[string]bool)
	for range 100 {
		row, err := encode(queue.Job{Tenant: "t", User: "u", Type: "push"})
		if err != nil || len(row.id) < 20 || seen[row.id] {
			t.Fatalf("ID %q, %v", row.id, err)
		}
		seen[row.id] = true
	}
}

// What the queue, or a relay, would not take is refused at the insert: what is wrong, and what would be right.
func TestRefusedAtTheInsert(t *testing.T) {
	var inserted statements
	table := Table{Dialect: Postgres}
	for want, change := range map[string]func(j *queue.Job){
		"tenant is missing":                           func(j *queue.Job) { j.Tenant = "" },
		"payload has 1048577 bytes; at most 1048576":  func(j *queue.Job) { j.Payload = make([]byte, 1<<20+1) },
		"user is not UTF-8; a row of an outbox":       func(j *queue.Job) { j.User = "\xff" },
		"id is not UTF-8; a row of an outbox":         func(j *queue.Job) { j.ID = "\xff" },
		"id has a zero byte; a column of text":        func(j *queue.Job) { j.ID = "a\x00" },
		`header "a" is not UTF-8; a row`:              func(j *queue.Job) { j.Headers = map[string]string{"a": "\xff"} },
		"keys.domain is not UTF-8; a row":             func(j *queue.Job) { j.Keys = map[string]string{"domain": "\xff"} },
		`not_before: "1969-01-01T00:00:00Z"; want a`:  func(j *queue.Job) { j.NotBefore = time.Date(1969, 1, 1, 0, 0, 0, 0, time.UTC) },
		"max_retry: 1999999; want a whole number fro": func(j *queue.Job) { j.MaxAttempts = 2_000_000 },
	} {
		good := queue.Job{Tenant: "t", User: "u", Type: "push"}
		bad := good
		change(&bad)
		_, err := table.Insert(t.Context(), &inserted, "push", good, bad)
		if !errors.Is(err, queue.ErrInvalidJob) || !strings.HasPrefix(err.Error(), "job 2 of 2: queue: invalid job: "+want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	if _, err := table.Insert(t.Context(), &inserted, "a:b", queue.Job{}); !errors.Is(err, queue.ErrInvalidArgument) {
		t.Errorf("the name of a queue: %v", err)
	}
	if len(inserted) > 0 {
		t.Errorf("%d statements were sent", len(inserted))
	}
}

// statements are what was executed.
type statements []string

func (s *statements) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	*s = append(*s, fmt.Sprintf("%s, %d", query, len(args)))
	return nil, nil
}

// Many jobs go into few statements, and none of them grows large.
func TestStatementsAreBounded(t *testing.T) {
	job := queue.Job{Tenant: "t", User: "u", Type: "push"}
	large := job
	large.Payload = make([]byte, 700_000)
	var sent statements
	table := Table{Dialect: MySQL, Name: "app.jobs"}
	jobs := []queue.Job{large, large, job}
	for range insertRows {
		jobs = append(jobs, job)
	}
	ids, err := table.Insert(t.Context(), &sent, "push", jobs...)
	if err != nil || len(ids) != len(jobs) || len(sent) != 3 {
		t.Fatalf("%d IDs, %q, %v", len(ids), sent, err)
	}
	if want := "INSERT INTO app.jobs (queue, id, job, payload) VALUES (?, ?, ?, ?), 4"; sent[0] != want {
		t.Errorf("%s, want %s", sent[0], want)
	}
	if want := fmt.Sprintf(", %d", 4*(len(jobs)-1-insertRows)); !strings.HasSuffix(sent[2], want) {
		t.Errorf("%s, want %s", sent[2], want)
	}
	table.Dialect, sent = Postgres, nil
	if _, err := table.Insert(t.Context(), &sent, "push", job, job); err != nil || !strings.HasSuffix(sent[0], "VALUES ($1, $2, $3, $4), ($5, $6, $7, $8), 8") {
		t.Errorf("%q, %v", sent, err)
	}
}

// Names of tables are checked, since they are parts of statements.
func TestTables(t *testing.T) {
	for _, table := range []Table{
		{}, {Dialect: "oracle"}, {Dialect: Postgres, Name: "a b"}, {Dialect: Postgres, Name: "a.b.c"}, {Dialect: Postgres, Name: "a;b"},
		{Dialect: Postgres, Name: `"a"`}, {Dialect: Postgres, Name: "7a"}, {Dialect: SQLite, Name: strings.Repeat("a", maxTable+1)},
	} {
		_, err := table.Schema()
		if err == nil || !strings.Contains(err.Error(), "; want ") {
			t.Errorf("%+v: %v", table, err)
		}
		if _, err := table.Insert(t.Context(), nil, "push"); err == nil {
			t.Errorf("%+v: Insert takes it", table)
		}
		if _, err := NewRelay(nil, table, nil, RelayConfig{Queues: []string{"push"}}); err == nil {
			t.Errorf("%+v: NewRelay takes it", table)
		}
		if _, err := table.Lag(t.Context(), nil, "push"); err == nil {
			t.Errorf("%+v: Lag takes it", table)
		}
	}
	for _, dialect := range []Dialect{Postgres, MySQL, SQLite} {
		schema, err := Table{Dialect: dialect, Name: "app.jobs"}.Schema()
		if err != nil || !strings.Contains(schema, "CREATE TABLE IF NOT EXISTS app.jobs_relay (") || strings.ContainsAny(schema, "{}") {
			t.Errorf("%s: %v\n%s", dialect, err, schema)
		}
	}
}

// What is wrong with a configuration is said before a relay runs.
func TestConfigurations(t *testing.T) {
	for want, config := range map[string]RelayConfig{
		"RelayConfig.Queues is empty":           {},
		"RelayConfig.Queues names a queue twic": {Queues: []string{"a", "b", "a"}},
		`queue: invalid queue name: "a b"`:      {Queues: []string{"a b"}},
		"RelayConfig.Interval is -1s":           {Queues: []string{"a"}, Interval: -time.Second},
		"RelayConfig.BatchSize is 10001":        {Queues: []string{"a"}, BatchSize: 10_001},
		"RelayConfig.Lease is 1ms":              {Queues: []string{"a"}, Lease: time.Millisecond},
		"RelayConfig.KeepAccepted is -1ns":      {Queues: []string{"a"}, KeepAccepted: -1},
		"RelayConfig.Durability.Replicas is -1": {Queues: []string{"a"}, Durability: queue.Durability{Replicas: -1}},
	} {
		if _, err := NewRelay(nil, Table{Dialect: SQLite}, nil, config); !errors.Is(err, queue.ErrInvalidArgument) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	registry := prometheus.NewRegistry()
	config := RelayConfig{Queues: []string{"a"}, Registerer: registry}
	if _, err := NewRelay(nil, Table{Dialect: SQLite}, nil, config); err != nil {
		t.Error(err)
	}
	if _, err := NewRelay(nil, Table{Dialect: SQLite}, nil, config); err == nil || !strings.Contains(err.Error(), "metrics already") {
		t.Errorf("a second relay with the registerer: %v", err)
	}
}

// A round takes rows up to its bytes, and one in any case. What is too large to be a job, and what was offered long ago, ends at once.
func TestChoose(t *testing.T) {
	f := &feed{}
	numbers, ends := f.choose([]waitingRow{
		{seq: 1, size: 10}, {seq: 2, size: maxRow + 1}, {seq: 3, since: doubt}, {seq: 4, since: doubt + 1}, {seq: 5, size: maxRound}, {seq: 6, size: 1},
	})
	if fmt.Sprint(numbers) != "[1 3]" || len(ends) != 2 || ends[0].seq != 2 || ends[0].state != Invalid || ends[1].seq != 4 || ends[1].state != Unknown {
		t.Errorf("chosen %v, ended %+v", numbers, ends)
	}
	if numbers, _ = f.choose([]waitingRow{{seq: 1, size: maxRow}, {seq: 2, size: 1}}); fmt.Sprint(numbers) != "[1]" {
		t.Errorf("chosen %v", numbers)
	}
	if numbers, _ = f.choose([]waitingRow{{seq: 5, size: maxRound - 1}, {seq: 6, size: 1}, {seq: 7, size: 1}}); fmt.Sprint(numbers) != "[5 6]" {
		t.Errorf("chosen %v", numbers)
	}
}

// Lists of numbers have few lengths.
func TestIn(t *testing.T) {
	lengths := make(map[int]bool)
	for n := 1; n <= 600; n++ {
		numbers := make([]int64, n)
		for i := range numbers {
			numbers[i] = int64(i)
		}
		list, args := in(numbers)
		if strings.Count(list, "?") != len(args) || len(args) < n || args[len(args)-1] != int64(n-1) {
			t.Fatalf("%d numbers: %s, %d parameters", n, list, len(args))
		}
		lengths[len(args)] = true
	}
	if len(lengths) != 11 {
		t.Errorf("%d lengths", len(lengths))
	}
}

// Reasons can be stored wherever texts can, whatever somebody wrote into a row.
func TestStorable(t *testing.T) {
	for text, want := range map[string]any{"": nil, "a\x00b": "a␀b", "a\xff": "a\ufffd", strings.Repeat("ü", 600): strings.Repeat("ü", 500)} {
		if got := storable(text); got != want {
			t.Errorf("%.20q became %.20q", text, got)
		}
	}
}
