package runner

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// The wall clock of a leader that is alone moves by a second; its monotonic clock does not. No job gets a
// slot by a clock that is unknown.
func TestALoneLeaderWhoseClockSteps(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			Tenant: rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Leak, Limit: 10, Period: time.Second}),
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		w := s.join("w")
		time.Sleep(3 * time.Second)
		s.offer("u", 50)                                // five seconds of them
		time.Sleep(2*time.Second + 60*time.Millisecond) // between the reply to one commit and the next decision
		w.suspend(time.Second)
		time.Sleep(time.Minute)
		s.offer("v", 1) // another user of the tenant
		time.Sleep(10 * time.Minute)
		if n := s.attempts(); n != 51 {
			t.Errorf("%d of 51 jobs started within ten minutes after a clock step of 1 s; state of the tenant lives for %v", n, s.client.TTL(t.Context(), "wc:{q}:state:t:t").Val())
		}
		s.end()
	})
}

// The same beside a deputy, at several instants between two starts.
func TestALeaderWhoseClockStepsBesideADeputy(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	for _, ms := range []int{5, 20, 40, 60, 80, 88, 89, 90, 95} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage(t, 0)
			s.policies.Policies["p"] = schedule.Policy{
				Tenant: rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Leak, Limit: 10, Period: time.Second}),
			}
			s.handler = func(string, Attempt) Outcome { return Outcome{} }
			s.hire(2)
			time.Sleep(5 * time.Second)
			s.offer("u", 50)
			time.Sleep(2*time.Second + time.Duration(ms)*time.Millisecond)
			w := s.leader()
			w.suspend(time.Second)
			time.Sleep(time.Minute)
			if n := s.attempts(); n != 50 {
				t.Errorf("step %d ms after a start: %d of 50", ms, n)
			}
			s.end()
		})
	}
}

// The wall clock of a worker that does not lead moves, and it gets a job before its next beat. It asks
// Redis for the time; the job does not go to and fro between it and the leader.
func TestAJobForAWorkerWhoseClockHasStepped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(worker string, _ Attempt) Outcome {
			if worker == "w" {
				time.Sleep(10 * time.Second)
			}
			return Outcome{}
		}
		w := s.joinWith("w", 1)
		time.Sleep(3 * time.Second)
		s.offer("a", 1) // which takes the leader's only place
		time.Sleep(time.Second)
		other := s.joinWith("other", 1)
		time.Sleep(3*time.Second + 10*time.Millisecond)
		if s.leader() != w {
			t.Error("another leads")
		}
		other.suspend(time.Hour)
		before, offered := s.commits(), time.Now()
		s.offer("b", 1)
		time.Sleep(100 * time.Millisecond)
		s.mu.Lock()
		last := s.starts[len(s.starts)-1]
		s.mu.Unlock()
		if late := last.at.Sub(offered); last.user != "b" || late > 10*time.Millisecond {
			t.Errorf("the job of b has started after %v (%v)", late, last)
		}
		if n := s.commits() - before; n > 5 {
			t.Errorf("%d commits for one job", n)
		}
		s.end()
	})
}

// Redis's clock is set ahead and back, while the leader sends nothing, and a job is offered in between. By
// that clock nobody leads, so nobody is told of the job. It starts as soon as Redis's clock says so.
func TestAnOfferWhileRedisIsAhead(t *testing.T) {
	t.Parallel()
	const ahead = 5 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.hire(2)
		time.Sleep(3*time.Second + 10*time.Millisecond)
		s.server.SetTime(time.Now().Add(ahead))
		s.offer("u", 1)
		s.server.SetTime(time.Time{})
		time.Sleep(ahead + 2*time.Second)
		if n := s.attempts(); n != 1 {
			t.Errorf("%d jobs of 1 started", n)
		}
		s.end()
	})
}
