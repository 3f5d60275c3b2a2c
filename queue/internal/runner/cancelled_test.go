package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job with a collapse key is cancelled after it was claimed, and before its worker has read which
// job it is. Whoever was told that it is cancelled sees it never run.
func TestACollapsibleJobIsCancelledOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		w := s.joinWith("w", 5)
		operator, err := store.New(s.client, "q")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		var was string
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if isCommit(cmd) && was == "" && s.server.Exists("wc:{q}:running:w") {
				if was, err = operator.Cancel(t.Context(), "mine"); err != nil {
					t.Error(err)
				}
			}
			return err
		})
		env := envelope.Envelope{ID: "mine", CollapseKey: "k", Cost: 1, MaxAttempts: 3, Type: "x", Payload: "job"}
		lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
		if _, err = w.worker.Store.Offer(t.Context(), store.Offer{
			Batch: "1", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}},
			Jobs: []store.OfferJob{{Lane: lane, ID: "mine", IDFor: store.IDMemory, Collapse: "k", Body: env.Body()}},
		}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, err := envelope.ParseLane(was); err != nil {
			t.Errorf("the job was %q when it was cancelled; it is to be in its lane", was)
		}
		if s.attempts() != 0 {
			t.Error("a job runs that was cancelled")
		}
		if drops, err := s.server.Stream("wc:{q}:drops"); err != nil || len(drops) != 1 {
			t.Errorf("%d jobs were dropped, %v; want it as cancelled", len(drops), err)
		}
		if members, _ := s.server.SMembers("wc:{q}:cancelled"); len(members) > 0 {
			t.Errorf("%v are to be cancelled for ever", members)
		}
		s.end()
	})
}
