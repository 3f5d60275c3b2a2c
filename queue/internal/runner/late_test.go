package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A worker to which all jobs come late starts them nevertheless: each one that comes back gets a
// slot that lies further ahead.
func TestAWorkerThatIsAlwaysLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
			rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 50 * time.Millisecond}, rules.Rule{Kind: rules.Window, Limit: 2, Period: time.Hour, Shadow: true})}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		leader := s.join("a")
		time.Sleep(3 * time.Second)
		w := s.join("b")
		time.Sleep(3 * time.Second)
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			if cmd.Name() == "blpop" {
				time.Sleep(40 * time.Millisecond)
			}
			return err
		})
		for leader.worker.Places.Take() { // all its places are taken
		}
		s.offer("u", 20)
		time.Sleep(10 * time.Second)
		if n := s.attempts(); n != 20 {
			t.Errorf("%d of 20 jobs have started", n)
		}
		// What a rule would have done to a job is counted once, however often the job came back.
		if n := s.client.HGet(t.Context(), "wc:{q}:meta", "shadowed:window 2/1h").Val(); n != "18" {
			t.Errorf("a rule of two in an hour would have held back %s of 20 jobs, want 18", n)
		}
		for range leader.worker.Places.All() {
			leader.worker.Places.Give()
		}
		s.end()
	})
}

// Jobs that come late go back, and start a little ahead of the decision. That is no reason to drop the others: a rule drops what it does
// not admit, and it admits all of these.
func TestNoLateJobIsDropped(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"user", "tenant"} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			set := rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Window, Limit: 20, Period: 24 * time.Hour, Drop: true})
			s.policies.Policies["p"] = map[string]schedule.Policy{"user": {User: set}, "tenant": {Tenant: set}}[kind]
			s.handler = func(string, Attempt) Outcome { return Outcome{} }
			s.joinWith("a", 0)
			time.Sleep(3 * time.Second)
			s.join("b").wire.intercept(func(cmd redis.Cmder, do func() error) error {
				err := do()
				if cmd.Name() == "blpop" {
					time.Sleep(40 * time.Millisecond)
				}
				return err
			})
			time.Sleep(3 * time.Second)
			s.offer("u", 20)
			time.Sleep(10 * time.Second)
			if n := s.attempts(); n != 20 {
				t.Errorf("%s: %d of 20 jobs have started; %s were dropped", kind, n, s.client.HGet(t.Context(), "wc:{q}:tenant:t", "dropped").Val())
			}
			s.end()
		})
	}
}
