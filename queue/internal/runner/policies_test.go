package runner

import (
	"testing"
	"testing/synctest"
	"time"
)

// Redis has older policies than were in force, after a failover that lost the newest: they are put in
// force again, and jobs start.
func TestOlderPoliciesAreReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.client.HSet(t.Context(), "wc:{q}:policies", "version", 2, "source", "x")
		s.client.HSet(t.Context(), "wc:{q}:meta", "policies", 2)
		s.hire(2)
		time.Sleep(3 * time.Second)
		// a replica without the newest change takes over
		s.client.HSet(t.Context(), "wc:{q}:policies", "version", 1, "source", "x")
		s.client.HSet(t.Context(), "wc:{q}:meta", "policies", 1)
		s.client.HIncrBy(t.Context(), "wc:{q}:meta", "changes", -1)
		s.offer("u", 1)
		time.Sleep(time.Minute)
		if n := s.attempts(); n != 1 {
			t.Errorf("%d of 1 job started in a minute under the policies that Redis holds", n)
		}
		s.end()
	})
}
