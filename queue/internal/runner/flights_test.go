package runner

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/waterclock/waterclock/internal/rules"
	"github.com/waterclock/waterclock/queue/internal/schedule"
	"github.com/waterclock/waterclock/throttle"
)

// A mischief does something to one commit, instead of sending it.
type mischief func(s *stage, do func() error) error

var errReset = &net.OpError{Op: "read", Err: errors.New("connection reset")}

// What happens to one commit of several that are under way costs no job, no second start and
// no limit, whatever happens to those behind it.
func TestCommitsUnderWay(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	t.Parallel()
	lost := func(s *stage, do func() error) error { do(); return errReset }
	dropped := func(s *stage, do func() error) error { return errReset }
	late := func(s *stage, do func() error) error {
		time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		return do()
	}
	changed := func(s *stage, do func() error) error {
		s.client.HIncrBy(s.t.Context(), "wc:{q}:meta", "changes", 1)
		return do()
	}
	other := func(s *stage, do func() error) error { // the first job of a lane has gone
		lane := fmt.Sprint("wc:{q}:lane:t:u", rand.IntN(crowd))
		if job, _ := s.client.LPop(s.t.Context(), lane).Result(); job != "" {
			s.mu.Lock()
			s.done["gone"]++
			s.mu.Unlock()
		}
		return do()
	}
	all := []mischief{lost, dropped, late, late, changed, other}
	for name, test := range map[string]struct {
		oneIn int
		acts  []mischief
	}{
		"a reply is lost": {8, []mischief{lost}}, "one does not arrive": {8, []mischief{dropped}},
		"they overtake each other": {8, []mischief{late}}, "something has changed": {8, []mischief{changed}},
		"a lane is not as it was": {8, []mischief{other}}, "all": {8, all},
		"several at once": {2, []mischief{other, other, dropped}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { disturb(t, test.oneIn, test.acts) })
		})
	}
}

// crowd is how many users have a job each, and five at most.
const crowd = 200

// Commits on one connection arrive in their order or not at all: it may break before some, or
// before their replies. That costs no job, no second start and no limit either.
func TestCommitsOnOneConnection(t *testing.T) {
	t.Parallel()
	for name, fates := range map[string][]fate{
		"nothing happens": {arrives}, "replies are lost": {mute}, "some do not arrive": {breaks}, "all": {mute, breaks},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, w := crowded(t, true)
				w.wire.mu.Lock()
				w.wire.fate = func() fate {
					if rand.IntN(8) > 0 {
						return arrives
					}
					return fates[rand.IntN(len(fates))]
				}
				w.wire.mu.Unlock()
				s.drained(w)
				// The first one is sent twice, since Redis does not know the script, and the end of the
				// term looks the same.
				if seq, _ := strconv.Atoi(s.server.HGet("wc:{q}:meta", "seq")); name == "nothing happens" && w.wire.commits != seq+2 {
					t.Errorf("%d commits were sent and %d done: some came before their turn", w.wire.commits, seq)
				}
				if w.wire.most < 2 {
					t.Errorf("%d commits were under way at once: the test shows nothing", w.wire.most)
				}
			})
		})
	}
}

// Commits on connections of their own overtake each other. The leader decides anew what came too
// early, and leads on.
func TestCommitsThatOvertakeEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := crowded(t, false)
		n := 0
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) {
				s.mu.Lock()
				n++
				wait := time.Duration(n%3) * time.Millisecond
				s.mu.Unlock()
				time.Sleep(wait)
			}
			return do()
		})
		s.drained(w)
		if epoch := s.server.HGet("wc:{q}:meta", "epoch"); epoch != "1" {
			t.Errorf("the worker has led in %s terms", epoch)
		}
	})
}

// Redis forgets its last commits while others are under way, as a failover does. Nothing comes after a
// commit that is gone: the leader leads on under a new token, and reads everything again.
func TestCommitsThatAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, w := crowded(t, false)
		var n atomic.Int64
		w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if isCommit(cmd) && n.Add(1) == 20 {
				s.client.HIncrBy(t.Context(), "wc:{q}:meta", "seq", -5)
			}
			return do()
		})
		s.drained(w)
		if epoch := s.server.HGet("wc:{q}:meta", "epoch"); epoch != "2" {
			t.Errorf("the worker has led in %s terms; want 2", epoch)
		}
	})
}

// crowded is a stage with a worker that leads, and users with a limit.
func crowded(t *testing.T, streams bool) (*stage, *actor) {
	s := newStage(t, 0)
	s.streams = streams
	grace := schedule.Grace * time.Microsecond
	s.policies.Policies["p"] = schedule.Policy{User: rules.Compile(grace, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 50 * time.Millisecond})}
	s.handler = func(string, Attempt) Outcome { return Outcome{} }
	w := s.join("w")
	time.Sleep(2 * time.Second)
	return s, w
}

// disturb drains a backlog, while something happens to one in n commits, each of which goes its
// own way.
func disturb(t *testing.T, n int, acts []mischief) {
	s, w := crowded(t, false)
	var mu sync.Mutex
	under, most := 0, 0
	count := func(by int) {
		mu.Lock()
		defer mu.Unlock()
		under += by
		most = max(most, under)
	}
	w.wire.intercept(func(cmd redis.Cmder, do func() error) error {
		if !isCommit(cmd) {
			return do()
		}
		count(1)
		defer count(-1)
		time.Sleep(500 * time.Microsecond)
		if rand.IntN(n) > 0 {
			return do()
		}
		err := acts[rand.IntN(len(acts))](s, do)
		if errors.Is(err, errReset) {
			cmd.SetErr(err)
		}
		return err
	})
	s.drained(w)
	mu.Lock()
	defer mu.Unlock()
	if most < 2 {
		t.Errorf("%d commits were under way at once: the test shows nothing", most)
	}
}

// drained offers each user of the crowd some jobs, and checks after a minute what became of them.
func (s *stage) drained(w *actor) {
	t := s.t
	for user := range crowd {
		s.offer(fmt.Sprint("u", user), 1+user%5)
	}
	time.Sleep(time.Minute)
	w.stop()
	s.mu.Lock()
	runs := make(map[string]int)
	var starts []throttle.Event
	for _, a := range s.starts {
		runs[a.payload]++
		starts = append(starts, throttle.Event{Subject: a.user, At: a.at})
		if runs[a.payload] > 1 {
			t.Errorf("%s has started again", a.payload)
		}
	}
	if missing := len(s.offered) - len(runs); missing != s.done["gone"] {
		t.Errorf("%d of %d jobs have not started, and %d are gone", missing, len(s.offered), s.done["gone"])
	}
	s.mu.Unlock()
	for _, v := range throttle.Verify(starts, []throttle.Rule{throttle.Spacing(50 * time.Millisecond)}) {
		t.Error(v)
	}
	if held := s.client.HLen(t.Context(), "wc:{q}:running:w").Val(); held > 0 {
		t.Errorf("%d claims are left", held)
	}
	s.end()
}

// isCommit tells a leader's commit from other scripts: its first argument is the leader's token.
func isCommit(cmd redis.Cmder) bool {
	args := cmd.Args()
	if cmd.Name() != "evalsha" && cmd.Name() != "eval" || len(args) < 3 {
		return false
	}
	keys, _ := args[2].(int)
	if len(args) < 5+keys {
		return false
	}
	token, _ := args[3+keys].(string)
	var epoch int
	_, err := fmt.Sscanf(token, "%d:w", &epoch)
	return err == nil
}
