package runner

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/queue/internal/store"
)

// The leader dies when it has read what a refund needs: the next one gives the slot back.
func TestARefundOutlivesItsLeader(t *testing.T) {
	for _, dies := range []bool{false, true} {
		t.Run(fmt.Sprint("the leader dies ", dies), func(t *testing.T) { refundIsLost(t, dies) })
	}
}

func refundIsLost(t *testing.T, dies bool) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
			rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.hire(2)
		time.Sleep(3 * time.Second)
		s.offer("u", 1)
		time.Sleep(time.Second)
		if s.attempts() != 1 {
			t.Fatal("the first job has not started")
		}
		s.mu.Lock()
		first := s.starts[0]
		s.mu.Unlock()
		// The next leader knows nothing of the user. A refund of the first start arrives; that leader
		// dies when the commit that reads the user's state has been done.
		s.depose()
		time.Sleep(time.Second)
		leader := s.leader()
		var seen atomic.Int64
		leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			text := fmt.Sprint(cmd.Args()...)
			if strings.HasPrefix(cmd.Name(), "eval") && strings.Contains(text, "state:u:t:u") && strings.Contains(text, "MGET") && seen.Add(1) == 1 && dies {
				go leader.wire.cut(true)
				time.Sleep(time.Second)
			}
			return err
		})
		st, _ := store.New(s.client, "q")
		slot := first.slot
		claim := envelope.Claim{Stamp: fmt.Sprintf("%013x", slot-1000), Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Slot: slot, Spent: slot}
		if err := st.Write(t.Context(), store.Notice{Subject: store.NoticeRefund, Text: refundOf(claim).String()}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		s.offer("u", 1)
		time.Sleep(time.Minute)
		if s.attempts() != 2 {
			t.Errorf("%d starts; the slot that was refunded is not there", s.attempts())
		}
		s.end()
	})
}

// A job that a limit by name counts gives its user a slot back, and the leader dies with the commit that does so: the next one
// finds the user's other jobs due, which no limit by name counts.
func TestARefundIsForAllLanesOfAUser(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
			rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour})}
		s.policies.Named = codex{named: []statute{{name: "n", types: "x", counts: "jobs", code: code{most: 5}}}}.policies(1, 0).Named
		s.handler = func(_ string, a Attempt) Outcome {
			time.Sleep(5 * time.Second)
			return Outcome{Refund: a.Job.Type == "x"}
		}
		s.hire(2)
		time.Sleep(3 * time.Second)
		st, _ := store.New(s.client, "q")
		for _, typ := range []string{"x", "y"} {
			env := envelope.Envelope{Cost: 1, MaxAttempts: 1, Type: typ, Priority: envelope.Normal}
			lane := envelope.Lane{Tenant: "t", User: "u", Priority: envelope.Normal}
			lane.Label = s.policies.Label(lane, &env)
			offer := store.Offer{Batch: typ, Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}, Jobs: []store.OfferJob{{Lane: lane, Body: env.Body()}}}
			if _, err := st.Offer(t.Context(), offer); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second)
		}
		if s.attempts() != 1 {
			t.Fatalf("%d starts, and the window admits 1", s.attempts())
		}
		leader, state := s.leader(), store.NewKeys("q").State(envelope.UserScope("t", "u"))
		leader.wire.intercept(func(_ redis.Cmder, do func() error) error {
			before := s.server.Exists(state)
			err := do()
			if before && !s.server.Exists(state) { // the slot was given back
				go leader.wire.cut(true)
				time.Sleep(time.Second)
			}
			return err
		})
		time.Sleep(time.Minute)
		if s.attempts() != 2 {
			t.Errorf("%d starts a minute after the slot was given back", s.attempts())
		}
		s.end()
	})
}

// refundOf asks for what the job of a claim has cost.
func refundOf(claim envelope.Claim) store.Refund {
	return store.Refund{Claim: claim, Job: &envelope.Envelope{Stamp: claim.Stamp, Type: "x", Cost: 1}}
}

// More requests come than one commit settles, and the leader dies when it has given a refund among them: the next one
// does not give it again. Two tokens, one of which comes back, are enough for three starts.
func TestARefundAmongManyIsGivenOnce(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func(claim envelope.Claim) store.Notice{
		"refunds": func(claim envelope.Claim) store.Notice {
			return store.Notice{Subject: store.NoticeRefund, Text: refundOf(claim).String()}
		},
		"returns": func(claim envelope.Claim) store.Notice {
			return store.Return{Worker: "gone", Claim: claim, Kind: store.ReturnLate}.Notice()
		},
	} {
		t.Run("among "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { refundAmongMany(t, other) })
		})
	}
}

func refundAmongMany(t *testing.T, other func(claim envelope.Claim) store.Notice) {
	s := newStage(t, 0)
	s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
		rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Hour, Burst: 2})}
	s.handler = func(string, Attempt) Outcome { return Outcome{} }
	s.hire(2)
	time.Sleep(2 * time.Second)
	s.offer("u", 2)
	time.Sleep(time.Second)
	s.mu.Lock()
	slot := s.starts[len(s.starts)-1].slot
	s.mu.Unlock()
	leader := s.leader()
	goOn := leader.wire.stick() // it waits for a commit, reads on meanwhile, and opens what it has read together
	time.Sleep(200 * time.Millisecond)
	st, _ := store.New(s.client, "q")
	write := func(notice store.Notice) {
		if err := st.Write(t.Context(), notice); err != nil {
			t.Error(err)
		}
	}
	claim := func(user string, slot int64) envelope.Claim {
		lane := envelope.Lane{Tenant: "t", User: user, Priority: 1}
		return envelope.Claim{Stamp: fmt.Sprintf("%013x", slot-1000), Lane: lane, Slot: slot, Spent: slot}
	}
	write(store.Notice{Subject: store.NoticeFinished}) // so that one reading brings fewer requests than a commit settles
	write(store.Notice{Subject: store.NoticeRefund, Text: refundOf(claim("u", slot)).String()})
	for i := range 300 {
		write(other(claim(fmt.Sprint("x", i), slot-1-int64(i))))
	}
	time.Sleep(20 * time.Millisecond)
	leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
		err := do()
		if isCommit(cmd) && slices.Contains(cmd.Args(), any("wc:{q}:state:u:t:u")) {
			go leader.wire.cut(true)
			time.Sleep(time.Second)
		}
		return err
	})
	goOn()
	time.Sleep(10 * time.Second)
	if s.leader() == leader {
		t.Error("the leader has not died: it gave no refund")
	}
	s.offer("u", 3)
	time.Sleep(10 * time.Second)
	if n := s.attempts(); n != 3 {
		t.Errorf("%d starts, want 3", n)
	}
	s.end()
}
