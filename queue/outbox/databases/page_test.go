package databases

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/waterclock/waterclock/queue"
	"github.com/waterclock/waterclock/queue/outbox"
)

// statementsOf returns the blocks of SQL in docs/outbox.md, without their comments.
func statementsOf(t *testing.T) (blocks []string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/outbox.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		blocks = append(blocks, regexp.MustCompile(` *--.*`).ReplaceAllString(m[1], ""))
	}
	if len(blocks) != 4 {
		t.Fatalf("%d blocks of SQL, want 4", len(blocks))
	}
	return blocks
}

// The page shows the schema as it is.
func TestPageShowsTheSchema(t *testing.T) {
	schema, err := outbox.Table{Dialect: outbox.Postgres}.Schema()
	if shown := statementsOf(t)[3]; err != nil || shown != schema {
		t.Errorf("the page shows\n%s\nand the schema is\n%s", shown, schema)
	}
}

// What the page tells people to do with rows works on every database: insert one, offer accepted ones again, look at refused ones,
// and offer one of them again.
func TestPageShowsStatements(t *testing.T) {
	each(t, func(t *testing.T, d database) {
		s := newScene(t, d)
		statements := statementsOf(t)
		insert, again := statements[0], statements[1]
		look, retry, _ := strings.Cut(statements[2], "\n\n")
		config := outbox.RelayConfig{Queues: []string{"mail"}, KeepAccepted: 1 << 40}
		s.exec(insert)
		s.exec(strings.Replace(insert, "'mail', '{", "'mail', '{\"id\":\"7\",", 1))
		stop := s.relay(config)
		s.drained()
		stop()
		if n := len(s.rows(outbox.Accepted)); n != 1 {
			t.Fatalf("%d rows are accepted, want 1", n)
		}
		s.exec(again)
		if n := len(s.rows(outbox.Waiting)); n != 1 {
			t.Errorf("%d rows are offered again, want 1", n)
		}
		var id, state, reason, job string
		if err := s.db.QueryRow(look).Scan(&id, &state, &reason, &job); err != nil || state != "invalid" || reason == "" {
			t.Errorf("the refused row is %s, %q: %v", state, reason, err)
		}
		s.exec(strings.Replace(retry, "confirm-17", id, 1))
		if n := len(s.rows(outbox.Waiting)); n != 2 {
			t.Errorf("%d rows wait, want 2", n)
		}
		s.relay(config)
		s.drained()
		inspector, err := queue.NewInspector(s.rdb, "mail")
		if err != nil {
			t.Fatal(err)
		}
		if lane, err := inspector.Lane(t.Context(), "shop-7", "ann", 0, 10); err != nil || len(lane) != 1 {
			t.Errorf("%d jobs wait, want the one that was offered twice: %v", len(lane), err)
		}
	})
}
