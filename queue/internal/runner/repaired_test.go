package runner

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A lane that no index names is put into one by the doctor. Its jobs start, although the leader knew all lanes that the index
// had, and nothing else changes.
func TestARepairedLaneIsFound(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.join("leader")
		time.Sleep(5 * time.Second)
		s.offer("u", 1)
		time.Sleep(time.Second)
		started := s.attempts()
		env := envelope.Envelope{Stamp: fmt.Sprintf("%013x", time.Now().UnixMicro()), Cost: 1, MaxAttempts: 3, Type: "x"}
		s.server.RPush("wc:{q}:lane:t:lost", env.String())
		time.Sleep(time.Second)
		if s.attempts() != started {
			t.Fatal("a job started of a lane that no index names")
		}
		st, err := store.New(s.client, "q")
		if err != nil {
			t.Fatal(err)
		}
		now := time.Now().UnixMicro()
		if _, err := st.Mend(t.Context(), []store.Mend{{Do: [][]any{
			{"ZADD", "wc:{q}:due:t", "NX", now, "lost"}, {"ZADD", "wc:{q}:tenants", "LT", now, "t"},
		}}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if s.attempts() != started+1 {
			t.Error("the job of the repaired lane has not started")
		}
		s.end()
	})
}
