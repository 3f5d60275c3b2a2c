package runner

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/envelope"
	"github.com/waterclock/waterclock/queue/internal/schedule"
)

// depose lets another worker lead, while the leader does not know.
func (s *stage) depose() {
	leader := s.leader()
	s.server.HSet("wc:{q}:meta", "till", "0")
	for _, w := range s.workers {
		if w != leader {
			w.elector.Lead()
			break
		}
	}
	time.Sleep(50 * time.Millisecond)
	if s.leader() == leader {
		s.t.Error("nobody else leads")
	}
}

// hire lets so many workers come.
func (s *stage) hire(workers int) {
	for i := range workers {
		s.join(fmt.Sprint("w", i))
	}
}

// lose loses the replies of the next scripts.
func (w *wire) lose(replies int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.loses = replies
}

// stick holds up scripts, until the returned function is called.
func (w *wire) stick() (goOn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	stuck := make(chan struct{})
	w.stuck = stuck
	return func() {
		w.mu.Lock()
		w.stuck = nil
		w.mu.Unlock()
		close(stuck)
	}
}

// drop loses the next scripts on their way to Redis.
func (w *wire) drop(scripts int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.drops = scripts
}

// attempts returns how many attempts began by now.
func (s *stage) attempts() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.starts)
}

// end ends the workers, and the stage.
func (s *stage) end() {
	for _, w := range s.workers {
		w.stop()
	}
	s.client.Close()
	synctest.Wait() // for connections that are being dialed: the server must not end meanwhile
	s.server.Close()
	time.Sleep(20 * time.Second) // go-redis dials on for a while
}

// A leader's own jobs tell it things directly, past Redis. Whoever leads next learns of what
// it has not answered, whether it had opened the notice or not.
func TestNoticesOutliveATerm(t *testing.T) {
	t.Parallel()
	for _, opened := range []bool{false, true} {
		t.Run(fmt.Sprint("opened ", opened), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.handler = func(worker string, a Attempt) Outcome {
					if s.attempts() > 1 || s.leader().worker.Name != worker {
						return Outcome{}
					}
					if opened {
						s.depose()
					} else { // it waits for the reply to a commit until another one leads
						time.AfterFunc(3*leaderLease, s.leader().wire.stick())
						time.Sleep(2 * leaderLease)
					}
					return Outcome{Pause: &Pause{Scope: envelope.UserScope("t", "u"), Until: a.Clock() + 100_000}}
				}
				s.hire(2)
				time.Sleep(2 * time.Second)
				s.offer("u", 1)
				time.Sleep(2 * time.Second)
				if n := s.attempts(); n != 2 {
					t.Errorf("%d attempts, want another one after the pause", n)
				}
				s.end()
			})
		})
	}
}

// A refund is given once, whatever becomes of the reply to the commit that gives it: two
// tokens, one of which comes back, are enough for three starts.
func TestARefundIsGivenOnce(t *testing.T) {
	t.Parallel()
	for lost, name := range []string{"no reply is lost", "the commit's reply", "the commit's and the next term's"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 0)
				s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(schedule.Grace*time.Microsecond,
					rules.Rule{Kind: rules.TokenBucket, Limit: 1, Period: time.Hour, Burst: 2})}
				s.handler = func(worker string, a Attempt) Outcome {
					if s.attempts() > 1 {
						return Outcome{}
					}
					time.Sleep(500 * time.Millisecond) // the second one has its token by then
					s.leader().wire.lose(lost)
					return Outcome{Refund: true}
				}
				s.hire(2)
				time.Sleep(2 * time.Second)
				s.offer("u", 1)
				time.Sleep(100 * time.Millisecond)
				s.offer("u", 3)
				time.Sleep(20 * time.Second)
				if n := s.attempts(); n != 3 {
					t.Errorf("%d attempts, want 3", n)
				}
				s.end()
			})
		})
	}
}

// What a leader gave to itself with its last commit, of whose success it never learned, it
// starts soon, and not when a beat has found a difference twice.
func TestJobsOfALostCommit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.lease = time.Minute
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		s.hire(2)
		time.Sleep(30 * time.Second)
		for i := range 10 {
			patience := 100 * time.Millisecond
			if i%2 == 1 {
				patience = 2 * time.Second
			}
			s.loseStart(i%2 == 1)
			s.offer(fmt.Sprint("u", i), 1)
			time.Sleep(patience)
			if n := s.attempts(); n != i+1 {
				t.Fatalf("%d attempts of %d jobs", n, i+1)
			}
			time.Sleep(10 * time.Second)
		}
		s.end()
	})
}

// loseStart loses the reply to the next commit that starts a job, and the next term's as well
// if it is told to. The commit before that one reads what it needs.
func (s *stage) loseStart(next bool) {
	wire, commits := s.leader().wire, 0
	wire.intercept(func(cmd redis.Cmder, do func() error) error {
		err := do()
		if !isCommit(cmd) {
			return err
		}
		if commits++; commits != 2 {
			return err
		}
		if next {
			wire.lose(1)
		}
		cmd.SetErr(errReset)
		return errReset
	})
}

// A worker that stops gets no job again and again while it returns them.
func TestAStoppingWorkerIsLeftAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.policies.Policies["p"] = schedule.Policy{}
		var n atomic.Int64
		s.handler = func(worker string, a Attempt) Outcome {
			switch {
			case s.leader().worker.Name == worker:
				time.Sleep(10 * time.Second)
			case n.Add(1)%2 == 0:
				time.Sleep(900 * time.Millisecond)
			default:
				time.Sleep(300 * time.Millisecond)
			}
			return Outcome{}
		}
		s.hire(2)
		time.Sleep(2 * time.Second)
		s.offer("u", 200) // twice as many as there are places
		time.Sleep(200 * time.Millisecond)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			s.workers[1-slices.Index(s.workers, s.leader())].stop()
		}()
		begun, before := s.attempts(), s.commits()
		time.Sleep(600 * time.Millisecond) // it has places again, for half of that
		if n := s.commits() - before; n > 8 || s.attempts() != begun {
			t.Errorf("%d commits, while nobody could start a job", n)
		}
		<-stopped
		s.end()
	})
}

// commits returns the number of commits so far.
func (s *stage) commits() (n int) {
	if _, err := fmt.Sscan(s.server.HGet("wc:{q}:meta", "seq"), &n); err != nil {
		s.t.Error(err)
	}
	return n
}

// What a commit was to do that never reached Redis is done with another one.
func TestACommitThatNeverArrived(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(worker string, a Attempt) Outcome {
			s.leader().wire.drop(1)
			if s.attempts() > 1 {
				return Outcome{}
			}
			return Outcome{Pause: &Pause{Scope: envelope.UserScope("t", "u"), Until: a.Clock() + 100_000}}
		}
		s.hire(2)
		time.Sleep(2 * time.Second)
		s.leader().wire.drop(1)
		s.offer("u", 1)
		time.Sleep(2 * time.Second)
		if n := s.attempts(); n != 2 {
			t.Errorf("%d attempts, want another one after the pause", n)
		}
		s.end()
	})
}
