package runner

import (
	"errors"
	"fmt"
	"net"
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

// The first reading of a sweep fails. The sweep is made all the same: nothing else finds a lane whose bound was computed
// under other policies.
func TestASweepWhoseFirstReadingFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		var failed atomic.Int64
		var armed atomic.Bool
		leader := s.join("leader")
		time.Sleep(5 * time.Second)
		s.offer("u", 1)
		time.Sleep(time.Second)
		started := s.attempts()
		s.offerFarAhead("t", "away")
		leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			if armed.Load() && cmd.Name() == "hmget" && strings.Contains(fmt.Sprint(cmd.Args()...), "wc:{q}:meta") && failed.Add(1) == 1 {
				err := &net.OpError{Op: "read", Err: errors.New("connection reset")}
				cmd.SetErr(err)
				return err
			}
			return do()
		})
		armed.Store(true)
		s.govern(2)
		time.Sleep(10 * time.Second)
		if failed.Load() == 0 || s.attempts() != started+1 {
			t.Errorf("%d readings, and after ten seconds %d jobs have started; want the one whose bound lay an hour ahead", failed.Load(), s.attempts()-started)
		}
		s.end()
	})
}

// Other policies come while the bounds of a tenant are lowered, which is not in memory. What was lowered is told
// nevertheless: the next sweep finds nothing more to lower.
func TestASweepThatIsReplaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		var mu sync.Mutex
		var once sync.Once
		var first any // the instant to which the first sweep lowers
		lowered := make(chan struct{})
		leader := s.join("leader")
		time.Sleep(5 * time.Second)
		s.offerFarAhead("away", "u")
		leader.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			err := do()
			key, _ := cmd.Args()[min(1, len(cmd.Args())-1)].(string)
			read := cmd.Name() == "zrangebyscore" && strings.HasPrefix(key, "wc:{q}:due:away")
			if !read && !lowers(cmd) {
				return err
			}
			mu.Lock()
			if read && first == nil {
				first = cmd.Args()[2]
			}
			if lowers(cmd) {
				once.Do(func() { close(lowered); s.govern(3) })
			}
			slow := lowers(cmd) || cmd.Args()[2] == first
			mu.Unlock()
			select {
			case <-lowered:
				if slow { // the first sweep gets no more answers until it is replaced
					time.Sleep(time.Second)
				}
			default:
			}
			return err
		})
		s.govern(2)
		time.Sleep(10 * time.Second)
		if s.attempts() != 1 {
			t.Errorf("%d jobs have started; want the one whose bound lay an hour ahead", s.attempts())
		}
		s.end()
	})
}

// A leader loses Redis while it lowers bounds, and another leads. What the first one lowers when it is back, nobody has
// asked for; the lanes concerned start nevertheless.
func TestADeposedLeaderLowersBounds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 0)
		spacing := rules.Compile(schedule.Grace*time.Microsecond, rules.Rule{Kind: rules.Spacing, Limit: 1, Period: 3 * time.Second})
		s.policies.Policies["p"] = schedule.Policy{User: spacing}
		s.handler = func(string, Attempt) Outcome { return Outcome{} }
		old := s.join("old")
		time.Sleep(5 * time.Second)
		s.join("new")
		time.Sleep(2 * time.Second)
		var mu sync.Mutex
		var armed bool
		var release time.Time
		old.wire.intercept(func(cmd redis.Cmder, do func() error) error {
			mu.Lock()
			if armed && release.IsZero() && lowers(cmd) {
				release = time.Now().Add(6 * time.Second)
			}
			wait := time.Until(release)
			mu.Unlock()
			time.Sleep(wait)
			return do()
		})
		s.offer("u", 5)
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		armed = true
		mu.Unlock()
		s.govern(2)
		time.Sleep(20 * time.Second)
		if release.IsZero() || s.leader() == old || s.attempts() != 5 {
			t.Errorf("bounds were lowered: %v, by the leader: %v; %d of 5 jobs have started", !release.IsZero(), s.leader() == old, s.attempts())
		}
		s.end()
	})
}

// lowers reports whether a command lowers bounds of lanes, and is no commit.
func lowers(cmd redis.Cmder) bool {
	words := fmt.Sprint(cmd.Args()...)
	return strings.Contains(words, "wc:{q}:due:") && len(cmd.Args()) > 4 && cmd.Args()[4] == "wc:{q}:notices"
}

// offerFarAhead puts a job of a user into its lane, whose bound lies an hour ahead, as that of its tenant may, and
// tells nobody.
func (s *stage) offerFarAhead(tenant, user string) {
	env := envelope.Envelope{Stamp: fmt.Sprintf("%013x", time.Now().UnixMicro()), Cost: 1, MaxAttempts: 3, Type: "x"}
	s.server.RPush("wc:{q}:lane:"+tenant+":"+user, env.String())
	far := float64(time.Now().Add(time.Hour).UnixMicro())
	s.server.ZAdd("wc:{q}:due:"+tenant, far, user)
	if known, _ := s.server.ZScore("wc:{q}:tenants", tenant); known == 0 {
		s.server.ZAdd("wc:{q}:tenants", far, tenant)
	}
}

// govern puts the same policies in force as another version.
func (s *stage) govern(version int64) {
	policies := *s.policies
	policies.Version = version
	s.policies = &policies
	s.client.HSet(s.t.Context(), "wc:{q}:policies", "version", version, "source", "x")
	s.client.HSet(s.t.Context(), "wc:{q}:meta", "policies", version)
	s.client.HIncrBy(s.t.Context(), "wc:{q}:meta", "changes", 1)
}
