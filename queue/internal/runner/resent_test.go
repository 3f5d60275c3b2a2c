package runner

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// A commit that is sent again without a lane that is not as it was writes all about the others,
// and leaves that lane as if nothing had been decided: its next job has the slot, the place and
// the room under the concurrency limit.
func TestACommitIsSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			User:            rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Hour}),
			UserConcurrency: schedule.Concurrency{Jobs: 1},
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.offer("gone", 2)
		s.offer("there", 2)
		w := s.join("w")
		var both atomic.Bool
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && takes(cmd, "gone") && takes(cmd, "there") && both.CompareAndSwap(false, true) {
				s.client.LPop(t.Context(), "wc:{q}:lane:t:gone")
			}
			return do()
		})
		time.Sleep(5 * time.Second)
		var users []string
		s.mu.Lock()
		for _, a := range s.starts {
			users = append(users, a.user)
		}
		s.mu.Unlock()
		if slices.Sort(users); !both.Load() || !slices.Equal(users, []string{"gone", "there"}) {
			t.Errorf("started %v; they were taken together: %v", users, both.Load())
		}
		for _, user := range users {
			if !s.server.Exists("wc:{q}:state:u:t:" + user) {
				t.Errorf("Redis does not know that %s had a start", user)
			}
		}
		if free := w.worker.Places.Free(); free != w.worker.Places.All() {
			t.Errorf("%d of %d places are free, and nothing runs", free, w.worker.Places.All())
		}
		s.end()
	})
}

// takes reports whether a commit makes a job of a user a claim.
func takes(cmd redis.Cmder, user string) bool {
	return slices.ContainsFunc(cmd.Args(), func(arg any) bool {
		claim, _ := arg.(string)
		return strings.HasSuffix(claim, " t:"+user+":1")
	})
}

// What a shadow rule says about a start that a commit sent again leaves out does not count.
func TestAStartThatIsLeftOutCountsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{
			User: rules.Compile(schedule.Grace*time.Microsecond,
				rules.Rule{Kind: rules.Window, Limit: 1, Period: time.Hour, Shadow: true},
				rules.Rule{Kind: rules.Spacing, Limit: 1, Period: time.Second}),
		}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.offer("gone", 3)
		s.offer("there", 3)
		w := s.join("w")
		var mu sync.Mutex
		seen, both := make(map[string]bool), 0
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			mu.Lock()
			claims := 0
			for _, arg := range cmd.Args() {
				claim, _ := arg.(string)
				if isCommit(cmd) && strings.HasSuffix(claim, ":1") && strings.Contains(claim, " t:") && !seen[claim] {
					seen[claim] = true
					claims++
				}
			}
			if claims == 2 {
				both++
			}
			second := claims == 2 && both == 2
			mu.Unlock()
			if second {
				s.client.LPop(t.Context(), "wc:{q}:lane:t:gone")
			}
			return do()
		})
		time.Sleep(10 * time.Second)
		meta := s.client.HGetAll(t.Context(), "wc:{q}:meta").Val()
		mu.Lock()
		together := both
		mu.Unlock()
		if together < 2 || s.attempts() != 5 || meta["shadowed:window 1/1h"] != "3" {
			t.Errorf("%d starts of 5; both users had one together %d times; %v", s.attempts(), together, meta)
		}
		s.end()
	})
}

// A worker that has left since the leader looked is given nothing: nobody would take it back.
func TestAWorkerThatHasLeftGetsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		s.handler = func(string, Attempt) Outcome { time.Sleep(time.Second); return Outcome{} }
		s.hire(2)
		time.Sleep(5500 * time.Millisecond) // the leader has looked, and will again
		goOn := func() {}
		for _, w := range s.workers {
			if w != s.leader() {
				goOn = w.wire.hold()
				s.server.ZRem("wc:{q}:workers", w.worker.Name)
			}
		}
		for i := range 20 {
			s.offer(fmt.Sprint("u", i), 1)
		}
		time.Sleep(30 * time.Second)
		if n := s.attempts(); n != 20 {
			t.Errorf("%d of 20 jobs have started", n)
		}
		goOn()
		s.end()
	})
}

