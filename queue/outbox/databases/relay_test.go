package databases

import (
	"fmt"
	"testing"

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
			tx, err := s.db.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.table.Insert(t.Context(), tx, "push", job(fmt.Sprint("never", i))); err != nil {
				t.Fatal(err)
			}
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
		}
		s.relay(outbox.RelayConfig{})
		s.drained()
		want(t, "accepted", s.accepted("school-7", "ann"), ids)
		for _, state := range []outbox.State{outbox.Accepted, outbox.Dropped, outbox.Invalid, outbox.Unknown} {
			want(t, string(state), s.rows(state), nil)
		}
	})
}

var _ = queue.Job{}
