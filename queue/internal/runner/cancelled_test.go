package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// A job with a collapse key is cancelled after it was claimed, and before its worker has read which
// job it is. Whoever was told that it is cancelled sees it never run.
func TestACollapsibleJobIsCancelledOnItsWay(t *testing.T) {
	t.Parallel()
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

// A cancelled job is purged. Its ID is forgotten later, and offered anew: the new job runs.
func TestTheIDOfACancelledJobThatWasPurged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
			rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.join("w")
		operator, err := store.New(s.client, "q")
		must := func(err error) {
			if err != nil {
				t.Error(err)
			}
		}
		must(err)
		time.Sleep(3 * time.Second)
		offer := func(user string) {
			env := envelope.Envelope{ID: "mine", Cost: 1, MaxAttempts: 3, Type: "x", Payload: user}
			_, err := operator.Offer(t.Context(), store.Offer{
				Batch: user, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}},
				Jobs: []store.OfferJob{{Lane: envelope.Lane{Tenant: "t", User: user, Priority: envelope.Normal}, ID: "mine", IDFor: store.IDMemory, Body: env.Body()}},
			})
			must(err)
			time.Sleep(time.Second)
		}
		s.offer("u", 1)
		time.Sleep(time.Second)
		offer("u") // it waits for an hour
		_, err = operator.Cancel(t.Context(), "mine")
		must(err)
		time.Sleep(time.Second)
		n, _, err := operator.Purge(t.Context(), "t", 10, store.Note{})
		if must(err); n != 1 {
			t.Errorf("%d jobs were purged", n)
		}
		time.Sleep(time.Second)
		must(operator.ForgetID(t.Context(), "mine", store.WasDropped))
		offer("v")
		if n := s.attempts(); n != 2 {
			where, _ := operator.Where(t.Context(), "mine")
			t.Errorf("%d jobs ran, want the first one and the new one; that is %q", n, where)
		}
		s.end()
	})
}
