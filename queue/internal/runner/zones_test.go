package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/policies"
)

// A bound was computed by other data of the zones: where a rule goes by a local time the next leader computes it anew.
func TestBoundsOfOtherZones(t *testing.T) {
	t.Parallel()
	for zone, starts := range map[string]int{"Europe/Paris": 1, "UTC": 0} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			compiled, err := policies.Compile("q", "default: p\npolicies: {p: {user: {rules: [{hours: '00:00-24:00', zone: "+zone+"}]}}}\n", 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			s.policies = compiled
			s.handler = func(string, Attempt) Outcome { return Outcome{} }
			if err := s.client.HSet(t.Context(), "wc:{q}:meta", "swept", compiled.Since()).Err(); err != nil { // by no data that this program has
				t.Fatal(err)
			}
			s.offerFarAhead("t", "u")
			s.join("leader")
			time.Sleep(10 * time.Second)
			if s.attempts() != starts {
				t.Errorf("%s: %d starts of a job whose bound lies an hour ahead, want %d", zone, s.attempts(), starts)
			}
			s.end()
		})
	}
}