// Offers tell nobody while no lease holds: a leader that goes on reads everything again. Its commit is under way for less
// than a lease, and the lease ends meanwhile.
func TestALeaderGoesOnAfterItsLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		time.Sleep(2 * time.Second)
		token := s.server.HGet("wc:{q}:meta", "leader")
		for till := s.server.HGet("wc:{q}:meta", "till"); s.server.HGet("wc:{q}:meta", "till") == till; {
			time.Sleep(time.Millisecond)
		}
		goOn := s.leader().wire.hold() // the next commit comes after half of the lease
		time.Sleep(aloneLease + aloneLease/4)
		s.offer("u", 3)
		goOn()
		time.Sleep(2 * time.Second)
		if n := s.attempts(); n != 3 || s.server.HGet("wc:{q}:meta", "leader") != token {
			t.Errorf("%d of 3 jobs have started; the leader was %s, and is %s", n, token, s.server.HGet("wc:{q}:meta", "leader"))
		}
		s.end()
	})
}

// A worker whose lease is renewed while the leader takes its jobs back keeps them.
func TestAWorkerThatWakesKeepsItsJobs(t *testing.T) {
	t.Parallel()
	for _, wakes := range []bool{true, false} {
		t.Run(fmt.Sprint("wakes ", wakes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.lease = 15 * time.Second
				s.handler = func(string, Attempt) Outcome { return Outcome{} }
				lease := func(left time.Duration) {
					s.server.ZAdd("wc:{q}:workers", float64(time.Now().Add(left).UnixMicro()), "frozen")
				}
				var asked atomic.Bool
				s.join("leader").wire.intercept(func(cmd redis.Cmder, do func() error) error {
					if takesBack(cmd, "frozen") {
						if asked.Store(true); wakes {
							lease(time.Minute)
						}
					}
					return do()
				})
				time.Sleep(5 * time.Second)
				env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x"}
				s.server.HSet("wc:{q}:running:frozen", envelope.Claim{Stamp: env.Stamp, Lane: envelope.Lane{Tenant: "t", User: "u", Priority: 1}, Slot: 1, Spent: 1}.String(), env.String())
				lease(-time.Second)
				time.Sleep(10 * time.Second)
				if kept := s.server.Exists("wc:{q}:running:frozen"); !asked.Load() || kept != wakes {
					t.Errorf("it keeps its job: %v; the leader has looked: %v", kept, asked.Load())
				}
				s.end()
			})
		})
	}
}

// takesBack reports whether a command is a commit that takes jobs back from a worker.
func takesBack(cmd redis.Cmder, worker string) bool {
	args := cmd.Args()
	return strings.HasPrefix(cmd.Name(), "eval") && slices.Contains(args, any("expired")) && slices.Contains(args, any(worker))
}

// What a lost worker had certainly started has cost an attempt; so has what another worker was lost
// with before.
func TestAttemptsOfALostWorker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		failures := map[string]int{}
		s.handler = func(_ string, a Attempt) Outcome {
			s.mu.Lock()
			defer s.mu.Unlock()
			failures[a.Lane.User] = a.Job.Failures
			return Outcome{}
		}
		s.join("leader")
		time.Sleep(5 * time.Second)
		through := time.Now().Add(-time.Minute).UnixMicro()
		for user, claim := range map[string]struct {
			slot int64
			lost int
		}{"before": {through - 1, 0}, "at": {through, 0}, "after": {through + 1, 0}, "again": {through + 1, 1}} {
			env := envelope.Envelope{Stamp: "35d013b37e000", Cost: 1, MaxAttempts: 3, Type: "x", Lost: claim.lost}
			lane := envelope.Lane{Tenant: "t", User: user, Priority: 1}
			s.server.HSet("wc:{q}:running:lost", envelope.Claim{Stamp: env.Stamp, Lane: lane, Slot: claim.slot, Spent: claim.slot}.String(), env.String())
		}
		s.server.HSet("wc:{q}:worker:lost", "started", strconv.FormatInt(through, 10))
		s.server.ZAdd("wc:{q}:workers", float64(through), "lost")
		time.Sleep(10 * time.Second)
		s.end()
		s.mu.Lock()
		defer s.mu.Unlock()
		if want := map[string]int{"before": 1, "at": 0, "after": 0, "again": 1}; !maps.Equal(failures, want) {
			t.Errorf("attempts that failed: %v, want %v", failures, want)
		}
	})
}
