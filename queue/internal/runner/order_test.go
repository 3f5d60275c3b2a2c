package runner

import (
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// inOrder puts three jobs of one lane somewhere, lets a worker come, and checks that they start in the order of their offers.
func inOrder(t *testing.T, put func(s *stage, lane envelope.Lane, n int, env envelope.Envelope)) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
		for _, n := range []int{2, 1, 3} {
			put(s, lane, n, envelope.Envelope{
				Stamp: envelope.Stamp(time.Now().UnixMicro() + int64(n)), Cost: 1, MaxAttempts: 3, Type: "x", Payload: strconv.Itoa(n),
			})
		}
		s.join("w")
		time.Sleep(10 * time.Second)
		s.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		var order []string
		for _, start := range s.starts {
			order = append(order, start.payload)
		}
		if !slices.Equal(order, []string{"1", "2", "3"}) {
			t.Errorf("%v have started, want 1, 2, 3", order)
		}
	})
}

// Jobs of a lane that are returned together keep their order.
func TestReturnedJobsKeepTheirOrder(t *testing.T) {
	inOrder(t, func(s *stage, lane envelope.Lane, n int, env envelope.Envelope) {
		claim := envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: int64(n), Spent: int64(n)}
		s.server.HSet("wc:{q}:running:a", claim.String(), env.String())
		s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(time.Minute).UnixMicro()), "a")
		notice := store.Return{Worker: "a", Claim: claim, Kind: store.ReturnPaused}.Notice()
		if _, err := s.server.XAdd("wc:{q}:notices", "*", []string{notice.Subject, notice.Text}); err != nil {
			s.t.Fatal(err)
		}
	})
}

// Jobs of a lane that are returned one after the other, each in a commit of its own, keep their order, too: also under collapse
// keys, and where all had the same slot.
func TestJobsReturnedOneByOneKeepTheirOrder(t *testing.T) {
	for name, change := range map[string]func(*envelope.Envelope, *envelope.Claim){
		"":                    func(*envelope.Envelope, *envelope.Claim) {},
		"under collapse keys": func(env *envelope.Envelope, _ *envelope.Claim) { env.CollapseKey = "k" + env.Payload },
		"of one slot":         func(_ *envelope.Envelope, claim *envelope.Claim) { claim.Slot, claim.Spent = 7, 7 },
		// It was late, was claimed again behind the others, and comes back with them.
		"again": func(env *envelope.Envelope, claim *envelope.Claim) {
			if env.Payload == "1" {
				env.Slot, claim.Slot, claim.Spent = 1, 9, 9
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.handler = func(string, Attempt) Outcome { return Outcome{} }
				lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
				until := time.Now().Add(5 * time.Second).UnixMicro()
				s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(time.Minute).UnixMicro()), "a")
				s.join("w")
				for _, n := range []int{2, 1, 4, 3} {
					env := envelope.Envelope{Stamp: envelope.Stamp(time.Now().UnixMicro()/1e9*1e9 + int64(n)), Cost: 1, MaxAttempts: 3, Type: "x", Payload: strconv.Itoa(n)}
					claim := envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: int64(n), Spent: int64(n)}
					change(&env, &claim)
					s.server.HSet("wc:{q}:running:a", claim.String(), env.String())
					notice := store.Return{Worker: "a", Claim: claim, Kind: store.ReturnPaused, Scope: envelope.UserScope("t", "u"), Until: until}.Notice()
					if _, err := s.server.XAdd("wc:{q}:notices", "*", []string{notice.Subject, notice.Text}); err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(10 * time.Second)
				s.end()
				s.mu.Lock()
				defer s.mu.Unlock()
				var order []string
				for _, start := range s.starts {
					order = append(order, start.payload)
				}
				if !slices.Equal(order, []string{"1", "2", "3", "4"}) {
					t.Errorf("%v have started, want 1 to 4", order)
				}
			})
		})
	}
}

// Jobs of a lane whose next attempts have become due together keep their order.
func TestRetriesThatAreDueTogetherKeepTheirOrder(t *testing.T) {
	inOrder(t, func(s *stage, lane envelope.Lane, n int, env envelope.Envelope) {
		env.Failures = 1
		s.server.ZAdd("wc:{q}:later", float64(time.Now().UnixMicro()-1000+int64(n)), lane.Name()+" "+env.String())
	})
}
