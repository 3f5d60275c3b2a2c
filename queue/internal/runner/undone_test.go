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

// The first job of a lane is gone when the commit arrives that starts it: the next one waits for
// nothing, since nothing has started.
func TestALaneWhoseFirstJobIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			User: rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 10 * time.Minute}),
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.join("w")
		time.Sleep(3 * time.Second)
		var once atomic.Bool
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && takes(cmd, "gone") && once.CompareAndSwap(false, true) {
				s.client.LPop(t.Context(), "wc:{q}:lane:t:gone")
			}
			return do()
		})
		s.offer("gone", 2) // a notice tells of the first one
		time.Sleep(5 * time.Minute)
		if n := s.attempts(); n != 1 {
			t.Errorf("%d starts in five minutes; the user has seen none, and one job waits: %v", n, s.client.ZRangeWithScores(t.Context(), "wc:{q}:due:t", 0, -1).Val())
		}
		time.Sleep(10 * time.Minute)
		s.end()
	})
}

// A worker leaves while jobs are on their way to it: their users wait for nothing.
func TestUsersOfAWorkerThatLeaves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			User: rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 10 * time.Minute}),
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.joinWith("w", 1)
		time.Sleep(3 * time.Second)
		other := s.joinWith("other", 50)
		time.Sleep(3 * time.Second)
		if s.leader() != w {
			t.Fatal("another leads")
		}
		var once atomic.Bool
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && slices.ContainsFunc(cmd.Args(), func(a any) bool { text, _ := a.(string); return strings.Contains(text, " t:u") }) && once.CompareAndSwap(false, true) {
				other.stop() // a rolling upgrade
			}
			return do()
		})
		for i := range 10 {
			s.offer(fmt.Sprint("u", i), 1)
		}
		time.Sleep(5 * time.Minute)
		if n := s.attempts(); n != 10 {
			t.Errorf("%d of 10 users have got their only job in five minutes", n)
		}
		s.end()
	})
}

// A commit is refused, and the leader dies: what was decided in the commits behind it counts for no rule.
func TestStartsThatNeverHappenedCountForNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		set := rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Window, Limit: 60, Period: time.Hour})
		s.policies.Policies["p"] = schedule.Policy{Tenant: set}
		s.handler = func(string, Attempt) Outcome { time.Sleep(time.Minute); return Outcome{} }
		w := s.join("w")
		time.Sleep(3 * time.Second)
		var n atomic.Int64
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if !isCommit(cmd) || !slices.ContainsFunc(cmd.Args(), func(a any) bool { claim, _ := a.(string); return strings.Contains(claim, " t:u") }) {
				return do()
			}
			switch k := n.Add(1); {
			case k == 1:
				s.client.LPop(t.Context(), "wc:{q}:lane:t:u0") // somebody has purged it
				return do()
			case k <= 3:
				time.Sleep(time.Millisecond)
				return do()
			}
			w.wire.cut(true) // the leader's machine dies
			cmd.SetErr(errReset)
			return errReset
		})
		st, _ := store.New(s.client, "q")
		o := store.Offer{Batch: "b", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}}
		for i := range 60 {
			e := envelope.Envelope{Cost: 1, MaxAttempts: 100, Priority: envelope.Normal, Type: "x"}
			o.Jobs = append(o.Jobs, store.OfferJob{Lane: envelope.Lane{Tenant: "t", User: fmt.Sprint("u", i), Priority: 1}, Body: e.Body()})
		}
		if _, err := st.Offer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		var state rules.State
		if err := state.Decode(s.client.Get(t.Context(), "wc:{q}:state:t:t").Val()); err != nil {
			t.Fatal(err)
		}
		claims := s.client.HLen(t.Context(), "wc:{q}:running:w").Val()
		room := set.Room(&state, 0, time.Now().UnixMicro())
		if int64(60-room) != claims {
			t.Errorf("%d starts count that never happened", int64(60-room)-claims)
		}
		s.end()
	})
}

// The commit that brings a job whose time has come is refused, since policies have changed: the job comes
// with the next one.
func TestARipeJobOfARefusedCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.join("w")
		time.Sleep(3 * time.Second)
		var once atomic.Bool
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			takesOut := slices.ContainsFunc(cmd.Args(), func(a any) bool { text, _ := a.(string); return text == "ZREM" })
			if isCommit(cmd) && takesOut && once.CompareAndSwap(false, true) {
				s.client.HIncrBy(t.Context(), "wc:{q}:meta", "changes", 1)
			}
			return do()
		})
		st, _ := store.New(s.client, "q")
		e := envelope.Envelope{Cost: 1, MaxAttempts: 3, Priority: envelope.Normal, Type: "x", Payload: "later"}
		s.offered["later"] = true
		o := store.Offer{Batch: "b", Keep: time.Minute, Policies: 1, Tenants: []store.OfferTenant{{Name: "t"}}}
		o.Jobs = append(o.Jobs, store.OfferJob{
			Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Body: e.Body(), NotBefore: time.Now().Add(time.Second).UnixMicro(),
		})
		if _, err := st.Offer(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := s.attempts(); n != 1 || !once.Load() {
			t.Errorf("%d of 1 job has started a second after its time; a commit was refused: %v", n, once.Load())
		}
		s.end()
	})
}
